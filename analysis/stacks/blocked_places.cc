#include "analysis/stacks/blocked_places.h"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "analysis/core/step_names.h"
#include "analysis/stacks/job_frame.h"
#include "analysis/words/render.h"
#include "core/printed.h"
#include "core/rules/common.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"
#include "trace/file/strings.h"

namespace lockstep::analysis {
namespace {

using Kind = schema::BlockedKind;

// The program's ranges that are open around moments which come in order.
class RangesAround {
 public:
  RangesAround(const schema::RankTables& tables, std::uint32_t thread) : t_(tables) {
    const schema::Ranges& ranges = t_.ranges;
    for (std::uint32_t i = 0; i < ranges.rows(); ++i)
      if (ranges.thread[i] == thread && ranges.source[i] <= schema::RangeSource::kTorch &&
          ranges.kind[i] == schema::RangeKind::kPushPop && !IsProfilerStep(trace::TextOf(t_, ranges.name[i])))
        rows_.push_back(i);
    std::stable_sort(rows_.begin(), rows_.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return ranges.begin_ns[a] < ranges.begin_ns[b]; });
  }
  // The innermost one; "" none.
  std::string_view At(std::int64_t time_ns) {
    const schema::Ranges& ranges = t_.ranges;
    for (; next_ < rows_.size() && ranges.begin_ns[rows_[next_]] <= time_ns; ++next_) open_.push_back(rows_[next_]);
    while (!open_.empty() && ranges.begin_ns[open_.back()] + ranges.duration_ns[open_.back()] <= time_ns)
      open_.pop_back();
    return open_.empty() ? std::string_view() : trace::TextOf(t_, ranges.name[open_.back()]);
  }

 private:
  const schema::RankTables& t_;
  std::vector<std::uint32_t> rows_, open_;
  std::size_t next_ = 0;
};

std::string LastOf(std::string_view path) { return std::string(path.substr(path.rfind('/') + 1)); }

// What takes most of the time, if it takes half of it.
std::string MainOf(const std::map<std::string, std::int64_t>& by_name, std::int64_t total_ns) {
  const auto most = std::max_element(by_name.begin(), by_name.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == by_name.end() || !HalfOf(most->second, total_ns) ? std::string() : most->first;
}

// The number of windows between those that have it, if that is regular.
std::int64_t EveryOf(const std::vector<std::int64_t>& ns) {
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < ns.size(); ++i)
    if (ns[i] > 0) at.push_back(i);
  if (at.size() < rules::kRecurs) return 0;
  const std::size_t period = at[1] - at[0];
  for (std::size_t i = 1; i < at.size(); ++i)
    if (at[i] - at[i - 1] != period) return 0;
  return period < 2 ? 0 : static_cast<std::int64_t>(period);
}

bool Is(const BlockedAt& at, Kind::Value kind) { return at.kind == NameOfKind(kind); }

// "fsync of checkpoint.pt", "recv (10.0.0.2:29500)".
Clause CallOf(const BlockedAt& at) {
  const bool file = Is(at, Kind::kFile);
  return Say(
      Word::kBlockedCall,
      {{"call", at.call}, {"file", If(file, Printed(LastOf(at.detail)))}, {"peer", If(!file, Printed(at.detail))}});
}

// What a rank waits for, where it is no call by its name.
struct Awaited {
  Kind::Value kind;
  Word word;
};
constexpr Awaited kAwaited[] = {
    {Kind::kLock, Word::kBlockedLock},           {Kind::kCondition, Word::kBlockedThread},
    {Kind::kSemaphore, Word::kBlockedSemaphore}, {Kind::kPython, Word::kBlockedPython},
    {Kind::kJoin, Word::kBlockedJoin},           {Kind::kChild, Word::kBlockedChild},
};
Clauses AwaitedOf(const BlockedAt& at) {
  for (const Awaited& each : kAwaited)
    if (Is(at, each.kind)) return {{Say(each.word)}};
  return {};
}

// " in backward (slow_layer, train.py:32)"; `brief`: " (train.py:32)".
Clauses Where(const BlockedAt& at, bool brief) {
  const std::string line = LineOf(at);
  const bool function = !brief && !at.function.empty() && at.module.empty();
  return {{Say(Word::kBlockedWhere, {{"range", If(!brief && at.range != at.function, Printed(at.range))},
                                     {"function", If(function, Printed(at.function))},
                                     {"line", line},
                                     {"place", If(!function, line)}})}};
}

}  // namespace

