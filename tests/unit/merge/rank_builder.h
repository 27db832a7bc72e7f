#pragma once
// Small rank tables for tests of the merge stage, written in the order a program
// would make its calls.

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/collective.h"
#include "core/mpi_ops.h"
#include "core/schema.h"
#include "trace/file/strings.h"

namespace lockstep::test {

inline constexpr std::uint64_t kWorld = 77;

class RankBuilder {
 public:
  RankBuilder(std::int32_t rank, std::int32_t size) : rank_(rank), size_(size), strings_(t.strings, t.string_bytes) {
    Meta("rank", std::to_string(rank));
    Meta("world_size", std::to_string(size));
    Meta("rank_source", "mpi");
    Meta("clock_domain", "d0");
    Meta("exit_code", "0");
    Meta("blocked", "on");
    t.comms.Append({.comm = 0,
                    .global_id = kWorld,
                    .size = static_cast<std::uint32_t>(size),
                    .rank = rank,
                    .stride = 1,
                    .name = schema::kNone,
                    .end_ns = schema::kNoTime});
    t.threads.Append(
        {.thread = 0, .tid = 10, .name = schema::kNone, .begin_ns = 0, .end_ns = 0, .records = 1, .training = 1});
    t.threads.Append({.thread = 1, .tid = 11, .name = schema::kNone, .begin_ns = 0, .end_ns = 0, .records = 1});
  }

  void Meta(std::string_view key, std::string_view value) {
    t.meta.Append({.key = strings_.Intern(key), .value = strings_.Intern(value)});
  }

  std::uint32_t Text(std::string_view text) { return strings_.Intern(text); }

  std::uint32_t Call(MpiOp op, std::int64_t begin, std::int64_t end, std::uint32_t thread = 0,
                     std::uint32_t count = 1) {
    t.mpi_calls.Append({.begin_ns = begin,
                        .duration_ns = end - begin,
                        .thread = thread,
                        .op = static_cast<std::uint16_t>(op),
                        .comm = schema::kNone,
                        .peer = -1,
                        .tag = -1,
                        .count = count});
    Sign(end);
    return static_cast<std::uint32_t>(t.mpi_calls.rows() - 1);
  }

  // A blocking collective; seq counts by itself on each communicator.
  std::uint32_t Collective(CollectiveKind kind, std::int64_t begin, std::int64_t end, std::uint64_t bytes = 1024,
                           std::int32_t root = -1, std::uint32_t comm = 0) {
    const std::uint32_t call = Call(MpiOp::kAllreduce, begin, end);
    schema::Collectives::Row row = Row(kind, comm, bytes, root);
    row.begin_ns = row.wait_begin_ns = begin;
    row.post_end_ns = row.end_ns = end;
    row.call = call;
    t.collectives.Append(row);
    return static_cast<std::uint32_t>(t.collectives.rows() - 1);
  }

  // A non-blocking one, completed by a Wait of its own: [wait, end).
  std::uint32_t Posted(CollectiveKind kind, std::int64_t begin, std::int64_t post_end, std::int64_t wait,
                       std::int64_t end, std::uint64_t bytes = 1024, std::int64_t last_incomplete = schema::kNoTime) {
    Call(MpiOp::kIallreduce, begin, post_end);
    if (end != schema::kNoTime) Call(MpiOp::kWait, wait, end);
    schema::Collectives::Row row = Row(kind, 0, bytes, -1);
    row.mode = 1;
    row.begin_ns = begin;
    row.post_end_ns = post_end;
    row.last_incomplete_ns = last_incomplete;
    row.wait_begin_ns = wait;
    row.end_ns = end;
    t.collectives.Append(row);
    return static_cast<std::uint32_t>(t.collectives.rows() - 1);
  }

  void Message(bool receive, std::int32_t peer, std::uint64_t seq, std::int64_t begin, std::int64_t end,
               std::int32_t tag = 0) {
    Call(receive ? MpiOp::kRecv : MpiOp::kSend, begin, end);
    t.p2p.Append({.comm = 0,
                  .direction = static_cast<std::uint8_t>(receive),
                  .peer = peer,
                  .peer_world_rank = peer,
                  .tag = tag,
                  .seq = seq,
                  .thread = 0,
                  .begin_ns = begin,
                  .post_end_ns = end,
                  .last_incomplete_ns = schema::kNoTime,
                  .wait_begin_ns = begin,
                  .end_ns = end,
                  .call = schema::kNone});
  }

