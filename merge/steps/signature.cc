#include <algorithm>
#include <cmath>
#include <compare>
#include <map>
#include <set>
#include <utility>

#include "core/hash.h"
#include "core/order_statistics.h"
#include "core/rules/common.h"
#include "merge/match/instance_key.h"
#include "merge/rules/match.h"
#include "merge/steps/steps.h"

namespace lockstep::merge {
namespace {

// The longest part of the sequence in which few of the positions differ from the one a period earlier.
Period LongestOf(const std::vector<std::uint64_t>& symbols, std::size_t length) {
  const std::int64_t agree_for_other = rules::kPeriodAgreeForOther;
  Period best{.length = length};
  std::int64_t sum = 0, most = 0;
  std::size_t begin = length;
  for (std::size_t i = length; i < symbols.size(); ++i) {
    if (sum <= 0) sum = 0, begin = i;
    sum += symbols[i] == symbols[i - length] ? 1 : -agree_for_other;
    if (sum > most) most = sum, best.first = begin - length, best.end = i + 1;
  }
  return best;
}

// Distances at which symbols in the middle come again: what holds most of the sequence holds these.
std::set<std::size_t> LikelyPeriods(const std::vector<std::uint64_t>& symbols) {
  const std::size_t n = symbols.size(), longest = std::min(n / rules::kRecurs, rules::kPeriodLongest);
  std::set<std::size_t> lengths;
  for (const std::size_t at : {n / 3, n / 2, n / 2 + 1, 2 * n / 3})
    for (std::size_t i = 1, found = 0; at + i < n && i <= longest && found < rules::kPeriodsTried; ++i)
      if (symbols[at + i] == symbols[at]) lengths.insert(i), ++found;
  return lengths;
}

struct Sequence {
  std::vector<std::uint64_t> symbols;
  std::vector<std::uint32_t> rows;  // Of one rank's collectives, in order of seq.
};

// A communicator (with NCCL: one function of it), whose operations are numbered together.
struct Numbered {
  std::uint64_t comm = 0;
  std::uint8_t function = 0;
  friend auto operator<=>(const Numbered&, const Numbered&) = default;
};

// The one with most instances among those that all ranks are in; comm 0 if none.
Numbered BusiestComm(const std::vector<MatchRank>& ranks, const MatchedCollectives& matched) {
  std::set<std::uint64_t> nccl;
  for (const MatchRank& rank : ranks)
    for (std::size_t i = 0; i < rank.tables->comms.rows(); ++i)
      if (rank.tables->comms.kind[i] == kNcclCommKind) nccl.insert(rank.tables->comms.global_id[i]);
  std::map<Numbered, std::size_t> instances;
  const schema::TlCollectives& c = matched.collectives;
  for (std::size_t i = 0; i < c.rows(); ++i)
    if (c.expected[i] >= ranks.size())
      ++instances[{c.comm_id[i], nccl.contains(c.comm_id[i]) ? c.kind[i] : std::uint8_t{0}}];
  Numbered busiest;
  std::size_t most = 0;
  for (const auto& [comm, count] : instances)
    if (count > most) busiest = comm, most = count;
  return busiest;
}

Sequence SequenceOf(const MatchRank& rank, Numbered by) {
  Sequence sequence;
  const schema::Collectives& c = rank.tables->collectives;
  const schema::Comms& comms = rank.tables->comms;
  for (std::uint32_t row = 0; row < c.rows(); ++row)
    if (c.comm[row] < comms.rows() && comms.global_id[c.comm[row]] == by.comm &&
        KeyFunction(comms, c.comm[row], c.kind[row]) == by.function && c.end_ns[row] != schema::kNoTime)
      sequence.rows.push_back(row);
  SortByNumber(c, sequence.rows);
  for (const std::uint32_t row : sequence.rows) {
    Hash64 hash;
    hash.Add(c.kind[row]);
    hash.Add(c.bytes[row]);
    sequence.symbols.push_back(hash.value());
  }
  return sequence;
}

// From a rank's first operation to its last.
std::int64_t Communicating(const schema::RankTables& tables) {
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  const auto add = [&](const auto& rows) {
    for (std::size_t i = 0; i < rows.rows(); ++i) {
      first = std::min(first, rows.begin_ns[i]);
      last = std::max(last, rows.end_ns[i] == schema::kNoTime ? rows.begin_ns[i] : rows.end_ns[i]);
    }
  };
  add(tables.collectives);
  add(tables.p2p);
  return std::max<std::int64_t>(0, last - first);
}

// The collectives of the reference after each of which a step begins: those before the longest pause within a period,
// by its median over the periods, where one step's communication is over and the next step has not begun its own.
std::vector<std::size_t> BoundsOfPeriod(const schema::Collectives& c, const Sequence& reference, const Period& period) {
  std::size_t phase = 0;
  std::int64_t longest = -1;
  std::int64_t latest_end = schema::kNoTime;
  std::vector<std::vector<std::int64_t>> pauses(period.length);
  for (std::size_t i = period.first; i < period.end; ++i) {
    if (i > period.first)
      pauses[(i - period.first) % period.length].push_back(c.begin_ns[reference.rows[i]] - latest_end);
    latest_end = std::max(latest_end, c.end_ns[reference.rows[i]]);
  }
  for (std::size_t p = 0; p < period.length; ++p) {
    if (pauses[p].empty()) continue;
    if (const std::int64_t usual = UpperMedian(pauses[p]); usual > longest) longest = usual, phase = p;
  }
  std::vector<std::size_t> after;
  for (std::size_t i = period.first + phase; i <= period.end; ++i)
    if ((i - period.first) % period.length == phase && i > 0) after.push_back(i - 1);
  return after;
}

bool HoldTheTime(const std::vector<MatchRank>& ranks, const std::vector<std::vector<RankStep>>& steps) {
  double covered_ns = 0, ordinary_ns = 0, all_ns = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    all_ns += static_cast<double>(Communicating(*ranks[r].tables));
    std::vector<std::int64_t> lengths;
    for (const RankStep& step : steps[r]) lengths.push_back(step.window.end - step.window.begin);
    std::ranges::sort(lengths);
    const std::size_t ordinary = lengths.size() - lengths.size() / rules::kPeriodLongestOneIn;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      covered_ns += static_cast<double>(lengths[i]);
      if (i < ordinary) ordinary_ns += static_cast<double>(lengths[i]);
    }
  }
  // Nothing but steps is judged. A few repetitions of hundreds in which most of the time passes are no steps but what
  // the run is about.
  return NearlyAllOf(covered_ns, all_ns) && HalfOf(ordinary_ns, all_ns);
}

