#include "merge/timeline/unrecorded_calls.h"

#include <algorithm>
#include <map>
#include <vector>

#include "core/collective.h"
#include "core/comm_calls.h"
#include "merge/timeline/gpu_windows.h"
#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

constexpr schema::Columns<schema::Ranges> kNamedRangeColumns(&schema::Ranges::begin_ns, &schema::Ranges::duration_ns,
                                                             &schema::Ranges::thread, &schema::Ranges::name,
                                                             &schema::Ranges::category, &schema::Ranges::source);

enum class Named : std::uint8_t { kOther, kCall, kOperation, kFunctional };

bool OnHost(const std::vector<std::uint8_t>& modes) {
  return std::any_of(modes.begin(), modes.end(),
                     [](std::uint8_t mode) { return mode != schema::Code(CollectiveMode::kGpu); });
}

}  // namespace

UnrecordedComm FindUnrecordedComm(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
                                  bool gpu) {
  const bool recorded = OnHost(head.collectives.mode) || OnHost(head.p2p.mode);
  std::vector<Named> named(head.strings.rows(), Named::kOther);
  bool any = false;
  for (std::uint32_t s = 0; s < named.size(); ++s) {
    const std::string_view text = trace::TextOf(head.strings, head.string_bytes, s);
    if (IsDistributedCall(text)) named[s] = Named::kCall;
    if (IsFunctionalCollective(text)) named[s] = Named::kFunctional;
    if (!recorded && !HostBackend(text).empty()) named[s] = Named::kOperation;
    any |= named[s] == Named::kCall || named[s] == Named::kOperation;
  }
  if (!any) return {};
  ingest::RowCursor<schema::Ranges, kNamedRangeColumns> cursor(events);
  const auto for_each = [&](auto&& f) {
    cursor.Rewind();
    ForEachRow(cursor, [&](const auto& rows, std::size_t i) {
      if (rows.duration_ns[i] <= 0) return;
      f(rows, i, Interval{rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]},
        rows.name[i] < named.size() ? named[rows.name[i]] : Named::kOther);
    });
  };
  struct Thread {
    bool works = false;                // Its operators are the rank's own work.
    std::vector<Interval> hand_overs;  // When it handed something over.
  };
  std::map<std::uint32_t, Thread> threads;
  threads[training].works = true;
  std::vector<Interval> calls, operations, operators;
  for_each([&](const auto& rows, std::size_t i, Interval range, Named what) {
    const std::uint32_t thread = rows.thread[i];
    if (what == Named::kOperation) operations.push_back(range);
    if (what == Named::kCall && thread == training && (!gpu || rows.category[i] == schema::Category::kCommunication))
      calls.push_back(range);
    if (what == Named::kOperation || what == Named::kCall)
      threads[thread].hand_overs.push_back({range.begin, range.begin + 1});
    else if (rows.category[i] == schema::Category::kBackward && rows.source[i] == schema::RangeSource::kCpuOp)
      threads[thread].works = true;
  });
  UnrecordedComm found{.operations = Normalize(std::move(operations)), .waiting = Normalize(std::move(calls))};
  if (found.operations.empty()) return found;
  for (auto& [number, thread] : threads) thread.hand_overs = Normalize(std::move(thread.hand_overs));
  for_each([&](const auto& rows, std::size_t i, Interval range, Named what) {
    if (what != Named::kOther || rows.source[i] != schema::RangeSource::kCpuOp) return;
    const auto thread = threads.find(rows.thread[i]);
    if (thread == threads.end() || !thread->second.works || TotalWithin(found.operations, range) == 0) return;
    // An operator around a hand-over may be the one that waits for it.
    if (TotalWithin(thread->second.hand_overs, range) == 0) operators.push_back(range);
  });
  found.waiting = Unite(found.waiting, Subtract(found.operations, Normalize(std::move(operators))));
  return found;
}

UnrecordedComm FindUnrecordedComm(const schema::RankTables& tables, std::uint32_t training, bool gpu) {
  return FindUnrecordedComm(tables, *ingest::ReadFromMemory(tables), training, gpu);
}

}  // namespace lockstep::merge
