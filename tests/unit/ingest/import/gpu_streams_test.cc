// GPU times that cannot be: what is left out, cut, counted.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "ingest/kineto/map/rank_import.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

// Times in whole microseconds after `base_us`.
class Trace {
 public:
  explicit Trace(std::int64_t base_us = 1'700'000'000'000'000) : base_us_(base_us) {}
  Trace& Launch(std::int64_t at_us, int correlation) {
    return Add("cuda_runtime", "cudaLaunchKernel", base_us_ + at_us, 5,
               "\"correlation\": " + std::to_string(correlation));
  }
  Trace& Kernel(std::int64_t ts_us, std::int64_t us, int correlation, int stream = 7, const std::string& more = "",
                const std::string& name = "gemm") {
    return Add("kernel", name, ts_us, us,
               "\"device\": 0, \"context\": 1, \"stream\": " + std::to_string(stream) +
                   ", \"correlation\": " + std::to_string(correlation) + more);
  }
  Trace& At(std::int64_t at_us, std::int64_t us, int correlation = 0, int stream = 7, const std::string& more = "") {
    return Kernel(base_us_ + at_us, us, correlation, stream, more);
  }
  ImportedTrace Imported() const {
    TraceOptions options;
    options.jobs = 1;
    options.source = "text";
    auto trace = ImportTraceText("{\"traceEvents\": [" + events_ + "]}", options);
    EXPECT_TRUE(trace.ok());
    EXPECT_EQ(trace.value().size(), 1u);
    return std::move(trace.value().front());
  }

 private:
  Trace& Add(const std::string& category, const std::string& name, std::int64_t ts_us, std::int64_t us,
             const std::string& args) {
    events_ += (events_.empty() ? "" : ", ") + std::string("{\"ph\": \"X\", \"cat\": \"") + category +
               "\", \"name\": \"" + name + "\", \"ts\": " + std::to_string(ts_us) + ", \"dur\": " + std::to_string(us) +
               ", \"pid\": 1, \"tid\": 1, \"args\": {" + args + "}}";
    return *this;
  }
  std::int64_t base_us_;
  std::string events_;
};

std::uint64_t CountOf(const schema::RankTables& t, std::string_view name) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < t.losses.rows(); ++i)
    if (lockstep::trace::TextOf(t, t.losses.name[i]) == name) count += t.losses.count[i];
  return count;
}

std::int64_t BusyNs(const schema::RankTables& t) {
  return std::accumulate(t.kernels.duration_ns.begin(), t.kernels.duration_ns.end(), std::int64_t{0});
}

TEST(Untimed, GpuOperationsAreLeftOut) {
  Trace trace;
  for (int i = 1; i <= 20; ++i) trace.Launch(100 * i, i);
  for (int i = 1; i <= 20; ++i)
    if (i % 5 == 0)
      trace.Kernel(0, 0, i, 7, "", "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
    else if (i == 11)
      trace.Kernel(1000, 50, i);  // A time that was lost on the way.
    else
      trace.At(100 * i + 10, 50, i, 7, i % 2 == 0 ? ", \"graph node id\": 3" : "");
  trace.Kernel(0, 0, 99);  // Its launch is not there.
  const auto imported = trace.Imported();
  EXPECT_EQ(imported.tables.kernels.rows(), 15u);
  EXPECT_EQ(CountOf(imported.tables, "ImportTimeMissing"), 6u);
  EXPECT_EQ(imported.tables.collectives.rows(), 0u);
  EXPECT_GT(*std::ranges::min_element(imported.tables.kernels.begin_ns), 1'600'000'000'000'000'000);
}

// Traces whose times begin at 0, and waits of days, lose nothing.
TEST(Untimed, TimesNearTheOthersStay) {
  Trace trace(0);
  constexpr std::int64_t kDayUs = 86'400'000'000;
  trace.Launch(0, 1).Launch(20, 2).Launch(5 * kDayUs, 3);
  trace.At(0, 10, 1).At(30, 10, 2).At(5 * kDayUs + 10, 10, 3);
  const auto imported = trace.Imported();
  EXPECT_EQ(imported.tables.kernels.rows(), 3u);
  EXPECT_EQ(CountOf(imported.tables, "ImportTimeMissing"), 0u);
}

TEST(Streams, AnOperationLongerThanItsTurnIsCut) {
  Trace trace;
  for (int i = 0; i < 40; ++i) trace.At(210 * i, i == 20 ? 7400 : 200);
  const auto imported = trace.Imported();
  EXPECT_EQ(CountOf(imported.tables, "GpuStreamOverlaps"), 1u);
  EXPECT_EQ(BusyNs(imported.tables), 39 * 200'000 + 210'000);
}

// Programmatic dependent launch begins early; branches of a graph and other streams run side by side.
TEST(Streams, WhatMayOverlapStays) {
  Trace trace;
  for (int i = 0; i < 40; ++i) trace.At(200 * i, 230);
  for (int i = 0; i < 40; ++i) trace.At(200 * i + 20, 50, 0, 9);
  for (int i = 0; i < 40; ++i) trace.At(200 * i, 190, 0, 11, ", \"graph node id\": 5");
  for (int i = 0; i < 40; ++i) trace.At(200 * i + 10, 20, 0, 11, ", \"graph node id\": 6");
  const auto imported = trace.Imported();
  EXPECT_EQ(CountOf(imported.tables, "GpuStreamOverlaps"), 0u);
  EXPECT_EQ(BusyNs(imported.tables), 40 * (230'000 + 50'000 + 190'000 + 20'000));
}

// Several streams under one number: nothing tells which of them is wrong.
TEST(Streams, WhereManyOverlapTimesStay) {
  Trace trace;
  for (int i = 0; i < 40; ++i) trace.At(200 * i, 190).At(200 * i + 10, 50);
  const auto imported = trace.Imported();
  EXPECT_EQ(CountOf(imported.tables, "GpuStreamOverlaps"), 40u);
  EXPECT_EQ(BusyNs(imported.tables), 40 * 240'000);
}

}  // namespace
}  // namespace lockstep::ingest
