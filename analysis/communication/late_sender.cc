#include "analysis/communication/late_sender.h"

#include <algorithm>
#include <map>

#include "analysis/rules/network.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

std::vector<std::int32_t> ChainFrom(const Context& context, const std::vector<P2pPair>& pairs,
                                    const std::vector<std::int64_t>& costs_ns, std::int32_t waiting,
                                    std::int32_t late) {
  std::vector<std::int32_t> chain{waiting, late};
  for (;;) {
    const std::size_t before = context.Position(chain[chain.size() - 2]), at = context.Position(chain.back());
    // It cannot send earlier while it waits itself.
    if (before == kNowhere || at == kNowhere || !HalfOf(costs_ns[at], costs_ns[before])) return chain;
    const P2pPair* pair = HeaviestOf(pairs, chain.back(), &P2pPair::destination, &P2pPair::late_sender_ns);
    if (pair == nullptr || std::find(chain.begin(), chain.end(), pair->source) != chain.end()) return chain;
    chain.push_back(pair->source);
  }
}

}  // namespace

const P2pPair* HeaviestOf(const std::vector<P2pPair>& pairs, std::int32_t rank, std::int32_t P2pPair::*waits,
                          std::int64_t P2pPair::*cost) {
  const P2pPair* most = nullptr;
  for (const P2pPair& pair : pairs)
    if (pair.*waits == rank && pair.*cost > 0 && (most == nullptr || pair.*cost > most->*cost)) most = &pair;
  return most;
}

LateSender LateSenderOf(const Context& context, const Analysis& analysis, const std::vector<P2pPair>& pairs,
                        const std::vector<std::int64_t>& costs_ns, std::int32_t waiting) {
  LateSender late;
  late.pair = HeaviestOf(pairs, waiting, &P2pPair::destination, &P2pPair::late_sender_ns);
  if (late.pair == nullptr) return late;
  for (const P2pPair& pair : pairs)
    if (pair.destination == waiting && pair.late_sender_ns > 0) late.all.push_back(&pair);
  late.chain = ChainFrom(context, pairs, costs_ns, waiting, late.pair->source);
  // Of ranks that wait for each other in a row, each is late for the same reason: the end of the row.
  if (late.all.size() < 2 || late.chain.size() > 2) return late;

  std::map<std::int32_t, std::int64_t> on_path_ns;
  for (const CriticalShare& share : analysis.critical_path) on_path_ns[share.rank] += share.ns;
  std::int64_t sum = 0;
  const P2pPair* last = late.pair;
  for (const P2pPair* pair : late.all) {
    sum += on_path_ns[pair->source];
    if (on_path_ns[pair->source] > on_path_ns[last->source]) last = pair;
  }
  if (sum == 0) return late;  // Nothing was replayed.
  if (!HalfOf(on_path_ns[late.pair->source], on_path_ns[last->source])) {
    late.pair = last;
    late.chain = ChainFrom(context, pairs, costs_ns, waiting, last->source);
  }
  late.on_path_ns = on_path_ns[late.pair->source];
  late.others_on_path_ns = sum - late.on_path_ns;
  late.decides = static_cast<double>(late.on_path_ns) >= rules::kLateSenderPathShare * static_cast<double>(sum);
  return late;
}

}  // namespace lockstep::analysis