  void Input(std::int64_t begin, std::int64_t end, std::uint32_t thread = 0) {
    t.ranges.Append({.begin_ns = begin,
                     .duration_ns = end - begin,
                     .thread = thread,
                     .name = schema::kNone,
                     .domain = schema::kNone,
                     .category = 1});
    Sign(end);
  }

  // Of the training thread; `waker` signalled when it ended.
  void Blocked(std::uint8_t kind, std::int64_t begin, std::int64_t end, std::uint32_t waker = schema::kNone,
               std::int64_t others_cpu_ns = -1) {
    t.blocked.Append({.begin_ns = begin,
                      .duration_ns = end - begin,
                      .thread = 0,
                      .kind = kind,
                      .function = Text("pthread_cond_wait"),
                      .waker = waker,
                      .woken_ns = waker == schema::kNone ? schema::kNoTime : end,
                      .others_cpu_ns = others_cpu_ns,
                      .module = schema::kNone,
                      .detail = schema::kNone,
                      .caller = schema::kNone});
    Sign(end);
  }

  void Step(std::int64_t index, std::int64_t begin, std::int64_t end, bool complete = true, std::int64_t cpu_ns = -1) {
    t.steps.Append(
        {.index = index, .begin_ns = begin, .end_ns = end, .complete = complete, .thread = 0, .cpu_ns = cpu_ns});
    Sign(end);
  }

  std::uint32_t Kernel(std::string_view name, std::int64_t begin, std::int64_t end, std::int64_t launched,
                       std::uint8_t work = 0) {
    const std::uint64_t correlation = t.kernels.rows() + 1;
    t.api.Append({.begin_ns = launched,
                  .duration_ns = 2,
                  .thread = 0,
                  .name = strings_.Intern("cudaLaunchKernel"),
                  .kind = 1,
                  .correlation = correlation});
    t.kernels.Append({.begin_ns = begin,
                      .duration_ns = end - begin,
                      .correlation = correlation,
                      .name = strings_.Intern(name),
                      .work = work,
                      .work_rule = static_cast<std::uint8_t>(work == 1)});
    Sign(end);
    return static_cast<std::uint32_t>(t.kernels.rows() - 1);
  }

  // Every time of the rank clock moves by this.
  void ShiftClock(std::int64_t by) {
    const auto shift = [by](auto& table) {
      table.ForEachColumn([by](const schema::ColumnInfo& info, auto& column) {
        if constexpr (std::is_same_v<std::decay_t<decltype(column[0])>, std::int64_t>) {
          if (info.clock != schema::ClockOf::kRank) return;
          for (auto& value : column)
            if (value != schema::kNoTime) value += by;
        }
      });
    };
    shift(t.threads), shift(t.mpi_calls), shift(t.collectives), shift(t.p2p), shift(t.ranges), shift(t.steps);
    shift(t.blocked), shift(t.kernels), shift(t.copies), shift(t.api), shift(t.cpu_samples);
  }

  std::int32_t rank() const { return rank_; }
  schema::RankTables t;

 private:
  schema::Collectives::Row Row(CollectiveKind kind, std::uint32_t comm, std::uint64_t bytes, std::int32_t root) {
    if (next_seq_.size() <= comm) next_seq_.resize(comm + 1, 0);
    schema::Collectives::Row row;
    row.comm = comm;
    row.seq = next_seq_[comm]++;
    row.kind = static_cast<std::uint8_t>(kind);
    row.thread = 0;
    row.bytes = bytes;
    row.root = root;
    row.last_incomplete_ns = schema::kNoTime;
    row.call = row.kernel = schema::kNone;
    return row;
  }
  void Sign(std::int64_t end) { t.threads.end_ns[0] = std::max(t.threads.end_ns[0], end); }

  std::int32_t rank_, size_;
  std::vector<std::uint64_t> next_seq_;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings_;
};

}  // namespace lockstep::test
