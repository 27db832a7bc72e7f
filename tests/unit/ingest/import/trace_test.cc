// JSON text -> tables of a rank.

#include <gtest/gtest.h>

#include <string>

#include "ingest/kineto/map/rank_import.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

ImportedTrace Imported(const std::string& events, const std::string& before = "", unsigned jobs = 1) {
  TraceOptions options;
  options.jobs = jobs;
  options.source = "text";
  auto trace = ImportTraceText("{" + before + "\"traceEvents\": [" + events + "]}", options);
  EXPECT_TRUE(trace.ok());
  EXPECT_EQ(trace.value().size(), 1u);
  return std::move(trace.value().front());
}

std::string Event(const std::string& category, const std::string& name, const std::string& ts, const std::string& dur,
                  const std::string& args = "{}", int tid = 1, int pid = 1) {
  return "{\"ph\": \"X\", \"cat\": \"" + category + "\", \"name\": \"" + name + "\", \"ts\": " + ts +
         ", \"dur\": " + dur + ", \"pid\": " + std::to_string(pid) + ", \"tid\": " + std::to_string(tid) +
         ", \"args\": " + args + "}";
}

std::uint64_t LossOf(const schema::RankTables& t, std::string_view name) {
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < t.losses.rows(); ++i)
    if (lockstep::trace::TextOf(t, t.losses.name[i]) == name) count += t.losses.count[i];
  return count;
}

TEST(ImportTrace, TimesAreExactNanoseconds) {
  const auto trace =
      Imported(Event("kernel", "k", "4458676522690.655", "156.777"), "\"baseTimeNanoseconds\": 1711964646000000000, ");
  ASSERT_EQ(trace.tables.kernels.rows(), 1u);
  EXPECT_EQ(trace.tables.kernels.begin_ns[0], 1711964646000000000 + 4458676522690655);
  EXPECT_EQ(trace.tables.kernels.duration_ns[0], 156777);
}

TEST(ImportTrace, DepthByThread) {
  const auto trace = Imported(Event("cpu_op", "child", "10", "5") + "," + Event("cpu_op", "parent", "10", "20") + "," +
                              Event("cpu_op", "other", "12", "1", "{}", 2) + "," + Event("cpu_op", "next", "30", "5"));
  const schema::Ranges& r = trace.tables.ranges;
  ASSERT_EQ(r.rows(), 4u);
  EXPECT_EQ(r.depth[0], 1);
  EXPECT_EQ(r.depth[1], 0);
  EXPECT_EQ(r.depth[2], 0);
  EXPECT_EQ(r.depth[3], 0);
  EXPECT_EQ(trace.tables.threads.rows(), 2u);
  EXPECT_EQ(trace.tables.threads.training[0], 1);
}

TEST(ImportTrace, ModuleLaunchesOfAmdGiveThreads) {
  const auto trace = Imported(Event("cuda_runtime", "hipExtModuleLaunchKernel", "1", "1",
                                    R"({"correlation": 5, "grid": [1024, 1, 1], "block": [256, 1, 1]})") +
                              "," +
                              Event("cuda_runtime", "hipLaunchKernel", "3", "1",
                                    R"({"correlation": 6, "grid": [1024, 1, 1], "block": [256, 1, 1]})") +
                              "," + Event("kernel", "a", "5", "1", R"({"device": 0, "stream": 0, "correlation": 5})") +
                              "," + Event("kernel", "b", "7", "1", R"({"device": 0, "stream": 0, "correlation": 6})"));
  const schema::RankTables& t = trace.tables;
  ASSERT_EQ(t.kernels.rows(), 2u);
  EXPECT_EQ(t.kernel_shapes.grid_x[t.kernels.shape[0]], 4);
  EXPECT_EQ(t.kernel_shapes.grid_x[t.kernels.shape[1]], 1024);
  EXPECT_EQ(t.kernels.vendor[0], 2);
}

TEST(ImportTrace, IdsThatAreNone) {
  const auto trace = Imported(
      Event("cuda_sync", "Context Sync", "1", "1", R"({"stream": -1, "correlation": 3, "device": 0, "context": 1})") +
      "," +
      Event("cuda_sync", "Stream Wait Event", "2", "1",
            R"({"stream": 7, "wait_on_cuda_event_id": 9, "device": 0, "context": 1})"));
  const schema::Sync& s = trace.tables.sync;
  ASSERT_EQ(s.rows(), 2u);
  EXPECT_EQ(s.stream[0], schema::kNone);
  EXPECT_EQ(s.kind[0], 4);
  EXPECT_EQ(s.kind[1], 2);
  EXPECT_EQ(s.event[1], 9u);
}

