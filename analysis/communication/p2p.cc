// Point-to-point messages: how much each rank sends to each other rank, and which ranks wait for which.

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "analysis/choose_findings.h"
#include "analysis/communication/late_sender.h"
#include "analysis/core/format.h"
#include "analysis/core/source.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

// The number of pairs that a reader can look at, by bytes and by waits each; all pairs are in p2p_pairs.
constexpr std::size_t kMaxPairs = 100;

std::int64_t WaitNs(const P2pPair& pair) { return pair.late_sender_ns + pair.late_receiver_ns; }

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
  choose([](const P2pPair& pair) { return static_cast<std::uint64_t>(WaitNs(pair)); });
  std::vector<P2pPair> kept;
  for (const std::size_t i : chosen) kept.push_back(pairs[i]);
  return kept;
}

// Per rank (position): the mean over usable steps, or the whole window of runs without steps.
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
        // A GPU continues to compute while one of its streams waits: only what appears as exposed time costs.
        values.push_back(gpu ? std::min(of_steps[cell], cells.message_wait_ns[cell]) : of_steps[cell]);
    costs.push_back(std::max<std::int64_t>(0, merge::MeanLength(values)));
  }
  return costs;
}

struct Kind {
  FindingId id;
  bool sender;  // True: late senders; false: late receivers.
};

// "; rank 1 waits for rank 2 meanwhile, that for rank 3": of ranks that wait for each other, each for the one behind
// it.
std::string Meanwhile(const std::vector<std::int32_t>& chain) {
  std::string text;
  if (chain.size() > 2) text += fmt::format("; rank {} waits for rank {} meanwhile", chain[1], chain[2]);
  if (chain.size() > 4) text += fmt::format(", and so on to rank {}", chain.back());
  if (chain.size() == 4) text += fmt::format(", that for rank {}", chain.back());
  return text;
}

// What the program itself calls, for advice.
struct Calls {
  bool gpu, mpi;
};

// How much longer the late rank of a pair computes than the one that waits for it, where that is most of the wait: it
// has more to do, or is slower, and whatever is posted earlier or later only moves the wait elsewhere. 0: it is not.
std::int64_t MoreWorkNs(const Context& context, const Analysis& analysis, std::int32_t late, std::int32_t waiting,
                        std::int64_t wait_ns) {
  constexpr double kExplains = 0.5;
  const auto terms_of = [&](std::int32_t rank) -> const IdentityTerms* {
    const std::size_t p = context.Position(rank);
    if (p == kNowhere || p >= analysis.ranks.size()) return nullptr;
    const RankRow& row = analysis.ranks[p];
    if (!analysis.summary.per_step) return &row.terms;
    return row.step_terms ? &*row.step_terms : nullptr;
  };
  const IdentityTerms *busy = terms_of(late), *idle = terms_of(waiting);
  if (busy == nullptr || idle == nullptr || busy->device_unknown || idle->device_unknown) return 0;
  const std::int64_t more_ns = busy->Own() - idle->Own();
  return static_cast<double>(more_ns) >= kExplains * static_cast<double>(wait_ns) ? more_ns : 0;
}

// An earlier message had already arrived during a good part of the wait.
bool OutOfOrder(const LateSender& late) {
  return late.decides && late.pair->wrong_order_ns * 4 > late.pair->late_sender_ns;
}

// Headline, evidence and advice of waiting for late senders. `share`: how much of the step.
void DescribeSender(const LateSender& late, std::int32_t waiting, const std::string& share, const Calls& calls,
                    Finding& finding) {
  const std::size_t senders = late.all.size();
  const bool compared = late.on_path_ns > 0;  // With the other senders, by the critical path.
  const std::string whose =
      late.decides ? fmt::format("rank {} has", late.pair->source) : fmt::format("{} ranks have", senders);
  finding.rank = late.decides ? late.chain.back() : -1;
  finding.brief = fmt::format("rank {} waits for {} to send", waiting,
                              late.decides ? fmt::format("rank {}", late.pair->source) : Plural(senders, "rank"));
  finding.headline = fmt::format("Rank {} waits for messages that {} not sent yet: {}", waiting, whose, share);

  P2pPair sum;
  for (const P2pPair* pair : late.all) Add(sum, *pair);
  const P2pPair& shown = compared ? sum : *late.pair;
  finding.evidence =
      fmt::format("{} ({} in all) from {} to rank {}: {} came after {} receiver waited, {} on average",
                  Plural(shown.messages, "message"), Bytes(shown.bytes),
                  compared ? Plural(senders, "rank") : fmt::format("rank {}", late.pair->source), waiting,
                  Count(shown.late_sender_count), shown.late_sender_count == 1 ? "its" : "their",
                  Duration(shown.late_sender_ns / std::max<std::int64_t>(1, shown.late_sender_count)));
  if (compared)
    finding.evidence +=
        late.decides ? fmt::format("; of them rank {} is on the critical path for {} per step, the others for {}",
                                   late.pair->source, Duration(late.on_path_ns), Duration(late.others_on_path_ns))
                     : "; none of them is the last as a rule";

  const std::string meanwhile =
      calls.gpu
          ? fmt::format("rank {} more that needs no message (more micro-batches, another schedule of the pipeline)",
                        waiting)
          : fmt::format("rank {} work to do between {} and {}", waiting, calls.mpi ? "MPI_Irecv" : "irecv",
                        calls.mpi ? "MPI_Wait" : "wait");
  finding.action_of_equal = fmt::format("give {}", meanwhile);
  if (OutOfOrder(late)) {
    finding.evidence += fmt::format("; during {} of the wait, an earlier message had already arrived",
                                    Percent(late.pair->wrong_order_ns, late.pair->late_sender_ns));
    finding.action = calls.gpu ? "receive in the order of sending, or on a stream per partner"
                     : calls.mpi
                         ? "receive in the order of arrival: MPI_Waitany over posted receives, or MPI_ANY_SOURCE"
                         : "receive in the order of arrival: post all receives, wait for whichever comes first";
    finding.action_of_equal =
        finding.action + (calls.gpu ? "" : ", if each message has work of its own; else " + finding.action_of_equal);
  } else if (!late.decides) {
    finding.action = finding.action_of_equal;
  } else if (calls.gpu) {
    finding.action = fmt::format("give rank {} less to do before it, or {}", late.chain.back(), meanwhile);
  } else {
    finding.action =
        fmt::format("send earlier on rank {} (less to do before it), or give {}", late.chain.back(), meanwhile);
  }
}

