#include "ingest/map/comm_operations.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/operation_name.h"
#include "ingest/map/names.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {

using schema::kNone;
using schema::kNoTime;

CommOperations::CommOperations(MappedTrace& trace) {
  const auto text = [&](std::uint32_t id) { return lockstep::trace::TextOf(trace.tables, id); };
  auto& events = trace.comm_events;
  std::stable_sort(events.begin(), events.end(), [](const CommEvent& a, const CommEvent& b) {
    return std::tuple(a.thread, a.begin_ns, -a.end_ns, a.kind) < std::tuple(b.thread, b.begin_ns, -b.end_ns, b.kind);
  });
  std::vector<std::uint32_t> open;  // Operations of records around the current event.
  for (std::size_t i = 0; i < events.size(); ++i) {
    const CommEvent& event = events[i];
    if (i > 0 && events[i - 1].thread != event.thread) open.clear();
    while (!open.empty() && ops_[open.back()].end_ns <= event.begin_ns) open.pop_back();
    if (event.kind == CommEvent::kAnnotation && !open.empty() && ops_[open.back()].annotation == kNone) {
      CommOperation& op = ops_[open.back()];
      op.annotation = event.name;
      if (event.input_elements >= 0) op.input_elements = event.input_elements;
      if (event.input_type != kNone) op.input_type = event.input_type;
      continue;
    }
    CommOperation op;
    op.thread = event.thread;
    op.begin_ns = event.begin_ns;
    op.end_ns = event.end_ns;
    op.external_id = event.external_id;
    op.args = event.args;
    if (event.kind == CommEvent::kAnnotation) op.annotation = event.name;
    op.input_elements = event.input_elements;
    op.input_type = event.input_type;
    if (event.kind == CommEvent::kRecord) open.push_back(static_cast<std::uint32_t>(ops_.size()));
    ops_.push_back(std::move(op));
  }
  for (std::uint32_t i = 0; i < ops_.size(); ++i) {
    CommOperation& op = ops_[i];
    for (const std::uint32_t name : {op.args.name, op.annotation}) {
      if (name == kNone || op.usable()) continue;
      op.direction = DirectionOfOperation(text(name));
      if (op.direction < 0) op.kind = KindOfOperation(text(name));
    }
    if (op.external_id >= 0) by_external_.emplace(op.external_id, i);
    by_thread_[op.thread].push_back(i);
  }
  for (auto& [thread, list] : by_thread_) {
    std::int64_t latest = kNoTime;
    auto& reach = reach_[thread];
    for (const std::uint32_t op : list) reach.push_back(latest = std::max(latest, ops_[op].end_ns));
  }
}

std::uint32_t CommOperations::At(std::uint32_t thread, std::int64_t ns) const {
  const auto list = by_thread_.find(thread);
  if (list == by_thread_.end()) return kNoOp;
  const auto& reach = reach_.at(thread);
  auto at = static_cast<std::size_t>(
      std::upper_bound(list->second.begin(), list->second.end(), ns,
                       [&](std::int64_t t, std::uint32_t op) { return t < ops_[op].begin_ns; }) -
      list->second.begin());
  std::uint32_t outer = kNoOp;
  // Operations nest a few deep; one that seems to last for ever must not make each search long.
  for (int look = 0; look < 256 && at-- > 0 && reach[at] >= ns; ++look) {
    const std::uint32_t op = list->second[at];
    if (ops_[op].end_ns < ns) continue;
    if (ops_[op].usable()) return op;
    if (outer == kNoOp) outer = op;
  }
  return outer;
}

std::uint32_t CommOperations::OfExternal(std::int64_t id) const {
  const auto at = by_external_.find(id);
  return at == by_external_.end() ? kNoOp : at->second;
}

const std::vector<std::uint32_t>& CommOperations::OfThread(std::uint32_t thread) const {
  static const std::vector<std::uint32_t> kEmpty;
  const auto at = by_thread_.find(thread);
  return at == by_thread_.end() ? kEmpty : at->second;
}

}  // namespace lockstep::ingest