TEST(ImportTrace, WaitsOfStreamsSayForWhichRecord) {
  const auto trace = Imported(
      Event("cuda_sync", "Stream Wait Event", "1", "1",
            R"({"stream": 20, "correlation": 12, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 11,)"
            R"( "wait_on_cuda_event_id": 4, "device": 0, "context": 1})") +
      "," +
      Event("cuda_sync", "Event Sync", "2", "1",
            R"({"stream": -1, "correlation": 14, "wait_on_stream": 20, "wait_on_cuda_event_record_corr_id": 13})") +
      "," +
      Event("cuda_sync", "Stream Wait Event", "3", "1",
            R"({"stream": 20, "correlation": 15, "wait_on_stream": -1, "wait_on_cuda_event_record_corr_id": -1})"));
  const schema::Sync& s = trace.tables.sync;
  ASSERT_EQ(s.rows(), 3u);
  EXPECT_EQ(s.record_correlation[0], 11u);
  EXPECT_EQ(s.record_stream[0], 7u);
  EXPECT_EQ(s.stream[0], 20u);
  EXPECT_EQ(s.kind[1], 1);
  EXPECT_EQ(s.record_correlation[1], 13u);
  EXPECT_EQ(s.record_stream[1], 20u);
  EXPECT_EQ(s.record_correlation[2], 0u) << "recorded before the trace began";
  EXPECT_EQ(s.record_stream[2], schema::kNone);
}

TEST(ImportTrace, MultiGpuProcessKeepsDevices) {
  const auto trace = Imported(Event("kernel", "k", "1", "1", R"({"device": 0, "stream": 7, "correlation": 1})") + "," +
                              Event("kernel", "k", "1", "1", R"({"device": 3, "stream": 7, "correlation": 2})"));
  ASSERT_EQ(trace.tables.devices.rows(), 2u);
  EXPECT_EQ(trace.tables.kernels.device[1], 3);
  EXPECT_EQ(LossOf(trace.tables, "ImportLaunchMissing"), 2u);
}

TEST(ImportTrace, BrokenArgumentsDoNotHarm) {
  const auto trace =
      Imported(Event("kernel", "ncclKernel_AllReduce_RING", "1", "1",
                     R"({"grid": "none", "block": [], "Process Group Ranks": "[a, b]", "Group size": -5,)"
                     R"( "Collective name": 7, "dtype": {}, "In msg nelems": "many", "stream": 4294967295})"));
  EXPECT_EQ(trace.tables.kernels.rows(), 1u);
  EXPECT_EQ(trace.tables.kernels.work[0], 1);
}

// The same columns whatever the batches were.
TEST(ImportTrace, BatchesLeaveNoTrace) {
  std::vector<kineto::Event> events;
  std::vector<std::string> names;
  for (int i = 0; i < 200; ++i) names.push_back("op " + std::to_string(i % 17));
  for (int i = 0; i < 200; ++i) {
    kineto::Event event;
    event.category = i % 3 == 0   ? kineto::Category::kKernel
                     : i % 3 == 1 ? kineto::Category::kCpuOp
                                  : kineto::Category::kRuntime;
    event.name = names[static_cast<std::size_t>(i)];
    event.begin_ns = 1000 * i, event.duration_ns = 500;
    event.pid = 1, event.tid = i % 5, event.correlation = i / 3 + 1;
    event.args =
        i % 2 == 0 ? R"({"grid": [1, 2, 3], "block": [4, 5, 6]})" : R"({"grid": [7, 2, 3], "block": [4, 5, 6]})";
    events.push_back(event);
  }
  const auto columns = [&](std::size_t size) {
    std::vector<std::vector<kineto::Event>> batches;
    for (std::size_t at = 0; at < events.size(); at += size)
      batches.emplace_back(events.begin() + static_cast<std::ptrdiff_t>(at),
                           events.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, events.size())));
    TraceOptions options;
    options.jobs = 2;
    const auto traces = ImportEvents(batches, {}, options);
    const ImportedTrace& trace = traces.value().front();
    std::string bytes;
    trace.tables.ForEachTable([&](const auto& table) {
      table.ForEachColumn([&](const schema::ColumnInfo&, const auto& values) {
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
      });
    });
    return bytes;
  };
  const std::string all = columns(1000);
  EXPECT_EQ(columns(1), all);
  EXPECT_EQ(columns(7), all);
}

}  // namespace
}  // namespace lockstep::ingest
