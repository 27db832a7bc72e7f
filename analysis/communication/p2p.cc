// Point-to-point messages: how much each rank sends to each other rank, and which ranks wait for which.

#include <algorithm>
#include <numeric>
#include <set>

#include "analysis/choose_findings.h"
#include "analysis/communication/late_sender.h"
#include "analysis/core/source.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {
namespace {

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
  if (pairs.size() <= rules::kP2pPairsListed) return pairs;
  std::vector<std::size_t> order(pairs.size());
  std::set<std::size_t> chosen;
  const auto choose = [&](auto&& weight) {
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return weight(pairs[a]) > weight(pairs[b]); });
    for (std::size_t i = 0; i < rules::kP2pPairsListed; ++i)
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
std::vector<Clause> Meanwhile(const std::vector<std::int32_t>& chain) {
  if (chain.size() <= 2) return {};
  return {Say(Word::kP2pMeanwhile, {{"second", Index{chain[1]}},
                                    {"third", Index{chain[2]}},
                                    {"fourth", If(chain.size() == 4, Index{chain.back()})},
                                    {"last", If(chain.size() != 3 && chain.size() != 4, Index{chain.back()})}})};
}

// What the program itself calls, for advice.
struct Calls {
  bool gpu, mpi;
};

// How much longer the late rank of a pair computes than the one that waits for it, where that is most of the wait: it
// has more to do, or is slower, and whatever is posted earlier or later only moves the wait elsewhere. 0: it is not.
std::int64_t MoreWorkNs(const Context& context, const Analysis& analysis, std::int32_t late, std::int32_t waiting,
                        std::int64_t wait_ns) {
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
  return HalfOf(more_ns, wait_ns) ? more_ns : 0;
}

// An earlier message had already arrived during a good part of the wait.
bool OutOfOrder(const LateSender& late) {
  return late.decides && MuchOf(late.pair->wrong_order_ns, late.pair->late_sender_ns);
}

// Headline, evidence and advice of waiting for late senders. `part`: how much of the step.
void DescribeSender(const LateSender& late, const Index& waiting, const Value& part, const Calls& calls,
                    Finding& finding) {
  const auto senders = static_cast<std::int64_t>(late.all.size());
  const bool compared = late.on_path_ns > 0;  // With the other senders, by the critical path.
  const Value sender = Ranks{{late.pair->source}};
  finding.rank = late.decides ? late.chain.back() : -1;
  finding.said.brief = {
      Say(Word::kSenderBrief, {{"waiting", waiting}, {"senders", late.decides ? sender : Value(Num{senders})}})};
  finding.said.headline = {
      late.decides ? Say(Word::kSender, {{"waiting", waiting}, {"late", Index{late.pair->source}}, {"part", part}})
                   : Say(Word::kSenders, {{"waiting", waiting}, {"senders", Index{senders}}, {"part", part}})};

  P2pPair sum;
  for (const P2pPair* pair : late.all) Add(sum, *pair);
  const P2pPair& shown = compared ? sum : *late.pair;
  std::vector<Clause>& evidence = finding.said.evidence;
  evidence = {Say(Word::kSenderEvidence,
                  {{"messages", Num{shown.messages}},
                   {"bytes", Size{shown.bytes}},
                   {"senders", compared ? Value(Num{senders}) : sender},
                   {"waiting", waiting},
                   {"late_messages", Num{shown.late_sender_count}},
                   {"each", Ns{shown.late_sender_ns / std::max<std::int64_t>(1, shown.late_sender_count)}}})};
  if (compared)
    evidence.push_back(late.decides ? Say(Word::kSenderOnPathEvidence, {{"late", Index{late.pair->source}},
                                                                        {"on_path", Ns{late.on_path_ns}},
                                                                        {"others", Ns{late.others_on_path_ns}}})
                                    : Say(Word::kSenderNoneLastEvidence));

  const Clause give = calls.gpu ? Say(Word::kSenderMicroBatchesAction, {{"waiting", waiting}})
                                : Say(Word::kSenderMeanwhileAction, {{"waiting", waiting}, {"mpi", calls.mpi}});
  const Index rank{late.chain.back()};
  finding.action_of_equal = {give};
  if (OutOfOrder(late)) {
    const double of_wait =
        static_cast<double>(late.pair->wrong_order_ns) / static_cast<double>(late.pair->late_sender_ns);
    evidence.push_back(Say(Word::kSenderOrderEvidence, {{"out_of_order", Share{of_wait}}}));
    finding.said.action = {Say(calls.gpu   ? Word::kSenderOrderOfSendingAction
                               : calls.mpi ? Word::kSenderWaitanyAction
                                           : Word::kSenderFirstAction)};
    finding.action_of_equal = finding.said.action;
    if (!calls.gpu) finding.action_of_equal.push_back(Say(Word::kSenderElseAction, {{"give", Clauses{{give}}}}));
  } else if (!late.decides) {
    finding.said.action = {give};
  } else if (calls.gpu) {
    finding.said.action = {Say(Word::kSenderLessAction, {{"rank", rank}, {"waiting", waiting}})};
  } else {
    finding.said.action = {Say(Word::kSenderEarlierAction, {{"rank", rank}, {"give", Clauses{{give}}}})};
  }
}

