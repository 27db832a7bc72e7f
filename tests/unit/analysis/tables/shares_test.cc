// No table says that a part is more than the whole: all tables on random ranks, alone and together.

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>

#include "analysis/tables/engine/cells.h"
#include "core/collective.h"
#include "gpu_events.h"
#include "tests/unit/all_runs.h"

namespace lockstep::tables {
namespace {

using test::GpuEvents;
using test::Make;
using test::TimelineOf;

class RandomRank : public GpuEvents {
 public:
  explicit RandomRank(std::mt19937& random) : random_(random) {
    tables.devices.Append({.device = 0, .name = schema::kNone, .memory_bytes = 1'000, .sm_count = 4});
    const std::uint32_t comm = Comm("tp", 4, 1, 100), shape = Shape(2, 64, 50);
    for (std::uint64_t at = 0, n = 10 + Below(60); at < n; ++at) {
      switch (Below(8)) {
        case 0:
          Wait();
          break;
        case 1:
          Memory(now_, static_cast<std::uint8_t>(1 + Below(2)), 0, 10, Below(1'500), Below(1'500));
          break;
        case 2:
          Copy();
          break;
        default: {
          const std::uint32_t row = Kernel();
          if (Below(3) == 0) tables.kernels.shape[row] = shape;
          if (Below(3) == 0)
            Collective(comm, CollectiveKind::kAllReduce, tables.kernels.begin_ns[row],
                       tables.kernels.begin_ns[row] + tables.kernels.duration_ns[row], 64, row);
        }
      }
      now_ += Time(20);
    }
    for (std::int64_t step = 0; step < 3; ++step) Step(step, step * 150, (step + 1) * 150);
    Samples();
    Blocks();
  }

  Interval window;

 private:
  std::uint64_t Below(std::uint64_t n) { return random_() % n; }
  std::int64_t Time(std::uint64_t n) { return static_cast<std::int64_t>(Below(n)); }
  std::uint32_t Stream() { return 7 + static_cast<std::uint32_t>(Below(4)); }

  // Called at any time, and run when its stream is free or before: clocks and traces may say so.
  std::int64_t Begin(std::uint32_t stream) {
    const std::int64_t free = Below(8) == 0 ? 0 : free_[stream - 7];
    return std::max<std::int64_t>(free, now_ + Time(60) - 3);
  }
  std::uint32_t Kernel() {
    static constexpr std::string_view kNames[] = {"gemm", "ncclDevKernel_SendRecv", "adam"};
    const std::uint32_t stream = Stream();
    const std::int64_t begin = Begin(stream), end = begin + Time(120);
    const std::uint64_t correlation = Call("cudaLaunchKernel", now_, now_ + Time(9), ++correlation_);
    Op(0, "aten::mm", now_ - Time(5), now_ + Time(30));
    KernelAt(kNames[Below(3)], begin, end, correlation, stream);
    if (Below(12) == 0) tables.kernels.work.back() = schema::Work::kSyncKernel;
    free_[stream - 7] = end;
    return static_cast<std::uint32_t>(tables.kernels.rows() - 1);
  }
  void Copy() {
    const std::uint32_t stream = Stream();
    const std::int64_t begin = Begin(stream), end = begin + Time(60);
    CopyAt(1, begin, end, 64, Call("cudaMemcpyAsync", now_, now_ + Time(20), ++correlation_), stream, 1);
    free_[stream - 7] = end;
  }
  void Wait() {
    const std::uint32_t of = Stream(), by = Stream();
    const std::uint64_t record = ++correlation_, wait = ++correlation_;
    for (const bool waits : {false, true})
      tables.sync.Append({.begin_ns = now_,
                          .kind = static_cast<std::uint8_t>(waits ? 2 : 5),
                          .stream = waits ? by : of,
                          .correlation = waits ? wait : record,
                          .vendor = 1,
                          .record_correlation = waits ? record : 0,
                          .record_stream = waits ? of : schema::kNone});
  }

  // Of functions that call each other and themselves.
  void Samples() {
    static constexpr std::string_view kNames[] = {"main", "collate", "work"};
    for (std::uint64_t i = 0, n = 1 + Below(6); i < n; ++i)
      tables.stacks.Append({.parent = i == 0 ? schema::kNone : static_cast<std::uint32_t>(Below(i)),
                            .function = Intern(kNames[Below(3)]),
                            .file = Intern("train.py"),
                            .line = static_cast<std::uint32_t>(Below(9)),
                            .python = 1,
                            .library = 0});
    for (std::int64_t at = 0; at < 450; at += 1 + Time(60))
      tables.samples.Append(
          {.time_ns = at,
           .thread = 0,
           .stack = Below(4) == 0 ? schema::kNone : static_cast<std::uint32_t>(Below(tables.stacks.rows())),
           .stopped_ns = 1});
  }

  void Blocks() {
    for (std::int64_t at = 0; at < 450; at += 30 + Time(60))
      tables.blocked.Append({.begin_ns = at,
                             .duration_ns = 1 + Time(80),
                             .thread = 0,
                             .kind = static_cast<std::uint8_t>(Below(10)),
                             .function = Intern("recv"),
                             .waker = schema::kNone,
                             .woken_ns = schema::kNoTime,
                             .others_cpu_ns = Below(2) == 0 ? -1 : Time(80),
                             .module = Intern("libx.so"),
                             .detail = schema::kNone,
                             .caller = Below(2) == 0 ? schema::kNone : static_cast<std::uint32_t>(Below(2))});
  }

  std::mt19937& random_;
  std::uint64_t correlation_ = 1;
  std::int64_t now_ = 20, free_[4] = {0, 0, 0, 0};
};

TEST(RandomRanks, NoShareIsMoreThanTheWhole) {
  std::mt19937 random(20'261);
  std::set<std::string> seen;
  for (int round = 0, rounds = test::Runs(100, 300); round < rounds; ++round) {
    std::vector<std::unique_ptr<RandomRank>> ranks;
    std::vector<const test::HandMade*> made;
    std::vector<Interval> windows;
    for (std::size_t i = 0, n = 1 + random() % 3; i < n; ++i) {
      ranks.push_back(std::make_unique<RandomRank>(random));
      made.push_back(ranks.back().get());
      const std::int64_t begin = static_cast<std::int64_t>(random() % 300);
      windows.push_back({begin, begin + 1 + static_cast<std::int64_t>(random() % 500)});
    }
    merge::Timeline timeline = TimelineOf(made, windows);
    // Others waited for a rank.
    schema::TlCollectives& collectives = timeline.tables.collectives;
    collectives.Resize(1);
    collectives.last_rank[0] = static_cast<std::int32_t>(random() % made.size());
    collectives.splits[0] = 1;
    collectives.last_arrival_ns[0] = static_cast<std::int64_t>(random() % 450);
    collectives.charge_ns[0] = static_cast<std::int64_t>(random() % 300);
    collectives.seen[0] = collectives.expected[0] = static_cast<std::uint32_t>(made.size());
    for (std::size_t r = 0; r < made.size(); ++r)
      timeline.tables.collective_ranks.Append({.collective = 0,
                                               .rank = static_cast<std::int32_t>(r),
                                               .row = 0,
                                               .arrival_ns = 100 * static_cast<std::int64_t>(r),
                                               .end_high_ns = 1000,
                                               .wait_ns = static_cast<std::int64_t>(random() % 300)});
    timeline = merge::MakeTimeline("", std::move(timeline.tables));
    TableOptions options;
    options.every_rank = true;
    options.top = 0;
    if (random() % 2 == 0) options.first_step = 1, options.last_step = 1;
    for (const TableKind& kind : TableKinds()) {
      const Table table = Make(kind.name, timeline, made, options);
      for (const TableRow& row : table.rows)
        for (std::size_t c = 0; c < row.size(); ++c) {
          if (table.columns[c].kind != ColumnKind::kFraction || !Known(row[c])) continue;
          seen.insert(table.name + "." + table.columns[c].name);
          const double share = RealOf(row[c], -1);
          EXPECT_TRUE(share >= 0 && share <= 1) << table.name << "." << table.columns[c].name << " " << share;
        }
      if (HasFailure()) return;
    }
  }
  // All columns that are shares have been looked at.
  for (const TableKind& kind : TableKinds())
    for (const TableColumn& column : kind.columns->list()) {
      if (column.kind != ColumnKind::kFraction) continue;
      EXPECT_TRUE(seen.contains(std::string(kind.name) + "." + column.name)) << kind.name << "." << column.name;
    }
}

}  // namespace
}  // namespace lockstep::tables
