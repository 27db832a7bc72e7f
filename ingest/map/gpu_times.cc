#include "ingest/map/gpu_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>

#include "ingest/map/gpu_streams.h"
#include "ingest/map/launches.h"
#include "trace/decode/gpu_clock_shift.h"

namespace lockstep::ingest {
namespace {

std::string Of(std::uint64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string Us(std::int64_t ns) { return fmt::format("{:.1f} us", static_cast<double>(ns) / 1e3); }

std::string Reasons(std::uint64_t starts, std::uint64_t returns) {
  std::string text;
  if (starts > 0) text = Of(starts, "operation begins before its launch", "operations begin before their launch");
  if (returns > 0)
    text += (text.empty() ? "" : ", ") + Of(returns, "wait ends before the work that it waited for",
                                            "waits end before the work that they waited for");
  return text;
}

}  // namespace

std::int64_t AlignGpuTimes(MappedTrace& trace, RankFinish& finish) {
  LeaveOutUntimed(trace, finish);
  CutWithinStreams(trace, finish);
  schema::RankTables& t = trace.tables;
  std::map<std::uint16_t, std::int64_t> moves;
  std::int64_t moved_ns = 0, error_ns = 0;
  std::size_t devices = 0;
  for (const trace::GpuClockEvidence& evidence : trace::CompareGpuTimes(t)) {
    ++devices;
    const trace::GpuClockShift shift = trace::FindShift(evidence);
    const std::string reasons = Reasons(shift.starts, shift.returns);
    if (shift.move_ns != 0) {
      moves.emplace(shift.device, shift.move_ns);
      moved_ns = std::max(moved_ns, std::abs(shift.move_ns));
      finish.Lose(Loss::kGpuTimesMoved, shift.starts + shift.returns,
                  fmt::format("GPU {}: by {} to {} times: {}", shift.device, Us(std::abs(shift.move_ns)),
                              shift.move_ns > 0 ? "later" : "earlier", reasons));
    }
    if (shift.error_ns > 0) {
      error_ns = std::max(error_ns, shift.error_ns);
      finish.Lose(Loss::kGpuClockContradicts, shift.starts + shift.returns,
                  fmt::format("GPU {}: by up to {}{}{}", shift.device, Us(shift.error_ns),
                              shift.move_ns != 0 ? " after that" : ": ", shift.move_ns != 0 ? "" : reasons));
    }
    const std::string odd = fmt::format("GPU {}: by up to {}", shift.device, Us(shift.odd_ns));
    if (shift.odd_starts > 0) finish.Lose(Loss::kLaunchAfterStart, shift.odd_starts, odd);
    if (shift.odd_returns > 0) finish.Lose(Loss::kSyncBeforeEnd, shift.odd_returns, odd);
  }
  if (moved_ns > 0) finish.Add("gpu_clock_moved_ns", std::to_string(moved_ns));
  if (error_ns > 0) {
    finish.Add("gpu_clock_contradicts_ns", std::to_string(error_ns));
    finish.Add("gpu_clock_error_ns", std::to_string(error_ns));
  }
  if (moves.empty()) return 0;
  const auto move = [&](auto& table) {
    for (std::size_t i = 0; i < table.rows(); ++i)
      if (const auto by = moves.find(table.device[i]); by != moves.end())
        table.begin_ns[i] = Shifted(table.begin_ns[i], by->second);
  };
  move(t.kernels), move(t.copies);
  return devices == 1 ? moves.begin()->second : 0;
}

}  // namespace lockstep::ingest
