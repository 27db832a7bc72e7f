// Point-to-point messages: how much each rank sends to each other rank, and which ranks wait for which.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"

namespace lockstep::analysis {
namespace {

// The number of pairs that a reader can look at, by bytes and by waits each; all pairs are in p2p_pairs.
constexpr std::size_t kMaxPairs = 100;

std::int64_t Waits(const P2pPair& pair) { return pair.late_sender_ns + pair.late_receiver_ns; }

std::vector<P2pPair> AllPairs(const schema::TlP2pPairs& t) {
  std::vector<P2pPair> pairs(t.rows());
  for (std::size_t i = 0; i < t.rows(); ++i)
    pairs[i] = {static_cast<std::int64_t>(t.messages[i]),
                t.bytes[i],
                static_cast<std::int64_t>(t.matched[i]),
                static_cast<std::int64_t>(t.unmatched[i]),
                t.late_sender_ns[i],
                static_cast<std::int64_t>(t.late_sender_count[i]),
                t.wrong_order_ns[i],
                t.late_receiver_ns[i],
                static_cast<std::int64_t>(t.late_receiver_count[i]),
                static_cast<std::int64_t>(t.below_resolution[i]),
                t.source_rank[i],
                t.destination_rank[i]};
  return pairs;
}

void Add(P2pPair& sum, const P2pPair& pair) {
  sum.messages += pair.messages, sum.bytes += pair.bytes;
  sum.matched += pair.matched, sum.unmatched += pair.unmatched;
  sum.late_sender_ns += pair.late_sender_ns, sum.late_sender_count += pair.late_sender_count;
  sum.wrong_order_ns += pair.wrong_order_ns;
  sum.late_receiver_ns += pair.late_receiver_ns, sum.late_receiver_count += pair.late_receiver_count;
  sum.below_resolution += pair.below_resolution;
}

// The heaviest pairs by bytes and by waits, in the order of the matrix.
std::vector<P2pPair> Heaviest(const std::vector<P2pPair>& pairs) {
  if (pairs.size() <= kMaxPairs) return pairs;
  std::vector<std::size_t> order(pairs.size());
  std::set<std::size_t> chosen;
  const auto choose = [&](auto&& weight) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return weight(pairs[a]) > weight(pairs[b]); });
    for (std::size_t i = 0; i < kMaxPairs; ++i)
      if (weight(pairs[order[i]]) > 0) chosen.insert(order[i]);
  };
  choose([](const P2pPair& pair) { return pair.bytes; });
  choose([](const P2pPair& pair) { return static_cast<std::uint64_t>(Waits(pair)); });
  std::vector<P2pPair> kept;
  for (const std::size_t i : chosen) kept.push_back(pairs[i]);
  return kept;
}

// Per rank (position): the lower median over usable steps, or the whole window of runs without steps.
template <typename Column>
std::vector<std::int64_t> PerRank(const Context& context, const Analysis& analysis, const Column& of_steps,
                                  std::int64_t RankRow::*of_window) {
  std::vector<std::int64_t> costs;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    if (!analysis.summary.per_step) {
      costs.push_back(p < analysis.ranks.size() ? analysis.ranks[p].*of_window : 0);
      continue;
    }
    std::vector<std::int64_t> values;
    const auto& cells = context.tables().step_ranks;
    const bool gpu = context.tables().ranks.gpu[context.RankRow(p)] != 0;
    for (const std::size_t step : context.usable_steps())
      if (const std::size_t cell = context.Cell(step, p); cell != kNowhere)
        // A GPU continues to compute while one of its streams waits: only what appears as idle or exposed time costs.
        values.push_back(gpu ? std::min(of_steps[cell], cells.idle_ns[cell] + cells.exposed_unsplit_ns[cell])
                             : of_steps[cell]);
    costs.push_back(values.empty() ? 0 : LowerMedian(std::move(values)));
  }
  return costs;
}

// The partner that causes most of a rank's waits of one kind; null without waits.
const P2pPair* Heaviest(const std::vector<P2pPair>& pairs, std::int32_t rank, std::int32_t P2pPair::*waits,
                        std::int64_t P2pPair::*cost) {
  const P2pPair* most = nullptr;
  for (const P2pPair& pair : pairs)
    if (pair.*waits == rank && pair.*cost > 0 && (most == nullptr || pair.*cost > most->*cost)) most = &pair;
  return most;
}