void DescribeReceiver(const P2pPair& pair, const Value& part, const Calls& calls, Finding& finding) {
  const Index waiting{pair.source}, late{pair.destination};
  finding.rank = pair.destination;
  finding.said.brief = {Say(Word::kReceiverBrief, {{"waiting", waiting}, {"late", late}})};
  finding.said.headline = {Say(Word::kReceiver, {{"waiting", waiting}, {"late", late}, {"part", part}})};
  finding.said.evidence = {
      Say(Word::kReceiverEvidence,
          {{"messages", Num{pair.messages}},
           {"bytes", Size{pair.bytes}},
           {"waiting", waiting},
           {"late", late},
           {"late_messages", Num{pair.late_receiver_count}},
           {"each", Ns{pair.late_receiver_ns / std::max<std::int64_t>(1, pair.late_receiver_count)}}})};
  finding.said.action = finding.action_of_equal = {
      Say(Word::kReceiverAction, {{"late", late}, {"mpi", calls.mpi}, {"waiting", waiting}})};
}

// To a finding about a rank for which `waiting` waits. The advice for where even work gains nothing, by the replay,
// stays.
void DescribeMoreWork(const Index& waiting, std::int64_t more_ns, bool advise, Finding& finding) {
  const Index rank{finding.rank};
  finding.said.headline.push_back(Say(Word::kP2pMoreWork, {{"rank", rank}, {"more", Ns{more_ns}}}));
  finding.said.evidence.push_back(
      Say(Word::kP2pMoreWorkEvidence, {{"rank", rank}, {"more", Ns{more_ns}}, {"waiting", waiting}}));
  if (advise) finding.said.action = {Say(Word::kP2pMoreWorkAction, {{"rank", rank}})};
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
    return static_cast<double>(cost) >= rules::kNameShare * static_cast<double>(whole);
  };
  if (!worth(costs[worst])) return;
  const std::int32_t waiting = context.ranks()[worst];
  const Value part =
      s.per_step
          ? Value(PartOf(s, costs[worst]))
          : Value(Clauses{{Say(Word::kP2pOfTime,
                               {{"wait", Share{static_cast<double>(costs[worst]) / static_cast<double>(whole)}}})}});
  std::vector<Clause> also;
  if (const auto others = std::count_if(costs.begin(), costs.end(), worth) - 1; others > 0)
    also = {Say(Word::kP2pOthers, {{"others", Num{others}}})};
  const Source source = SourceOf(context.timeline());
  const Calls calls{analysis.run.gpu_ranks > 0, source.imported.empty() && !source.torch};

  Finding finding;
  finding.id = kind.id;
  bool advise = !calls.gpu;  // A pipeline of GPUs may also be given more micro-batches, which its advice says.
  if (kind.sender) {
    const LateSender late = LateSenderOf(context, analysis, pairs, costs, waiting);
    if (late.pair == nullptr) return;
    advise = advise && !OutOfOrder(late);
    DescribeSender(late, {waiting}, part, calls, finding);
    if (late.decides) AddTo(also, Meanwhile(late.chain));
  } else {
    const P2pPair* pair = HeaviestOf(pairs, waiting, &P2pPair::source, &P2pPair::late_receiver_ns);
    if (pair == nullptr) return;
    DescribeReceiver(*pair, part, calls, finding);
  }
  AddTo(finding.said.headline, std::move(also));
  if (const std::int64_t more_ns =
          finding.rank < 0 ? 0 : MoreWorkNs(context, analysis, finding.rank, waiting, costs[worst]);
      more_ns > 0)
    DescribeMoreWork({waiting}, more_ns, advise, finding);
  const std::int64_t waited = kind.sender ? s.late_sender_ns : s.late_receiver_ns;
  SetPrice(s, calls.gpu ? std::min(waited, s.message_wait_ns) : waited, finding);
  finding.upper_bound = true;
  finding.explain.columns = {"source", "destination", "messages", "bytes", "late_sender_ns", "late_receiver_ns"};
  std::vector<const P2pPair*> rows;
  for (const P2pPair& each : pairs)
    if ((kind.sender ? each.late_sender_ns : each.late_receiver_ns) > 0) rows.push_back(&each);
  std::stable_sort(rows.begin(), rows.end(), [&](const P2pPair* a, const P2pPair* b) {
    return kind.sender ? a->late_sender_ns > b->late_sender_ns : a->late_receiver_ns > b->late_receiver_ns;
  });
  if (rows.size() > rules::kP2pPairsListed) rows.resize(rules::kP2pPairsListed);
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