// Steps of one job are of one order of length.
bool MakeSense(const std::vector<std::vector<RankStep>>& steps) {
  for (const std::vector<RankStep>& of_rank : steps) {
    std::vector<std::int64_t> lengths_ns;
    for (const RankStep& step : of_rank) lengths_ns.push_back(step.window.end - step.window.begin);
    if (lengths_ns.empty()) continue;
    const auto short_ns = static_cast<double>(LowerQuantile(lengths_ns, 0.1));
    if (*std::ranges::min_element(lengths_ns) <= 0 ||
        static_cast<double>(LowerQuantile(std::move(lengths_ns), 0.99)) >= rules::kStepsApart * short_ns)
      return false;
  }
  return true;
}

// Every n-th value from `first` on.
std::vector<std::int64_t> EachOf(const std::vector<std::int64_t>& values, std::size_t first, std::size_t n) {
  std::vector<std::int64_t> each;
  for (std::size_t i = first; i < values.size(); i += n) each.push_back(values[i]);
  return each;
}

// Two-sample test of Kolmogorov and Smirnov: the largest distance of the distributions, against what chance shows in
// one of a thousand cases (asymptotic), and what matters: of thousands of repetitions the least difference is no
// chance.
bool Differ(std::vector<std::int64_t> a, std::vector<std::int64_t> b) {
  if (a.empty() || b.empty()) return false;
  std::ranges::sort(a);
  std::ranges::sort(b);
  const auto na = static_cast<double>(a.size()), nb = static_cast<double>(b.size());
  double largest = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const std::int64_t value = std::min(a[i], b[j]);
    while (i < a.size() && a[i] == value) ++i;
    while (j < b.size() && b[j] == value) ++j;
    largest = std::max(largest, std::abs(static_cast<double>(i) / na - static_cast<double>(j) / nb));
  }
  return largest > std::max(rules::kTurnsApart, rules::kSmirnov999 * std::sqrt((na + nb) / (na * nb)));
}

