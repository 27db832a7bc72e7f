// The lifetime of a rank, and the thread whose time explains it, from its small tables.

#include <algorithm>
#include <map>

#include "merge/timeline/rank_pass.h"

namespace lockstep::merge {

Interval CapturedSpan(const schema::RankTables& head) {
  Interval span{0, 0};
  bool any = false;
  const auto extend = [&](std::int64_t begin, std::int64_t end) {
    if (begin == schema::kNoTime || end == schema::kNoTime || end < begin) return;
    span = any ? Interval{std::min(span.begin, begin), std::max(span.end, end)} : Interval{begin, end};
    any = true;
  };
  for (std::size_t i = 0; i < head.threads.rows(); ++i)
    if (head.threads.records[i] > 0 || head.threads.end_ns[i] > head.threads.begin_ns[i])
      extend(head.threads.begin_ns[i], head.threads.end_ns[i]);
  if (any) return span;
  // If no thread has a lifetime (files of other tools), the other small tables are used.
  for (std::size_t i = 0; i < head.steps.rows(); ++i) extend(head.steps.begin_ns[i], head.steps.end_ns[i]);
  for (std::size_t i = 0; i < head.collectives.rows(); ++i)
    extend(head.collectives.begin_ns[i], std::max(head.collectives.begin_ns[i], head.collectives.end_ns[i]));
  for (std::size_t i = 0; i < head.p2p.rows(); ++i)
    extend(head.p2p.begin_ns[i], std::max(head.p2p.begin_ns[i], head.p2p.end_ns[i]));
  return span;
}

std::uint32_t TrainingThread(const schema::RankTables& head) {
  std::map<std::uint32_t, std::size_t> marks;
  for (const std::uint32_t thread : head.steps.thread)
    if (thread != schema::kNone) ++marks[thread];
  std::uint32_t most = schema::kNone;
  for (const auto& [thread, count] : marks)
    if (most == schema::kNone || count > marks[most]) most = thread;
  if (most != schema::kNone) return most;
  const schema::Threads& threads = head.threads;
  for (std::size_t i = 0; i < threads.rows(); ++i)
    if (threads.training[i]) return threads.thread[i];
  for (std::size_t i = 0; i < threads.rows(); ++i)
    if (threads.process[i] < head.processes.rows() && threads.tid[i] == head.processes.pid[threads.process[i]])
      return threads.thread[i];
  return threads.rows() > 0 ? threads.thread[0] : 0;
}

}  // namespace lockstep::merge
