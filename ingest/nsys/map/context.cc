#include "ingest/nsys/map/context.h"

#include <algorithm>
#include <tuple>

namespace lockstep::nsys {

using schema::kNone;
using schema::kNoTime;

bool Context::Times(std::int64_t start, std::int64_t end, bool may_be_open, Span& span) {
  constexpr std::int64_t kFar = std::int64_t{1} << 61;
  if (start == kAbsent || (end == kAbsent && !may_be_open)) return ++unreadable_, false;
  if (start < -kFar || start > kFar || (end != kAbsent && (end < -kFar || end > kFar))) return ++times_invalid_, false;
  span.begin_ns = base_ns_ + start;
  span.open = end == kAbsent;
  span.duration_ns = span.open ? 0 : end - start;
  if (span.duration_ns < 0) ++negative_, span.duration_ns = 0;
  return true;
}

std::uint32_t Context::Thread(std::int64_t global_tid, const Span& span) {
  schema::RankTables& t = trace_.tables;
  const std::int64_t end = span.begin_ns + span.duration_ns;
  const auto [at, fresh] = threads_.try_emplace(global_tid == kAbsent ? -1 : TidOf(global_tid),
                                                static_cast<std::uint32_t>(t.threads.rows()));
  if (fresh) {
    if (t.processes.rows() == 0)
      t.processes.Append({.process = 0,
                          .pid = PidOf(process_),
                          .parent_pid = -1,
                          .exe = kNone,
                          .begin_ns = span.begin_ns,
                          .end_ns = end,
                          .world_rank = -1,
                          .mpi_thread_level = schema::MpiThreadLevel::kNoMpi});
    t.threads.Append({.thread = at->second,
                      .process = 0,
                      .tid = at->first,
                      .name = kNone,
                      .begin_ns = span.begin_ns,
                      .end_ns = end});
  }
  const std::uint32_t row = at->second;
  t.threads.begin_ns[row] = std::min(t.threads.begin_ns[row], span.begin_ns);
  t.threads.end_ns[row] = std::max(t.threads.end_ns[row], end);
  ++t.threads.records[row];
  t.processes.begin_ns[0] = std::min(t.processes.begin_ns[0], span.begin_ns);
  t.processes.end_ns[0] = std::max(t.processes.end_ns[0], end);
  return row;
}

std::uint32_t Context::KnownThread(std::int64_t global_tid) const {
  const auto at = global_tid == kAbsent ? threads_.end() : threads_.find(TidOf(global_tid));
  return at == threads_.end() ? kNone : at->second;
}

std::uint32_t Context::Text(std::int64_t string_id) {
  if (string_id == kAbsent) return kNone;
  const auto [at, fresh] = texts_.try_emplace(string_id, kNone);
  if (fresh) at->second = Intern(report_.Text(string_id));
  return at->second;
}

void Context::NameThreads() {
  schema::RankTables& t = trace_.tables;
  Rows names = report_.database().Select("ThreadNames", {"globalTid", "nameId"});
  while (names.Next()) {
    if (names.Int(0) == kAbsent || ProcessOf(names.Int(0)) != process_) continue;
    if (const auto at = threads_.find(TidOf(names.Int(0))); at != threads_.end())
      if (const std::uint32_t name = Text(names.Int(1)); name != kNone) t.threads.name[at->second] = name;
  }
  Rows processes = report_.database().Select("PROCESSES", {"globalPid", "name"});
  while (processes.Next())
    if (processes.Int(0) != kAbsent && ProcessOf(processes.Int(0)) == process_ && t.processes.rows() > 0)
      t.processes.exe[0] = Intern(processes.Text(1));
  if (t.threads.rows() == 0) return;
  // The thread that marks the steps, else the process's first, else the busiest.
  std::vector<std::uint64_t> marks(t.threads.rows(), 0);
  for (const ingest::StepMark& mark : trace_.steps) ++marks[mark.thread];
  std::size_t best = 0;
  const auto weight = [&](std::size_t i) {
    return std::tuple(marks[i], t.threads.tid[i] == t.processes.pid[0], t.threads.records[i]);
  };
  for (std::size_t i = 1; i < marks.size(); ++i)
    if (weight(i) > weight(best)) best = i;
  t.threads.training[best] = 1;
}

}  // namespace lockstep::nsys
