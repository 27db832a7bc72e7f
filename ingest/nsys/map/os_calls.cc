#include "ingest/nsys/map/os_calls.h"

namespace lockstep::nsys {

std::uint64_t MapOsCalls(Context& context) {
  std::uint64_t left_out = 0;
  context.ForRows("OSRT_API", {"globalTid", "start", "end", "nameId"}, [&](const Rows& row) {
    const std::uint32_t thread = context.KnownThread(row.Int(0));
    if (thread == schema::kNone) {
      ++left_out;
      return;
    }
    Span span;
    if (!context.Times(row.Int(1), row.Int(2), true, span)) return;
    context.tables().ranges.Append({.begin_ns = span.begin_ns,
                                    .duration_ns = span.duration_ns,
                                    .thread = thread,
                                    .name = context.Text(row.Int(3)),
                                    .domain = schema::kNone,
                                    .source = schema::RangeSource::kSystemCall,
                                    .kind = schema::RangeKind::kPushPop,
                                    .category = schema::Category::kNone,
                                    .depth = 0,
                                    .open = span.open,
                                    .payload = 0,
                                    .payload_kind = schema::PayloadKind::kNone,
                                    .category_id = 0});
  });
  return left_out;
}

}  // namespace lockstep::nsys
