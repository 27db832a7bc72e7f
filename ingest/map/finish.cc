#include "ingest/map/finish.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/rules/common.h"
#include "core/version.h"
#include "ingest/map/steps.h"

namespace lockstep::ingest {

using schema::kNone;
using schema::kNoTime;

void RankFinish::Add(std::string_view key, std::string_view value) {
  if (!value.empty()) t_.meta.Append({.key = trace_.strings->Intern(key), .value = trace_.strings->Intern(value)});
}

CountedLoss RankNotTold(const std::string& source, std::int32_t rank, const std::string& from, bool guessed) {
  return {guessed ? Loss::kImportRankUnknown : Loss::kImportRankInferred, 1,
          fmt::format("{}: rank {} was inferred{}{}", source, rank, from.empty() ? "" : " from ", from)};
}

void RankFinish::Lose(Loss loss, std::uint64_t count, std::string detail) {
  t_.losses.Append({.name = Intern(Info(loss).name),
                    .count = count,
                    .first_ns = kNoTime,
                    .last_ns = kNoTime,
                    .thread = kNone,
                    .detail = Intern(detail)});
  s_.losses.push_back({loss, count, std::move(detail)});
}

void RankFinish::Steps() {
  Add("step_range", StepsFromRanges(trace_, options_.step_range));
  if (t_.steps.rows() == 0 && !options_.step_range.empty()) s_.range_names = NamesOfRanges(t_);
}

void RankFinish::Identify(std::string_view format) {
  std::fill(t_.processes.world_rank.begin(), t_.processes.world_rank.end(), rank());
  std::fill(t_.processes.rank_source.begin(), t_.processes.rank_source.end(),
            static_cast<std::uint8_t>(Told() ? 2 : 4));
  Add("imported", format);
  Add("lockstep_version", LOCKSTEP_VERSION);
  Add("run_id", options_.run_id);
  if (rank() >= 0) {
    Add("rank", std::to_string(rank()));
    Add("rank_source", Told() ? "env" : "slot");
  }
  if (world_size() > 0) Add("world_size", std::to_string(world_size()));
  Add("source_file", options_.source);
}

void RankFinish::LoseUnknowns(std::uint64_t without_group) {
  const std::string& source = options_.source;
  if (s_.told_rank < 0) {
    CountedLoss loss = RankNotTold(source, rank(), options_.rank_from, options_.rank_guessed);
    Lose(loss.loss, loss.count, std::move(loss.detail));
  }
  if (s_.told_world_size <= 0) Lose(Loss::kImportWorldSizeUnknown, 1, source);
  if (without_group > 0) Lose(Loss::kImportGroupUnknown, without_group, source);
  if (trace_.launch_missing > 0) Lose(Loss::kImportLaunchMissing, trace_.launch_missing, source);
  LoseDeviceWork();
}

// Where most launches have no device work, the device's work is not known: the host's time must not be taken for all
// there was, nor the rest of the device's work for the whole. torch.profiler loses whole buffers of CUPTI and
// roctracer.
void RankFinish::LoseDeviceWork() {
  if (std::any_of(s_.losses.begin(), s_.losses.end(),
                  [](const CountedLoss& lost) { return lost.loss == Loss::kGpuNotCaptured; }))
    return;
  std::unordered_set<std::uint64_t> launched_by;
  launched_by.insert(t_.kernels.correlation.begin(), t_.kernels.correlation.end());
  launched_by.insert(t_.copies.correlation.begin(), t_.copies.correlation.end());
  std::uint64_t launches = 0, without = 0;
  for (std::size_t i = 0; i < t_.api.rows(); ++i)
    if (t_.api.kind[i] == schema::ApiKind::kLaunch || t_.api.kind[i] == schema::ApiKind::kGraphLaunch) {
      ++launches;
      if (!launched_by.contains(t_.api.correlation[i])) ++without;
    }
  if (!MostOf(without, launches)) return;
  if (t_.kernels.rows() > 0 || t_.copies.rows() > 0)
    Lose(Loss::kGpuNotCaptured, 1, fmt::format("{} of {} launches have no kernel", without, launches));
  else
    Lose(Loss::kGpuNotCaptured, 1,
         launches == 1 ? "1 launch and no kernel" : fmt::format("{} launches and no kernel", launches));
}

void RankFinish::Span() {
  bool any = false;
  const auto extend = [&](std::int64_t begin, std::int64_t end) {
    s_.begin_ns = any ? std::min(s_.begin_ns, begin) : begin;
    s_.end_ns = any ? std::max(s_.end_ns, end) : end;
    any = true;
  };
  for (std::size_t i = 0; i < t_.threads.rows(); ++i) extend(t_.threads.begin_ns[i], t_.threads.end_ns[i]);
  const auto events = [&](const auto& table) {
    for (std::size_t i = 0; i < table.rows(); ++i) extend(table.begin_ns[i], table.begin_ns[i] + table.duration_ns[i]);
  };
  events(t_.kernels), events(t_.copies), events(t_.sync);
  // A trace of the GPU alone has no thread, so one is added.
  if (t_.threads.rows() == 0 && any) {
    t_.processes.Append({.process = 0,
                         .pid = -1,
                         .parent_pid = -1,
                         .exe = kNone,
                         .begin_ns = s_.begin_ns,
                         .end_ns = s_.end_ns,
                         .world_rank = rank(),
                         .mpi_thread_level = schema::MpiThreadLevel::kNoMpi});
    t_.threads.Append({.thread = 0,
                       .process = 0,
                       .tid = -1,
                       .name = Intern("GPU only"),
                       .begin_ns = s_.begin_ns,
                       .end_ns = s_.end_ns,
                       .records = t_.kernels.rows() + t_.copies.rows(),
                       .training = 1});
  }
  // GPU work ends after the host's last call and belongs to the time that the trace covers.
  for (std::size_t i = 0; i < t_.threads.rows(); ++i)
    if (t_.threads.training[i]) {
      t_.threads.begin_ns[i] = std::min(t_.threads.begin_ns[i], s_.begin_ns);
      t_.threads.end_ns[i] = std::max(t_.threads.end_ns[i], s_.end_ns);
    }
}

void RankFinish::Snapshots() {
  constexpr std::int64_t kYear2010 = 1'262'304'000'000'000'000, kYear2200 = 7'258'118'400'000'000'000;
  if (s_.begin_ns < kYear2010 || s_.end_ns > kYear2200) return;
  for (const std::int64_t ns : {s_.begin_ns, s_.end_ns})
    t_.clock_snapshots.Append({.ticks = static_cast<std::uint64_t>(ns),
                               .raw_ns = ns,
                               .monotonic_ns = ns,
                               .realtime_ns = ns,
                               .width_ns = 1000});
}

void RankFinish::Count() {
  s_.rows = t_.kernels.rows() + t_.copies.rows() + t_.sync.rows() + t_.api.rows() + t_.ranges.rows() +
            t_.gpu_memory.rows() + t_.mpi_calls.rows();
  s_.kernels = t_.kernels.rows();
  s_.collectives = t_.collectives.rows();
  s_.steps = t_.steps.rows();
}

}  // namespace lockstep::ingest
