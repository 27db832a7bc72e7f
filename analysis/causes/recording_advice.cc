#include "analysis/causes/recording_advice.h"

#include <string_view>

#include "analysis/core/source.h"
#include "core/loss.h"

namespace lockstep::analysis {
namespace {

enum class Recorder { kLockstep, kTorchProfiler, kNsys };

// For imported runs the command line is that of the program (ingest/imported_run.cc).
Recorder RecorderOf(const Context& context) {
  if (!context.timeline().Meta("run_id").starts_with("import-")) return Recorder::kLockstep;
  return context.timeline().Meta("command").starts_with("Nsight Systems") ? Recorder::kNsys : Recorder::kTorchProfiler;
}

// Whether the imported traces hold calls of Python functions that were left out.
bool HasPythonFunctions(const Context& context) {
  const auto& losses = context.tables().losses;
  for (std::size_t i = 0; i < losses.rows(); ++i)
    if (context.timeline().Text(losses.name[i]) == Info(Loss::kImportCategorySkipped).name &&
        context.timeline().Text(losses.detail[i]).find("python_function") != std::string_view::npos)
      return true;
  return false;
}

}  // namespace

std::string ToNameHostWork(const Context& context) {
  switch (RecorderOf(context)) {
    case Recorder::kTorchProfiler:
      if (HasPythonFunctions(context))
        return "lockstep import kineto --python-functions TRACES (the traces hold the calls of Python functions)";
      return "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True) and "
             "lockstep import kineto --python-functions TRACES, or record_function(...) around parts of the step";
    case Recorder::kNsys:
      return "nsys profile --trace=cuda,nvtx,osrt with NVTX ranges around parts of the step "
             "(in PyTorch: torch.autograd.profiler.emit_nvtx() for operators)";
    case Recorder::kLockstep:
      break;
  }
  return SourceOf(context.timeline()).torch
             ? "record operators (lockstep run --torch-ops), or name parts of the step (record_function, NVTX)"
             : "name parts of the step (NVTX ranges, lockstep_range_push)";
}

std::string ToRecordLater(const Context& context) {
  switch (RecorderOf(context)) {
    case Recorder::kTorchProfiler:
      return "record later steps: torch.profiler.schedule(wait, warmup)";
    case Recorder::kNsys:
      return "record later steps: nsys profile --delay, or --capture-range=cudaProfilerApi";
    case Recorder::kLockstep:
      break;
  }
  return "record later steps: lockstep run --steps";
}

std::string ToSeeLaunches(const Context& context) {
  switch (RecorderOf(context)) {
    case Recorder::kTorchProfiler:
      return "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) has the calls that "
             "launch, "
             "from schedule(warmup=1) on those of before the first step too";
    case Recorder::kNsys:
      return "nsys profile --trace=cuda has the calls that launch; --cuda-graph-trace=node those of graphs";
    case Recorder::kLockstep:
      break;
  }
  return "begin to record a step earlier (lockstep run --steps), and see what was lost under TRUST";
}

std::string ToSeeStarts(const Context& context) {
  switch (RecorderOf(context)) {
    case Recorder::kTorchProfiler:
      return "torch.profiler.profile(experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True)) has the "
             "waits "
             "of streams; host callbacks and other processes on the GPU (nvidia-smi) are in no such trace";
    case Recorder::kNsys:
      return "nsys profile --gpuctxsw=true shows other processes on the GPU, --cuda-event-trace=true the waits of "
             "streams";
    case Recorder::kLockstep:
      break;
  }
  return "other processes on the GPU (nvidia-smi), host callbacks and waits for memory values in streams are not "
         "recorded";
}

}  // namespace lockstep::analysis
