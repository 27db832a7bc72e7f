#include "trace/decode/decode_gpu_process.h"

#include <algorithm>
#include <charconv>

#include "core/fact.h"
#include "trace/decode/decode_gpu_clock.h"
#include "trace/decode/sort_rows.h"
#include "trace/file/strings.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// ProcessEntry::cupti_state
constexpr std::uint32_t kRecording = 1, kRefused = 2, kTaken = 3;
// A flush that the agent asked for is the last one if the process ended so soon after it.
constexpr std::int64_t kSoonNs = 2'000'000'000;

// The reason that the source recorded when it gave up.
std::string WhyRefused(const schema::RankTables& tables) {
  for (std::size_t i = 0; i < tables.meta.rows(); ++i) {
    const std::string_view key = TextOf(tables, tables.meta.key[i]);
    if (key != "fact.cupti" && !key.starts_with("fact.cupti.")) continue;
    const std::string line = "cupti\t" + std::string(TextOf(tables, tables.meta.value[i]));
    const std::string_view why = FactValue(line, "why"), remedy = FactValue(line, "remedy");
    if (!why.empty()) return std::string(why) + (remedy.empty() ? "" : "; ") + std::string(remedy);
  }
  return {};
}

// Meta gpu_clock.DEVICE: "LOW_NS HIGH_NS", "-" not known; gpu_clock_error_ns, gpu_clock_contradicts_ns: the largest
// of all devices.
void TellGpuClocks(ProcessDecoder& decoder, schema::RankTables& tables) {
  const auto number = [](std::int64_t ns) { return ns == kNoTime ? std::string("-") : std::to_string(ns); };
  std::int64_t error_ns = -1, contradicted_ns = 0;
  for (const GpuClock& clock : CompareGpuClocks(tables)) {
    const std::string gpu = "GPU " + std::to_string(clock.device);
    decoder.AddFact("gpu_clock." + std::to_string(clock.device), number(clock.low_ns) + " " + number(clock.high_ns));
    if (clock.bounded()) error_ns = std::max(error_ns, clock.error_ns());
    contradicted_ns = std::max(contradicted_ns, clock.contradicted_ns);
    if (!clock.bounded())
      decoder.AddLoss(Loss::kGpuClockUnbounded, 1,
                      gpu + (clock.low_ns == kNoTime ? ": the host never waited for it" : ": no launch was recorded"));
    decoder.AddLoss(Loss::kLaunchAfterStart, clock.early_starts,
                    gpu + ": by up to " + std::to_string(clock.early_start_ns) + " ns");
    decoder.AddLoss(Loss::kSyncBeforeEnd, clock.early_returns,
                    gpu + ": by up to " + std::to_string(clock.early_return_ns) + " ns");
  }
  if (error_ns >= 0) decoder.AddFact("gpu_clock_error_ns", std::to_string(error_ns));
  if (contradicted_ns > 0) decoder.AddFact("gpu_clock_contradicts_ns", std::to_string(contradicted_ns));
}

}  // namespace

void AddGpuLosses(ProcessDecoder& decoder, schema::RankTables& tables, const TickMap& map, const ProcessState& state,
                  std::uint64_t end_ticks) {
  TellGpuClocks(decoder, tables);
  TickConverter clock(map);
  const auto at = [&](std::uint64_t ticks) { return ticks == 0 ? kNoTime : clock.Ns(ticks); };
  const bool recorded = state.cupti_state == kRecording || state.cupti_state == kTaken;
  bool tail_lost = false;
  if (state.cupti_used != 0 && recorded) {
    const std::int64_t flushed = at(state.gpu_flushed_ticks);
    const std::int64_t end = at(state.end_ticks != 0 ? state.end_ticks : end_ticks);
    const bool answered = state.gpu_flush_wanted != 0 && state.gpu_flush_done == state.gpu_flush_wanted;
    // Exit handlers flush before the process records its end.
    tail_lost = state.end_ticks != 0
                    ? flushed == kNoTime
                    : !(answered && flushed != kNoTime && end != kNoTime && DurationNs(flushed, end) <= kSoonNs);
    if (tail_lost) decoder.AddLoss(Loss::kGpuTailLost, Seen{{flushed, end}, 1}, "process " + std::to_string(state.pid));
  }
  if (state.cupti_state == kRefused) {
    const std::string why = WhyRefused(tables);
    decoder.AddLoss(Loss::kGpuNotCaptured, 1, why.empty() ? "process " + std::to_string(state.pid) : why);
  }
  if (decoder.nccl().untied() == 0) return;
  if (state.cupti_state == 0 && tables.kernels.rows() == 0)
    decoder.AddLoss(Loss::kGpuNotCaptured, 1,
                    state.gpu_vendor == schema::Vendor::kAmd
                        ? "kernels of AMD GPUs are not recorded, RCCL's operations are"
                        : "NCCL was used, but CUDA never entered the library that CUDA_INJECTION64_PATH names");
  else if (state.cupti_state == kRecording && tables.kernels.rows() == 0 && !tail_lost)
    decoder.AddLoss(Loss::kZeroRecords, 1, "cupti: NCCL operations were seen, but no kernel at all");
}

std::int32_t RankFromNccl(const schema::RankTables& tables, const std::map<std::string, std::string>& meta) {
  const auto known = meta.find("world_size");
  if (meta.contains("rank") || known == meta.end()) return -1;
  std::uint64_t world_size = 0;
  std::from_chars(known->second.data(), known->second.data() + known->second.size(), world_size);
  std::int32_t rank = -1;
  const schema::Comms& comms = tables.comms;
  for (std::size_t i = 0; i < comms.rows(); ++i) {
    if (comms.kind[i] != schema::CommKind::kNccl || comms.size[i] != world_size || comms.rank[i] < 0) continue;
    // If communicators order the job's ranks differently, none of them determines the order of the job.
    if (rank >= 0 && rank != comms.rank[i]) return -1;
    rank = comms.rank[i];
  }
  return world_size > 1 && (rank < 0 || static_cast<std::uint64_t>(rank) < world_size) ? rank : -1;
}

void AddGpuSamples(schema::RankTables& tables, const TickMap& map, const std::vector<GpuSample>& samples,
                   const std::vector<const GpuRecords*>& processes) {
  TickConverter clock(map);
  for (const GpuSample& sample : samples) {
    GpuUuid uuid;
    std::copy(std::begin(sample.uuid), std::end(sample.uuid), uuid.begin());
    std::uint16_t device = 65535;
    for (const GpuRecords* process : processes)
      if (const auto at = process->devices().find(uuid); at != process->devices().end()) {
        device = at->second;
        break;
      }
    tables.gpu_samples.Append({.time_ns = clock.Ns(sample.ticks),
                               .device = device,
                               .sm_clock_mhz = sample.sm_clock_mhz,
                               .memory_clock_mhz = sample.memory_clock_mhz,
                               .power_mw = sample.power_mw,
                               .temperature_c = sample.temperature_c,
                               .utilization_percent = sample.utilization_percent,
                               .throttle_reasons = sample.throttle_reasons,
                               .vendor = static_cast<std::uint8_t>(sample.vendor)});
  }
  SortRows(tables.gpu_samples, tables.gpu_samples.time_ns);
}

}  // namespace lockstep::trace
