#include "merge/timeline/unrecorded_calls.h"

#include <algorithm>
#include <vector>

#include "core/comm_calls.h"
#include "merge/timeline/gpu_windows.h"
#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

constexpr schema::Columns<schema::Ranges> kNamedRangeColumns(&schema::Ranges::begin_ns, &schema::Ranges::duration_ns,
                                                             &schema::Ranges::thread, &schema::Ranges::name,
                                                             &schema::Ranges::category, &schema::Ranges::source);

enum class Named : std::uint8_t { kOther, kCall, kOperation };

}  // namespace

IntervalSet UnrecordedCalls(const schema::RankTables& head, ingest::EventReader& events, std::uint32_t training,
                            bool gpu) {
  std::vector<Named> named(head.strings.rows(), Named::kOther);
  bool any = false;
  for (std::uint32_t s = 0; s < named.size(); ++s) {
    const std::string_view text = trace::TextOf(head.strings, head.string_bytes, s);
    if (IsDistributedCall(text)) named[s] = Named::kCall;
    if (IsHostOperation(text)) named[s] = Named::kOperation;
    any |= named[s] != Named::kOther;
  }
  if (!any) return {};
  std::vector<Interval> calls, operations, operators;
  ingest::RowCursor<schema::Ranges, kNamedRangeColumns> cursor(events);
  ForEachRow(cursor, [&](const auto& rows, std::size_t i) {
    if (rows.thread[i] != training || rows.duration_ns[i] <= 0) return;
    const Interval range{rows.begin_ns[i], rows.begin_ns[i] + rows.duration_ns[i]};
    const Named what = rows.name[i] < named.size() ? named[rows.name[i]] : Named::kOther;
    if (what == Named::kOperation)
      operations.push_back(range);
    else if (what == Named::kCall && (!gpu || rows.category[i] == schema::Category::kCommunication))
      calls.push_back(range);
    else if (what == Named::kOther && rows.source[i] == schema::RangeSource::kCpuOp)
      operators.push_back(range);
  });
  IntervalSet in_calls = Normalize(std::move(calls));
  if (operations.empty()) return in_calls;
  // An operator around the operation's begin is the one that handed it over, and may be the one that waits for it.
  const IntervalSet handed_over = Normalize(operations);
  std::erase_if(operators, [&](const Interval& range) {
    const auto after = std::upper_bound(handed_over.begin(), handed_over.end(), range.begin,
                                        [](std::int64_t t, const Interval& member) { return t < member.begin; });
    return after != handed_over.end() && after->begin < range.end;
  });
  return Unite(in_calls, Subtract(handed_over, Normalize(std::move(operators))));
}

IntervalSet UnrecordedCalls(const schema::RankTables& tables, std::uint32_t training, bool gpu) {
  return UnrecordedCalls(tables, *ingest::ReadFromMemory(tables), training, gpu);
}

}  // namespace lockstep::merge
