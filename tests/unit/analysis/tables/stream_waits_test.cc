// Waits of streams: what each operation and each waiting call waited for, by hand.

#include "analysis/gpu/stream_waits.h"

#include <gtest/gtest.h>

#include "analysis/gpu/device_gaps.h"
#include "gpu_events.h"

namespace lockstep::tables {
namespace {

using test::At;
using test::GpuEvents;
using test::HandMade;
using test::Make;
using test::TimelineOf;

constexpr std::uint32_t kNone = schema::kNone;

// Correlations are given, so that they say the order of the calls.
class Waiting : public GpuEvents {
 public:
  void Kernel(std::string_view name, std::int64_t begin, std::int64_t end, std::uint64_t correlation,
              std::uint32_t stream, std::uint16_t device = 0) {
    Call("cudaLaunchKernel", static_cast<std::int64_t>(correlation), static_cast<std::int64_t>(correlation) + 1,
         correlation);
    KernelAt(name, begin, end, correlation, stream);
    tables.kernels.device.back() = device;
  }
  std::uint32_t Sync(std::uint8_t kind, std::uint64_t correlation, std::uint32_t stream, std::uint64_t record = 0,
                     std::uint32_t record_stream = kNone, std::uint16_t device = 0) {
    tables.sync.Append({.begin_ns = static_cast<std::int64_t>(correlation),
                        .kind = kind,
                        .device = device,
                        .stream = stream,
                        .correlation = correlation,
                        .vendor = 1,
                        .record_correlation = record,
                        .record_stream = record_stream});
    return static_cast<std::uint32_t>(tables.sync.rows() - 1);
  }
  // A wait of a stream, and the record it waits for as captured runs have it.
  std::uint32_t Wait(std::uint64_t correlation, std::uint32_t stream, std::uint64_t record,
                     std::uint32_t record_stream) {
    Sync(5, record, record_stream);
    return Sync(2, correlation, stream, record, record_stream);
  }
};

struct Found {
  explicit Found(const Waiting& rank)
      : timeline(TimelineOf({&rank}, {{0, 10'000}})),
        view(ViewOf(rank)),
        activity(view),
        waits(gpu::FindStreamWaits(view.tables, activity.timeline)) {}
  static gpu::RankView ViewOf(const Waiting& rank) {
    gpu::RankView view;
    view.rank = 0;
    view.tables = rank.tables;
    view.classes.assign(rank.tables.kernels.rows(), merge::KernelClass::kCompute);
    view.windows = {{0, 10'000}};
    return view;
  }
  std::string Name(std::uint32_t op) const { return op == kNone ? "" : gpu::OpName(view, activity.timeline.ops[op]); }
  std::uint32_t Op(std::string_view name) const {
    for (std::uint32_t i = 0; i < activity.timeline.ops.size(); ++i)
      if (Name(i) == name) return i;
    return kNone;
  }
  std::string HeldBy(std::string_view name) const { return Name(waits.held_by[Op(name)]); }
  std::int64_t HeldFor(std::string_view name) const { return waits.held_ns[Op(name)]; }

  merge::Timeline timeline;
  gpu::RankView view;
  gpu::DeviceActivity activity;
  gpu::StreamWaits waits;
};

TEST(StreamWaits, NothingToldNothingFound) {
  Waiting rank;
  rank.Kernel("a", 100, 200, 1, 7);
  rank.Sync(2, 2, 20);  // A wait, for nobody knows what.
  rank.Sync(3, 3, 7);
  EXPECT_FALSE(Found(rank).waits.told);
  EXPECT_TRUE(Found(rank).waits.held_by.empty());
}

TEST(StreamWaits, WaitsForWhatWasAskedBeforeTheRecord) {
  Waiting rank;
  rank.Kernel("first", 100, 200, 1, 7);
  rank.Kernel("second", 200, 400, 2, 7);
  rank.Wait(4, 20, 3, 7);
  rank.Kernel("behind the record", 400, 900, 5, 7);  // Later on that stream: not waited for.
  rank.Kernel("held", 401, 500, 6, 20);
  rank.Kernel("next", 500, 600, 7, 20);  // Its stream had passed that wait already.
  const Found found(rank);
  EXPECT_TRUE(found.waits.told);
  EXPECT_EQ(found.HeldBy("held"), "second");
  EXPECT_EQ(found.HeldFor("held"), 400 - 7) << "from its launch call's end";
  EXPECT_EQ(found.HeldBy("next"), "");
  EXPECT_EQ(found.HeldBy("first"), "");
}

TEST(StreamWaits, ChainsThroughStreamsWithoutWork) {
  Waiting rank;
  rank.Kernel("source", 100, 300, 1, 7);
  rank.Wait(3, 14, 2, 7);   // Stream 14 does nothing but wait,
  rank.Wait(5, 20, 4, 14);  // and stream 20 waits for stream 14.
  rank.Kernel("held", 302, 400, 6, 20);
  const Found found(rank);
  EXPECT_EQ(found.HeldBy("held"), "source");
  EXPECT_EQ(found.HeldFor("held"), 300 - 7);
}

TEST(StreamWaits, TheLastOfSeveralWaitsAndNothingIfItHadEnded) {
  Waiting rank;
  rank.Kernel("long", 100, 800, 1, 7);
  rank.Kernel("short", 100, 300, 2, 8);
  rank.Wait(4, 20, 3, 7);
  rank.Wait(6, 20, 5, 8);
  rank.Kernel("held", 801, 900, 7, 20);
  rank.Wait(9, 21, 8, 8);
  rank.Kernel("own work", 400, 700, 10, 22);
  rank.Wait(12, 22, 11, 8);
  rank.Kernel("not held", 700, 750, 13, 22);  // What it waits for ended before its own stream was free.
  const Found found(rank);
  EXPECT_EQ(found.HeldBy("held"), "long");
  EXPECT_EQ(found.HeldBy("not held"), "short");
  EXPECT_EQ(found.HeldFor("not held"), 0);
}

TEST(StreamWaits, UnknownRecordsAreSaid) {
  Waiting rank;
  rank.Kernel("a", 100, 200, 1, 7);
  rank.Wait(3, 20, 2, 7);
  rank.Kernel("known", 201, 300, 4, 20);
  rank.Sync(2, 5, 20);  // For a record of before the capture.
  rank.Kernel("unknown", 300, 400, 6, 20);
  const Found found(rank);
  EXPECT_FALSE(found.waits.unknown[found.Op("known")]);
  EXPECT_TRUE(found.waits.unknown[found.Op("unknown")]);
}

TEST(StreamWaits, HostWaitsForEventAndStream) {
  Waiting rank;
  rank.Kernel("compute", 100, 500, 1, 7);
  rank.Wait(3, 20, 2, 7);
  rank.Kernel("comm", 501, 700, 4, 20);
  rank.Sync(5, 5, 20);
  const auto event = rank.Sync(1, 6, kNone, 5, 20);
  const auto stream = rank.Sync(3, 7, 7);
  rank.Wait(9, 14, 8, 20);
  const auto waits_only = rank.Sync(3, 10, 14);  // Nothing ran there, but it waits for stream 20.
  const auto device = rank.Sync(4, 11, kNone);
  const Found found(rank);
  EXPECT_EQ(found.Name(found.waits.released_by[event]), "comm");
  EXPECT_EQ(found.Name(found.waits.released_by[stream]), "compute");
  EXPECT_EQ(found.Name(found.waits.released_by[waits_only]), "comm");
  EXPECT_TRUE(found.waits.known[event] && found.waits.known[stream] && found.waits.known[waits_only]);
  EXPECT_FALSE(found.waits.known[device]);
}

TEST(StreamWaits, RecordsOfOtherDevicesAndIdleTime) {
  Waiting rank;
  rank.Kernel("here", 100, 200, 1, 7, 0);
  rank.Kernel("there", 100, 600, 2, 7, 1);
  rank.Sync(5, 3, 7, 0, kNone, 1);
  rank.Sync(2, 4, 7, 3, 7, 0);  // Stream 7 of device 0 waits for stream 7 of device 1.
  rank.Kernel("held", 602, 700, 5, 7, 0);
  const Found found(rank);
  EXPECT_EQ(found.HeldBy("held"), "there");
  EXPECT_EQ(found.HeldFor("held"), 400);
  const gpu::DeviceGaps gaps = gpu::FindGaps(found.activity);
  bool seen = false;
  for (const gpu::Gap& gap : gaps.gaps)
    if (gap.device == 0 && gap.at.begin == 200) {
      EXPECT_EQ(gap.at.end, 602);
      // Held until what the other device did had ended, then started.
      const auto ns = gpu::NsByKind(gaps, gap);
      EXPECT_EQ(ns[static_cast<std::size_t>(gpu::PartKind::kStreamWait)], 400);
      EXPECT_EQ(ns[static_cast<std::size_t>(gpu::PartKind::kStart)], 2);
      seen = true;
    }
  EXPECT_TRUE(seen);
}

TEST(StreamWaits, Table) {
  Waiting rank;
  rank.Kernel("compute", 100, 500, 1, 7);
  rank.Wait(3, 20, 2, 7);
  rank.Kernel("held", 501, 700, 4, 20);
  rank.Wait(6, 7, 5, 20);
  rank.Kernel("held too", 703, 800, 7, 7);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 1'000}});
  const Table table = Make("stream-waits", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(At(table, 0, "stream"), Cell(std::int64_t{20}));
  EXPECT_EQ(At(table, 0, "waits_for"), Cell(std::int64_t{7}));
  EXPECT_EQ(At(table, 0, "held_ns"), Cell(std::int64_t{495}));
  EXPECT_EQ(At(table, 1, "held_ns"), Cell(std::int64_t{200}));
  EXPECT_EQ(At(table, 1, "held"), Cell(std::int64_t{1}));
  EXPECT_EQ(At(table, 1, "share"), Cell(0.2));
}

// What begins in the window may have been held back for longer than the window is.
TEST(StreamWaits, ShareIsOfTheWindow) {
  Waiting rank;
  rank.Kernel("compute", 100, 500, 1, 7);
  rank.Wait(3, 20, 2, 7);
  rank.Kernel("held", 501, 700, 4, 20);
  const merge::Timeline timeline = TimelineOf({&rank}, {{460, 560}});
  const Table table = Make("stream-waits", timeline, {&rank});
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(At(table, 0, "held_ns"), Cell(std::int64_t{495}));
  EXPECT_EQ(At(table, 0, "held_in_window_ns"), Cell(std::int64_t{40}));
  EXPECT_EQ(At(table, 0, "share"), Cell(0.4));
}

// Where the trace tells of waits, a stream that happened to begin when another ended did not wait for it.
TEST(StreamWaits, ThePathGuessesNothingWhereItIsTold) {
  Waiting rank;
  rank.us = 1'000;
  rank.Kernel("long", 100, 500, 1, 7);
  rank.Kernel("elsewhere", 100, 502, 2, 8);
  rank.Wait(4, 20, 3, 7);
  rank.Kernel("held", 505, 900, 5, 20);
  const merge::Timeline timeline = TimelineOf({&rank}, {{0, 900'000}});
  const Table told = Make("critical-ops", timeline, {&rank});
  EXPECT_GE(test::FindRow(told, "name", Cell(std::string("long"))), 0);
  EXPECT_EQ(test::FindRow(told, "name", Cell(std::string("elsewhere"))), -1);
  for (std::uint64_t& record : rank.tables.sync.record_correlation) record = 0;
  const Table guessed = Make("critical-ops", timeline, {&rank});
  EXPECT_GE(test::FindRow(guessed, "name", Cell(std::string("elsewhere"))), 0);
  EXPECT_EQ(test::FindRow(guessed, "name", Cell(std::string("long"))), -1);
}

}  // namespace
}  // namespace lockstep::tables
