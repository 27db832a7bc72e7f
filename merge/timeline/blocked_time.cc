#include "merge/timeline/blocked_time.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/awaited_operation.h"
#include "core/collective.h"
#include "merge/timeline/gpu_windows.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::merge {
namespace {

using Kind = schema::BlockedKind;

constexpr schema::Columns<schema::MpiCalls> kApartCalls(&schema::MpiCalls::begin_ns, &schema::MpiCalls::duration_ns,
                                                        &schema::MpiCalls::thread);
constexpr schema::Columns<schema::Ranges> kApartRanges(&schema::Ranges::begin_ns, &schema::Ranges::duration_ns,
                                                       &schema::Ranges::thread, &schema::Ranges::category);

struct Wait {
  BlockedTime::Own wait;
  bool awaited;
  std::int64_t others_cpu_ns;
};

// Calls f(thread, at) for the blocking collectives, and the messages that ended, of the process's other threads. The
// end of what never ended is INT64_MAX.
template <typename F>
void ForEachCarried(const schema::RankTables& head, std::uint32_t training, F&& f) {
  const schema::Collectives& c = head.collectives;
  for (std::size_t i = 0; i < c.rows(); ++i)
    if (c.mode[i] == schema::Code(CollectiveMode::kBlocking) && c.thread[i] != training)
      f(c.thread[i], Interval{c.begin_ns[i], c.end_ns[i] == schema::kNoTime ? INT64_MAX : c.end_ns[i]});
  const schema::P2p& p = head.p2p;
  for (std::size_t i = 0; i < p.rows(); ++i)
    if (p.mode[i] != schema::Code(CollectiveMode::kGpu) && p.thread[i] != training && p.end_ns[i] != schema::kNoTime)
      f(p.thread[i], Interval{p.begin_ns[i], p.end_ns[i]});
}

// Of the recorded calls and input of the training thread, those that a wait may overlap.
IntervalSet Apart(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
                  const IntervalSet& waits) {
  std::vector<Interval> apart;
  const auto add = [&](const auto& rows, std::size_t i) {
    const Interval at{rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]};
    if (rows.thread[i] == training && TotalWithin(waits, at) > 0) apart.push_back(at);
  };
  ingest::RowCursor<schema::MpiCalls, kApartCalls> calls(events);
  ForEachRow(calls, add);
  ingest::RowCursor<schema::Ranges, kApartRanges> ranges(events);
  ForEachRow(ranges, [&](const auto& rows, std::size_t i) {
    if (rows.category[i] == schema::Category::kInput) add(rows, i);
  });
  return Unite(Normalize(std::move(apart)), FindUnrecordedComm(head, events, training, false).waiting);
}

// Calls f(piece) for what of `whole` is in no member of `set`.
template <typename F>
void ForEachOutside(Interval whole, const IntervalSet& set, F&& f) {
  auto at = std::upper_bound(set.begin(), set.end(), whole.begin,
                             [](std::int64_t ns, const Interval& member) { return ns < member.end; });
  for (; at != set.end() && at->begin < whole.end; ++at) {
    if (at->begin > whole.begin) f(Interval{whole.begin, at->begin});
    whole.begin = std::max(whole.begin, at->end);
  }
  if (whole.begin < whole.end) f(whole);
}

// Another thread may compute what this one waits for.
bool MayBeWorkOfOthers(std::uint8_t kind) {
  return kind == Kind::kCondition || kind == Kind::kSemaphore || kind == Kind::kLock || kind == Kind::kJoin;
}

}  // namespace

IntervalSet CarriedByOthers(const schema::RankTables& head, std::uint32_t training) {
  std::vector<Interval> carried;
  ForEachCarried(head, training, [&](std::uint32_t, Interval at) {
    if (at.end != INT64_MAX) carried.push_back(at);
  });
  return Normalize(std::move(carried));
}

BlockedTime FindBlockedTime(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training) {
  ingest::RowCursor<schema::Blocked, kWaitColumns> rows_of_waits(events);
  if (rows_of_waits.rows() == 0) return {};
  std::vector<CarriedOperations::Operation> operations;
  ForEachCarried(head, training, [&](std::uint32_t thread, Interval at) { operations.push_back({thread, at}); });
  const CarriedOperations carried(std::move(operations));
  std::vector<Wait> waits;
  std::vector<Interval> all;
  ForEachRow(rows_of_waits, [&](const auto& rows, std::size_t i) {
    const Interval at{rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]};
    if (rows.thread[i] != training || at.end <= at.begin) return;
    const bool signalled = EndsBySignal(rows.kind[i], rows.timed_out[i] != 0) && rows.waker[i] != schema::kNone &&
                           rows.woken_ns[i] != schema::kNoTime;
    const bool awaited =
        signalled && carried.AwaitedBy(at, rows.waker[i], rows.woken_ns[i]) != CarriedOperations::kNone;
    std::uint8_t kind = rows.kind[i];
    if (kind >= std::size(Kind::kValues)) kind = Kind::kOther;  // Of a newer version.
    waits.push_back({{at, kind, rows_of_waits.first_row() + i}, awaited, rows.others_cpu_ns[i]});
    all.push_back(at);
  });
  const IntervalSet apart = Apart(head, events, training, Normalize(std::move(all)));

  BlockedTime found;
  std::vector<Interval> awaited;
  for (const Wait& one : waits)
    if (one.awaited) awaited.push_back(one.wait.at);
  found.awaited = Subtract(Normalize(std::move(awaited)), apart);
  const IntervalSet not_own = Unite(apart, found.awaited);
  std::stable_sort(waits.begin(), waits.end(),
                   [](const Wait& a, const Wait& b) { return a.wait.at.begin < b.wait.at.begin; });
  std::int64_t until = INT64_MIN;  // A thread waits for one thing at a time: what overlaps is of the earlier row.
  for (const Wait& one : waits) {
    if (one.awaited) continue;
    Interval at{std::max(one.wait.at.begin, until), one.wait.at.end};
    until = std::max(until, at.end);
    if (at.end <= at.begin) continue;
    if (MayBeWorkOfOthers(one.wait.kind) && one.others_cpu_ns > 0) {
      const std::int64_t worked = at.begin + std::min(one.others_cpu_ns, at.end - at.begin);
      ForEachOutside({at.begin, worked}, not_own, [&](Interval piece) { found.computed.push_back(piece); });
      at.begin = worked;
    }
    ForEachOutside(at, not_own, [&](Interval piece) { found.own.push_back({piece, one.wait.kind, one.wait.row}); });
  }
  found.computed = Normalize(std::move(found.computed));
  return found;
}

BlockedTime FindBlockedTime(const schema::RankTables& tables, std::uint32_t training) {
  return FindBlockedTime(tables, *ingest::ReadFromMemory(tables), training);
}

IntervalSet InMpiCalls(const schema::RankTables& tables, std::optional<std::uint32_t> thread) {
  const auto& calls = tables.mpi_calls;
  std::vector<Interval> inside;
  for (std::size_t i = 0; i < calls.rows(); ++i)
    if (!thread || calls.thread[i] == *thread)
      inside.push_back({calls.begin_ns[i], calls.begin_ns[i] + calls.duration_ns[i]});
  return Normalize(std::move(inside));
}

IntervalSet InCommunication(const schema::RankTables& tables, std::uint32_t training, const BlockedTime& blocked) {
  return Unite(Unite(InMpiCalls(tables, training), FindUnrecordedComm(tables, training, false).waiting),
               blocked.awaited);
}

}  // namespace lockstep::merge