// Of each repetition: from its first operation's begin to the next one's, and how long its operations last.
std::size_t TurnsOf(const schema::Collectives& c, const Sequence& reference, const Period& period) {
  std::vector<std::int64_t> lengths_ns, moving_ns;
  for (std::size_t i = period.first; i + period.length <= period.end; i += period.length) {
    std::int64_t moving = 0;
    for (std::size_t k = i; k < i + period.length; ++k)
      moving += c.end_ns[reference.rows[k]] - c.begin_ns[reference.rows[k]];
    moving_ns.push_back(moving);
    if (i + period.length < period.end)
      lengths_ns.push_back(c.begin_ns[reference.rows[i + period.length]] - c.begin_ns[reference.rows[i]]);
  }
  return TurnsInTime(lengths_ns, moving_ns);
}

}  // namespace

Period FindPeriod(const std::vector<std::uint64_t>& symbols) {
  for (const std::size_t length : LikelyPeriods(symbols)) {
    const Period period = LongestOf(symbols, length);
    const std::size_t all = period.end - period.first;
    if (all >= rules::kRecurs * length && all * 100 >= symbols.size() * rules::kPeriodPercent) return period;
  }
  return {};
}

std::size_t TurnsInTime(const std::vector<std::int64_t>& lengths_ns, const std::vector<std::int64_t>& moving_ns) {
  std::size_t turns = 1;
  for (std::size_t times = 2; times <= rules::kTurnsInTimeMost;) {
    bool alike = true;
    for (const auto* values : {&lengths_ns, &moving_ns})
      for (std::size_t first = 0; first < turns && alike; ++first)
        for (std::size_t other = 1; other < times && alike; ++other)
          alike = !Differ(EachOf(*values, first, turns * times), EachOf(*values, first + other * turns, turns * times));
    if (alike)
      ++times;
    else
      turns *= times;
  }
  return turns;
}

FoundSteps StepsFromSignature(const std::vector<MatchRank>& ranks, const MatchedCollectives& matched) {
  FoundSteps found;
  std::vector<std::vector<RankStep>>& steps = found.ranks;
  steps.resize(ranks.size());
  const Numbered comm = BusiestComm(ranks, matched);
  if (comm.comm == 0) return found;
  const Sequence reference = SequenceOf(ranks[0], comm);
  const schema::Collectives& c = ranks[0].tables->collectives;
  Period period = FindPeriod(reference.symbols);
  if (period.length == 0) return found;
  period.length *= TurnsOf(c, reference, period);
  if (std::ranges::all_of(reference.rows,
                          [&](std::uint32_t row) { return c.mode[row] == schema::Code(CollectiveMode::kGpu); }))
    found.times = StepTimes::kFoundOnGpu;
  // A step begins after such a collective; the same instance bounds it on every rank.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> bounds;
  for (const std::size_t i : BoundsOfPeriod(c, reference, period))
    bounds.emplace_back(c.seq[reference.rows[i]], c.start[reference.rows[i]]);

  std::int64_t latest_end = schema::kNoTime;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const schema::Collectives& own = ranks[r].tables->collectives;
    const Sequence sequence = SequenceOf(ranks[r], comm);
    std::size_t at = 0;
    std::int64_t index = 0, begin = schema::kNoTime;
    latest_end = schema::kNoTime;
    for (std::size_t b = 0; b < bounds.size(); ++b) {
      for (; at < sequence.rows.size() &&
             std::pair(own.seq[sequence.rows[at]], own.start[sequence.rows[at]]) <= bounds[b];
           ++at)
        latest_end = std::max(latest_end, own.end_ns[sequence.rows[at]]);
      const bool there =
          at > 0 && std::pair(own.seq[sequence.rows[at - 1]], own.start[sequence.rows[at - 1]]) == bounds[b];
      if (b > 0) {
        if (there && begin != schema::kNoTime) steps[r].push_back({index, {begin, latest_end}, true, false, -1});
        ++index;
      }
      begin = there ? latest_end : schema::kNoTime;
    }
  }
  if (!HoldTheTime(ranks, steps) || !MakeSense(steps)) steps.assign(ranks.size(), {});
  return found;
}

}  // namespace lockstep::merge
