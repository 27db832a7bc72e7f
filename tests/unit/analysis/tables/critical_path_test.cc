// The critical path of windows written by hand: what it runs along and what it sums to.

#include "analysis/gpu/critical_path.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "gpu_events.h"

namespace lockstep::tables {
namespace {

using test::GpuEvents;

// Sums by "category name"; checks that the pieces tile the window.
std::map<std::string, std::int64_t> PathOf(const GpuEvents& rank, Interval window, std::int64_t explained) {
  gpu::RankView view;
  view.tables = rank.tables;
  view.classes = merge::ClassifyKernels(view.tables, view.tables.collectives, false);
  view.windows = {window};
  const gpu::DeviceActivity activity(view);
  gpu::CriticalPathFinder finder(activity);
  const gpu::CriticalPath path = finder.Find(window);
  std::int64_t now = window.begin;
  for (const gpu::PathPiece& piece : path.pieces) {
    EXPECT_EQ(piece.begin_ns, now);
    now = piece.end_ns;
  }
  EXPECT_EQ(now, window.end);
  EXPECT_EQ(path.explained_ns, explained);
  std::map<std::string, std::int64_t> sums;
  std::int64_t all = 0;
  for (const auto& share : finder.Shares(path)) {
    sums[std::string(gpu::PathCategoryName(share.category)) + " " + std::string(share.name)] += share.ns;
    all += share.ns;
  }
  EXPECT_EQ(all, window.end - window.begin);
  return sums;
}

using Sums = std::map<std::string, std::int64_t>;

TEST(CriticalPath, AlongTheGpuWhenItIsBusy) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 100, 5);
  rank.Launched("b", 102, 200, 7);
  rank.Launched("ncclDevKernel_AllReduce", 203, 300, 9);
  rank.Op(0, "aten::mm", 4, 10);
  EXPECT_EQ(PathOf(rank, {0, 300'000}, 300'000), (Sums{{"cpu outside ranges", 4'000},
                                                       {"cpu aten::mm", 1'000},
                                                       {"launch cudaLaunchKernel", 5'000},
                                                       {"compute a", 90'000},
                                                       {"compute b", 98'000},
                                                       {"kernel_gap from one kernel to the next", 5'000},
                                                       {"communication ncclDevKernel_AllReduce", 97'000}}));
}

TEST(CriticalPath, AlongTheHostWhenLaunchesAreLate) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 20, 5);
  rank.Op(0, "aten::slow", 6, 80);
  rank.Launched("b", 90, 100, 85);
  EXPECT_EQ(PathOf(rank, {0, 100'000}, 100'000), (Sums{{"cpu outside ranges", 11'000},
                                                       {"cpu aten::slow", 74'000},
                                                       {"launch cudaLaunchKernel", 5'000},
                                                       {"compute b", 10'000}}));
}

TEST(CriticalPath, ThroughASync) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 100, 5);
  rank.Op(0, "aten::item", 6, 103);
  rank.Call("cudaStreamSynchronize", 7, 102);
  rank.Launched("b", 110, 120, 105);
  // a ends at 100: the host returns from the call at 102 and from the operator at 103.
  EXPECT_EQ(PathOf(rank, {0, 120'000}, 120'000), (Sums{{"cpu outside ranges", 7'000},
                                                       {"cpu aten::item", 3'000},
                                                       {"launch cudaLaunchKernel", 10'000},
                                                       {"compute a", 90'000},
                                                       {"compute b", 10'000}}));
}

TEST(CriticalPath, FromStreamToStream) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 50, 5, 7);
  rank.Launched("ncclDevKernel_AllGather", 51, 150, 6, 20);
  rank.Launched("b", 152, 200, 8, 7);
  EXPECT_EQ(PathOf(rank, {10'000, 200'000}, 190'000), (Sums{{"compute a", 40'000},
                                                            {"kernel_gap from one kernel to the next", 3'000},
                                                            {"communication ncclDevKernel_AllGather", 99'000},
                                                            {"compute b", 48'000}}));
}

TEST(CriticalPath, FromForwardsThreadToBackwards) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Op(0, "forward", 0, 50);
  rank.Launched("f", 41, 45, 40, 7, 0);
  rank.Op(1, "backward", 55, 100);
  rank.Launched("b", 92, 110, 90, 7, 1);
  EXPECT_EQ(PathOf(rank, {0, 110'000}, 110'000), (Sums{{"cpu forward", 50'000},
                                                       {"cpu outside ranges", 5'000},
                                                       {"cpu backward", 35'000},
                                                       {"launch cudaLaunchKernel", 2'000},
                                                       {"compute b", 18'000}}));
}

TEST(CriticalPath, WaitingThatNothingExplains) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 0, 10, -5);
  rank.Launched("b", 500, 510, -4);  // Launched before the window, started far too late.
  EXPECT_EQ(PathOf(rank, {0, 520'000}, 20'000), (Sums{{"compute a", 10'000},
                                                      {"launch queued, started late", 490'000},
                                                      {"compute b", 10'000},
                                                      {"other after the last GPU operation", 10'000}}));
}

TEST(CriticalPath, AStepEndsWhereTheNextBegins) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", -20, 40, -25);  // Runs already.
  rank.Launched("b", 41, 95, 1);
  rank.Launched("c", 100, 120, 2);
  EXPECT_EQ(PathOf(rank, {0, 100'000}, 100'000),
            (Sums{{"compute a", 40'000}, {"kernel_gap from one kernel to the next", 6'000}, {"compute b", 54'000}}));
}

TEST(CriticalPath, OneLaunchOfAGraph) {
  GpuEvents rank;
  rank.us = 1000;
  const std::uint64_t graph = rank.Call("cudaGraphLaunch", 5, 8);
  rank.KernelAt("x", 12, 30, graph, 7);
  rank.KernelAt("y", 31, 60, graph, 8);
  EXPECT_EQ(PathOf(rank, {0, 60'000}, 60'000), (Sums{{"cpu outside ranges", 5'000},
                                                     {"launch cudaGraphLaunch", 7'000},
                                                     {"compute x", 18'000},
                                                     {"kernel_gap from one kernel to the next", 1'000},
                                                     {"compute y", 29'000}}));
}

TEST(CriticalPath, ClocksThatDisagreeStillTile) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("early", 10, 60, 12);          // Starts before its launch.
  rank.Call("cudaDeviceSynchronize", 14, 59);  // Returns before it ends.
  rank.Launched("b", 70, 80, 65);
  const Sums sums = PathOf(rank, {0, 80'000}, 70'000);
  EXPECT_EQ(sums.at("compute early"), 49'000);
}

// By the trace's clocks the call returns 5 us before what it waited for: spinning explains nothing, the GPU does.
TEST(CriticalPath, AHostThatSpinsInASyncDoesNoWork) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 100, 5);
  rank.Op(0, "aten::item", 6, 96);
  rank.Call("cudaDeviceSynchronize", 7, 95);
  rank.Launched("b", 110, 120, 105);
  EXPECT_EQ(PathOf(rank, {0, 120'000}, 110'000), (Sums{{"cpu outside ranges", 5'000},
                                                       {"launch cudaLaunchKernel", 5'000},
                                                       {"compute a", 90'000},
                                                       {"other GPU idle, next operation not launched", 10'000},
                                                       {"compute b", 10'000}}));
}

// It was released at 20 as far as the trace shows, and stays for 80 us: waiting for what the trace does not show.
TEST(CriticalPath, ASyncThatStaysIsNoWork) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 10, 20, 5);
  rank.Call("cudaDeviceSynchronize", 7, 100);
  rank.Launched("b", 110, 120, 105);
  const Sums sums = PathOf(rank, {0, 120'000}, 40'000);
  EXPECT_EQ(sums.at("sync outside ranges"), 80'000);
  EXPECT_EQ(sums.at("cpu outside ranges"), 10'000);
}

TEST(CriticalPath, WithoutGpuInTheWindow) {
  GpuEvents rank;
  rank.us = 1000;
  rank.Launched("a", 500, 510, 400);
  rank.Op(0, "aten::mm", 10, 20);
  EXPECT_EQ(PathOf(rank, {0, 100'000}, 100'000), (Sums{{"cpu outside ranges", 90'000}, {"cpu aten::mm", 10'000}}));
}

}  // namespace
}  // namespace lockstep::tables