std::string_view NameOfKind(std::uint8_t kind) {
  for (const schema::EnumValue& value : Kind::kValues)
    if (value.code == kind) return value.name;
  return "other";
}

BlockedPlace PlaceOfRow(const schema::RankTables& t, std::uint64_t row) {
  const schema::Blocked& b = t.blocked;
  BlockedPlace place;
  place.kind = b.kind[row];
  if (b.caller[row] < t.stacks.rows()) {
    const std::uint32_t frame = JobFrame(t.stacks, b.caller[row]);
    place.function = trace::TextOf(t, t.stacks.function[frame]);
    place.file = trace::TextOf(t, t.stacks.file[frame]);
    place.line = t.stacks.line[frame];
    return place;
  }
  place.module = trace::TextOf(t, b.module[row]);
  place.call = trace::TextOf(t, b.function[row]);
  return place;
}

void BlockedSum::Add(const BlockedSum& next) {
  ns.insert(ns.end(), next.ns.begin(), next.ns.end());
  count += next.count;
  for (auto [to, from] : {std::pair(&calls, &next.calls), {&details, &next.details}, {&ranges, &next.ranges}})
    for (const auto& [name, time] : *from) (*to)[name] += time;
}

std::int64_t BlockedSum::Total() const { return std::accumulate(ns.begin(), ns.end(), std::int64_t{0}); }

BlockedSums BlockedWithin(const schema::RankTables& t, const std::vector<Interval>& windows) {
  BlockedSums sums;
  if (t.blocked.rows() == 0) return sums;
  const std::uint32_t training = merge::TrainingThread(t);
  RangesAround ranges(t, training);
  std::uint64_t counted = ~std::uint64_t{0};
  for (const merge::BlockedTime::Own& own : merge::FindBlockedTime(t, training).own) {
    auto window = std::upper_bound(windows.begin(), windows.end(), own.at.begin,
                                   [](std::int64_t at, const Interval& each) { return at < each.end; });
    BlockedSum* sum = nullptr;
    for (; window != windows.end() && window->begin < own.at.end; ++window) {
      const std::int64_t ns = std::min(own.at.end, window->end) - std::max(own.at.begin, window->begin);
      if (sum == nullptr) {
        sum = &sums[PlaceOfRow(t, own.row)];
        sum->ns.resize(windows.size());
        // What is taken off for other threads' work leaves pieces of one call.
        sum->count += own.row != counted;
        counted = own.row;
      }
      sum->ns[static_cast<std::size_t>(window - windows.begin())] += ns;
      sum->calls[std::string(trace::TextOf(t, t.blocked.function[own.row]))] += ns;
      if (const std::string_view detail = trace::TextOf(t, t.blocked.detail[own.row]); !detail.empty())
        sum->details[std::string(detail)] += ns;
      if (const std::string_view range = ranges.At(std::max(own.at.begin, window->begin)); !range.empty())
        sum->ranges[std::string(range)] += ns;
    }
  }
  return sums;
}