void DescribeReceiver(const P2pPair& pair, const std::string& share, const Calls& calls, Finding& finding) {
  const std::int32_t waiting = pair.source, late = pair.destination;
  finding.rank = late;
  finding.brief = fmt::format("rank {} waits for rank {} to receive", waiting, late);
  finding.headline = fmt::format("Rank {} waits in sends until rank {} receives them: {}", waiting, late, share);
  finding.evidence =
      fmt::format("{} ({} in all) from rank {} to rank {}: {} waited for that, {} on average",
                  Plural(pair.messages, "message"), Bytes(pair.bytes), waiting, late, Count(pair.late_receiver_count),
                  Duration(pair.late_receiver_ns / std::max<std::int64_t>(1, pair.late_receiver_count)));
  finding.action = finding.action_of_equal =
      fmt::format("post the receives earlier on rank {} ({} before its work), or use {} on rank {}", late,
                  calls.mpi ? "MPI_Irecv" : "irecv", calls.mpi ? "MPI_Isend" : "isend", waiting);
}

// To a finding about `late`, for which `waiting` waits. The advice for where even work gains nothing, by the replay,
// stays.
void DescribeMoreWork(std::int32_t late, std::int32_t waiting, std::int64_t more_ns, bool advise, Finding& finding) {
  finding.headline += fmt::format("; rank {} computes {} longer", late, Duration(more_ns));
  finding.evidence += fmt::format("; rank {} computes {} longer than rank {}", late, Duration(more_ns), waiting);
  if (!advise) return;
  finding.action = fmt::format(
      "give rank {} less to do, or find out why it is slower: to send or receive earlier only moves the wait", late);
}

void FindKind(const Context& context, Analysis& analysis, const std::vector<P2pPair>& pairs, const Kind& kind) {
  const Summary& s = analysis.summary;
  const std::int64_t whole = s.terms.Sum();
  const auto& cells = context.tables().step_ranks;
  const std::vector<std::int64_t> costs =
      kind.sender ? PerRank(context, analysis, cells.late_sender_ns, &RankRow::late_sender_ns)
                  : PerRank(context, analysis, cells.late_receiver_ns, &RankRow::late_receiver_ns);
  if (costs.empty() || whole <= 0) return;
  const auto worst = static_cast<std::size_t>(std::max_element(costs.begin(), costs.end()) - costs.begin());
  const auto worth = [&](std::int64_t cost) {
    return static_cast<double>(cost) >= kNameShare * static_cast<double>(whole);
  };
  if (!worth(costs[worst])) return;
  const std::int32_t waiting = context.ranks()[worst];
  const std::string share = s.per_step ? fmt::format("{} of each {} step", Duration(costs[worst]), Duration(whole))
                                       : fmt::format("{} of its time", Percent(costs[worst], whole));
  const auto others = std::count_if(costs.begin(), costs.end(), worth) - 1;
  const std::string also = others > 0 ? fmt::format(", and {} wait as well", Plural(others, "rank")) : "";
  const Source source = SourceOf(context.timeline());
  const Calls calls{analysis.run.gpu_ranks > 0, source.imported.empty() && !source.torch};

  Finding finding;
  finding.id = kind.id;
  bool advise = !calls.gpu;  // A pipeline of GPUs may also be given more micro-batches, which its advice says.
  if (kind.sender) {
    const LateSender late = LateSenderOf(context, analysis, pairs, costs, waiting);
    if (late.pair == nullptr) return;
    advise = advise && !OutOfOrder(late);
    DescribeSender(late, waiting, share, calls, finding);
    finding.headline += also + (late.decides ? Meanwhile(late.chain) : "");
  } else {
    const P2pPair* pair = HeaviestOf(pairs, waiting, &P2pPair::source, &P2pPair::late_receiver_ns);
    if (pair == nullptr) return;
    DescribeReceiver(*pair, share, calls, finding);
    finding.headline += also;
  }
  if (const std::int64_t more_ns =
          finding.rank < 0 ? 0 : MoreWorkNs(context, analysis, finding.rank, waiting, costs[worst]);
      more_ns > 0)
    DescribeMoreWork(finding.rank, waiting, more_ns, advise, finding);
  finding.headline += ".";
  const std::int64_t waited = kind.sender ? s.late_sender_ns : s.late_receiver_ns;
  SetPrice(s, calls.gpu ? std::min(waited, s.message_wait_ns) : waited, finding);
  finding.upper_bound = true;
  finding.confidence = 0.7;
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
  FindKind(context, analysis, pairs, {FindingId::kP2pLateSender, true});
  FindKind(context, analysis, pairs, {FindingId::kP2pLateReceiver, false});
}

}  // namespace lockstep::analysis