// The rank at the end of the chain of those that wait for each other's messages: `late` cannot send earlier while it
// waits for another rank for at least half as long as it is waited for. `costs`: what each rank waits, by position.
std::vector<std::int32_t> ChainFrom(const Context& context, const std::vector<P2pPair>& pairs,
                                    const std::vector<std::int64_t>& costs, std::int32_t waiting, std::int32_t late) {
  std::vector<std::int32_t> chain{waiting, late};
  for (;;) {
    const std::size_t before = context.Position(chain[chain.size() - 2]), at = context.Position(chain.back());
    if (before == kNowhere || at == kNowhere || 2 * costs[at] < costs[before]) return chain;
    const P2pPair* pair = Heaviest(pairs, chain.back(), &P2pPair::destination, &P2pPair::late_sender_ns);
    if (pair == nullptr || std::find(chain.begin(), chain.end(), pair->source) != chain.end()) return chain;
    chain.push_back(pair->source);
  }
}

struct Kind {
  FindingId id;
  bool sender;  // True: late senders; false: late receivers.
};

void Find(const Context& context, Analysis& analysis, const std::vector<P2pPair>& pairs, const Kind& kind) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  const auto& cells = context.tables().step_ranks;
  const std::vector<std::int64_t> costs =
      kind.sender ? PerRank(context, analysis, cells.late_sender_ns, &RankRow::late_sender_ns)
                  : PerRank(context, analysis, cells.late_receiver_ns, &RankRow::late_receiver_ns);
  if (costs.empty() || whole <= 0) return;
  const auto worst = static_cast<std::size_t>(std::max_element(costs.begin(), costs.end()) - costs.begin());
  if (static_cast<double>(costs[worst]) < kNameShare * static_cast<double>(whole)) return;
  const std::int32_t waiting = context.ranks()[worst];
  const P2pPair* pair = kind.sender ? Heaviest(pairs, waiting, &P2pPair::destination, &P2pPair::late_sender_ns)
                                    : Heaviest(pairs, waiting, &P2pPair::source, &P2pPair::late_receiver_ns);
  if (pair == nullptr) return;
  const std::int32_t late = kind.sender ? pair->source : pair->destination;
  const std::vector<std::int32_t> chain =
      kind.sender ? ChainFrom(context, pairs, costs, waiting, late) : std::vector{waiting, late};
  std::string meanwhile;  // Whom those wait for who are waited for.
  for (std::size_t i = 2; i < chain.size(); ++i)
    meanwhile += i == 2 ? fmt::format("; rank {} waits for rank {} meanwhile", chain[1], chain[2])
                        : fmt::format(", that for rank {}", chain[i]);
  const auto others = std::count_if(costs.begin(), costs.end(),
                                    [&](std::int64_t cost) {
                                      return static_cast<double>(cost) >= kNameShare * static_cast<double>(whole);
                                    }) -
                      1;
  const std::string share = s.per_step ? fmt::format("{} of each {} step", Duration(costs[worst]), Duration(whole))
                                       : fmt::format("{} of its time", Percent(costs[worst], whole));
  Finding finding;
  finding.id = kind.id;
  finding.headline =
      kind.sender
          ? fmt::format(
                "Rank {} waits for messages that rank {} has not begun to send: {}{}.", waiting, late, share,
                others > 0 ? fmt::format(", and {} wait as well", Plural(others, "rank")) + meanwhile : meanwhile)
          : fmt::format("Rank {} waits in sends until rank {} posts its receives: {}{}.", waiting, late, share,
                        others > 0 ? fmt::format(", and {} wait as well", Plural(others, "rank")) : "");
  finding.brief = kind.sender ? fmt::format("rank {} waits for rank {} to send", waiting, late)
                              : fmt::format("rank {} waits for rank {} to receive", waiting, late);
  const bool gpu = analysis.run.gpu_ranks > 0;
  const Source source = SourceOf(context.timeline());
  const bool mpi = source.imported.empty() && !source.torch;  // The MPI calls are the program's own.
  const std::int64_t waited = kind.sender ? s.late_sender_ns : s.late_receiver_ns;
  if (s.per_step)
    finding.saves_ns_per_step = gpu ? std::min(waited, s.terms.idle_ns + s.terms.exposed_unsplit_ns) : waited;
  else
    finding.saves_share = static_cast<double>(waited) / static_cast<double>(whole);
  finding.upper_bound = true;
  finding.confidence = 0.7;
  finding.rank = chain.back();
  const std::int64_t ns = kind.sender ? pair->late_sender_ns : pair->late_receiver_ns;
  const std::int64_t count = kind.sender ? pair->late_sender_count : pair->late_receiver_count;
  finding.evidence =
      fmt::format("{} ({} in all) from rank {} to rank {}: {} {}, {} on average", Plural(pair->messages, "message"),
                  Bytes(pair->bytes), pair->source, pair->destination, Count(count),
                  !kind.sender ? "found no receive posted"
                  : count == 1 ? "began after its receiver waited"
                               : "began after their receiver waited",
                  Duration(ns / std::max<std::int64_t>(1, count)));
  if (kind.sender && pair->wrong_order_ns * 4 > ns) {
    finding.evidence += fmt::format("; during {} of the wait, an earlier message had already arrived",
                                    Percent(pair->wrong_order_ns, ns));
    finding.action = gpu   ? "receive in the order of sending, or on a stream per partner"
                     : mpi ? "receive in the order of arrival: MPI_Waitany over posted receives, or MPI_ANY_SOURCE"
                           : "receive in the order of arrival: post all receives, wait for whichever comes first";
  } else if (gpu) {
    finding.action = fmt::format(
        "give rank {} less to do before it, or rank {} more that needs no message (more micro-batches, another "
        "schedule of the pipeline)",
        chain.back(), waiting);
  } else if (kind.sender) {
    finding.action =
        fmt::format("send earlier on rank {} or give it less to do before; let rank {} compute between {} and {}",
                    chain.back(), waiting, mpi ? "MPI_Irecv" : "irecv", mpi ? "MPI_Wait" : "wait");
  } else {
    finding.action = fmt::format("post the receives earlier on rank {} ({} before its work), or use {} on rank {}",
                                 late, mpi ? "MPI_Irecv" : "irecv", mpi ? "MPI_Isend" : "isend", waiting);
  }
  finding.explain.columns = {"source", "destination", "messages", "bytes", "late_sender_ns", "late_receiver_ns"};
  std::vector<const P2pPair*> rows;
  for (const P2pPair& each : pairs)
    if ((kind.sender ? each.late_sender_ns : each.late_receiver_ns) > 0) rows.push_back(&each);
  std::stable_sort(rows.begin(), rows.end(), [&](const P2pPair* a, const P2pPair* b) {
    return kind.sender ? a->late_sender_ns > b->late_sender_ns : a->late_receiver_ns > b->late_receiver_ns;
  });
  if (rows.size() > kMaxPairs) rows.resize(kMaxPairs);
  for (const P2pPair* each : rows)
    finding.explain.rows.push_back({each->source, each->destination, each->messages,
                                    static_cast<std::int64_t>(each->bytes), each->late_sender_ns,
                                    each->late_receiver_ns});
  analysis.findings.push_back(std::move(finding));
}

}  // namespace

void TabulateP2p(const Context& context, Analysis& analysis) {
  const std::vector<P2pPair> pairs = AllPairs(context.tables().p2p_pairs);
  P2p& p2p = analysis.p2p;
  p2p.pair_count = static_cast<std::int64_t>(pairs.size());
  p2p.unplaced = context.timeline().MetaNumber("p2p_unplaced", 0);
  for (const P2pPair& pair : pairs) Add(p2p.total, pair);
  p2p.pairs = Heaviest(pairs);
  p2p.truncated = p2p.pairs.size() < pairs.size();
  Find(context, analysis, pairs, {FindingId::kP2pLateSender, true});
  Find(context, analysis, pairs, {FindingId::kP2pLateReceiver, false});
}

}  // namespace lockstep::analysis