BlockedAt Described(const BlockedPlace& place, const BlockedSum& sum) {
  const std::int64_t total = sum.Total();
  const auto windows = static_cast<std::int64_t>(sum.ns.size());
  BlockedAt at;
  at.kind = NameOfKind(place.kind);
  at.call = MainOf(sum.calls, 0);
  at.function = place.function, at.file = place.file, at.line = place.line, at.module = place.module;
  at.range = MainOf(sum.ranges, total);
  at.detail = MainOf(sum.details, total);
  at.ns_per_step = windows > 0 ? total / windows : 0;
  at.steps = std::count_if(sum.ns.begin(), sum.ns.end(), [](std::int64_t ns) { return ns > 0; });
  at.of_steps = windows;
  at.every = EveryOf(sum.ns);
  return at;
}

Clause WaitName(const BlockedAt& at) {
  if (Clauses awaited = AwaitedOf(at); !awaited.all.empty())
    return Say(Word::kBlockedWait, {{"awaited", std::move(awaited)}});
  return Is(at, Kind::kSleep) ? Say(Word::kBlockedSleep) : CallOf(at);
}

std::string LineOf(const BlockedAt& at) {
  if (at.file.empty()) return Printed(LastOf(at.module));
  return Printed(LastOf(at.file)) + (at.line > 0 ? ":" + std::to_string(at.line) : "");
}

Clause WhatAndWhere(const BlockedAt& at) {
  return Say(Word::kBlockedWhatAndWhere, {{"what", Clauses{{WaitName(at)}}}, {"where", Where(at, false)}});
}

bool SamePlace(const BlockedAt& a, const BlockedAt& b) { return WhatAndWhere(a) == WhatAndWhere(b); }

std::string TextOfRow(const schema::RankTables& t, std::uint64_t row) {
  BlockedSum sum;
  sum.calls[std::string(trace::TextOf(t, t.blocked.function[row]))] = 0;
  if (const std::string_view detail = trace::TextOf(t, t.blocked.detail[row]); !detail.empty())
    sum.details[std::string(detail)] = 0;
  return Rendered(WhatAndWhere(Described(PlaceOfRow(t, row), sum)));
}

Clause DoesFor(const BlockedAt& at, std::int64_t ns, bool brief) {
  const Fact blocked{"blocked", Ns{ns}}, where{"where", Where(at, brief)};
  if (Clauses awaited = AwaitedOf(at); !awaited.all.empty())
    return Say(Word::kBlockedWaits, {blocked, {"awaited", std::move(awaited)}, where});
  if (Is(at, Kind::kSleep)) return Say(Word::kBlockedSleeps, {blocked, where});
  return Say(Word::kBlockedSpends, {blocked, {"what", Clauses{{CallOf(at)}}}, where});
}

Clauses HowOften(const BlockedAt& at) {
  if (at.every > 0) return {{Say(Word::kBlockedEvery, {{"every", Index{at.every}}})}};
  if (NearlyAllOf(at.steps, at.of_steps)) return {};
  return {{Say(Word::kBlockedInSome, {{"steps", Index{at.steps}}, {"of_steps", Num{at.of_steps}}})}};
}

Clause ActionFor(const BlockedAt& at) {
  const Fact line{"line", LineOf(at)};
  if (Is(at, Kind::kSleep)) return Say(Word::kBlockedSleepAction, {line});
  if (Is(at, Kind::kLock)) return Say(Word::kBlockedLockAction, {line});
  if (Is(at, Kind::kPython)) return Say(Word::kBlockedPythonAction);
  if (Is(at, Kind::kFile)) {
    // By the name of the function of libc.
    const auto has = [&](std::string_view part) { return at.call.find(part) != std::string::npos; };
    return Say(has("read")   ? Word::kBlockedReadAction
               : has("lock") ? Word::kBlockedFileLockAction
                             : Word::kBlockedWriteAction,
               {{"file", Printed(LastOf(at.detail))}});
  }
  if (Is(at, Kind::kSocket)) return Say(Word::kBlockedSocketAction, {{"peer", Printed(at.detail)}});
  return Say(Word::kBlockedOtherAction, {line});
}

}  // namespace lockstep::analysis
