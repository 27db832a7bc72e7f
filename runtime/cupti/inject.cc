// Where CUDA enters: cuInit calls InitializeInjection of the library that CUDA_INJECTION64_PATH
// names, before any context exists, on the application's thread.
//
// Whatever fails, the answer is 1 and the application goes on without GPU activity being recorded;
// a line says so once, and the run's files say it.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/plain_line.h"
#include "core/schema_enums.h"
#include "runtime/cupti/capture.h"
#include "runtime/cupti/fact.h"
#include "runtime/cupti/flusher.h"

namespace lockstep::cupti {
namespace {

constexpr std::size_t kDefaultBufferMiB = 256;

constinit std::atomic<int> g_begun{0};

void Refuse(ProcessEntry& process, const char* why, const char* remedy) {
  char line[2048];
  const int bytes = snprintf(line, sizeof line - 1, "lockstep: GPU activity of this process is not recorded: %s%s%s",
                             why, remedy[0] != 0 ? ": " : "", remedy);
  if (bytes > 0) SayPlain(line);
  snprintf(line, sizeof line, "cupti\tstate=refused\twhy=%s\tremedy=%s\tversion=%u", why, remedy,
           g_capture.api.version);
  EmitFact(line);
  process.cupti_state.store(2, std::memory_order_release);
}

void RefuseCupti(ProcessEntry& process, const Refusal& refusal) {
  const Api& api = g_capture.api;
  const char* text = nullptr;
  if (api.get_result_string == nullptr || api.get_result_string(refusal.result, &text) != kSuccess) text = nullptr;
  char why[1024];
  snprintf(why, sizeof why, "%s of %s returned %d (%s)", refusal.function, api.path, refusal.result,
           text != nullptr ? text : "unknown");
  const char* remedy = "";
  switch (refusal.result) {
    case kInsufficientPrivileges:
    case kVirtualDeviceInsufficientPrivileges:
      remedy =
          "the driver lets only administrators profile; load it with NVreg_RestrictProfilingToAdminUsers=0, or give "
          "the process (container) CAP_SYS_ADMIN";
      break;
    case kMultipleSubscribers:
    case kOldProfilerInitialized:
    case kNotCompatible:  // CUPTI 13.3 and later: it uses the interface for several subscribers.
      remedy = "another profiler uses CUPTI; run without it";
      break;
    case kUnknown:
      remedy = "no usable NVIDIA driver, or one that is older than this libcupti";
      break;
    default:
      break;
  }
  Refuse(process, why, remedy);
}

void UseWholeGraphs(bool wanted) {
  // Afterwards CUPTI records no nodes any more (cupti_activity.h, 13.5), and torch.profiler would miss them.
  g_capture.whole_graphs = wanted && !TorchIsLoaded();
  if (!wanted || g_capture.whole_graphs) return;
  EmitFact("cupti_graphs\tnodes, because PyTorch is in the process");
  char line[] =
      "lockstep: CUDA graphs are recorded node by node: PyTorch is in this process, and its profiler would miss the "
      "nodes of graphs after --cuda-graphs whole";
  SayPlain(line);
}

void InChild() {
  g_capture.owner.store(Owner::kNobody);
  g_begun.store(0);
  ForgetFlusher();
  Control::Forget();
}

void Begin() {
  const SegmentHeader* segment = lockstep_probe.segment;
  if (segment == nullptr || (segment->gpu_options & kGpuOff) != 0 ||
      segment->agent_gone.load(std::memory_order_relaxed) != 0)
    return;
  ProcessEntry* process = lockstep_process();
  if (process == nullptr) return;
  ring::Page();  // A process's first ring is its largest. It should not be the flusher's, which can wait for space.
  Capture& capture = g_capture;
  capture.process = process;
  process->gpu_vendor.store(schema::Vendor::kNvidia, std::memory_order_relaxed);
  capture.pid = getpid();
  char why[768];
  if (const char* none = FindCupti(capture.api, why, sizeof why); none != nullptr) return Refuse(*process, none, "");
  MeasureRecords(capture.api, capture.sizes);
  const std::size_t wanted = segment->gpu_options >> kGpuBuffersShift;
  static bool limited = false;  // A child's pool is its parent's, whose buffers are handed out.
  if (!limited) capture.pool.Limit((wanted != 0 ? wanted : kDefaultBufferMiB) << 20);
  limited = true;
  capture.attributes.Allow((wanted != 0 ? wanted : kDefaultBufferMiB) << 20);
  UseWholeGraphs((segment->gpu_options & kGpuGraphsWhole) != 0);
  capture.pool.Prepare(2);
  if (capture.foreign.kinds.load() != 0) {
    capture.sessions += 1;
    // Another profiler was here first; the flusher takes CUPTI when that one has finished.
    capture.foreign.gap_begin_ticks.store(ring::Ticks());
    capture.owner.store(Owner::kTheirs, std::memory_order_release);
    {
      // No buffer is handed out before the first context, so from here on it is known which ones are.
      Control control(1'000'000'000);
      Route();
    }
    process->cupti_state.store(3, std::memory_order_release);
  } else {
    capture.owner.store(Owner::kOurs, std::memory_order_release);
    Refusal refusal;
    {
      Control control(1'000'000'000);
      refusal = Arm();
      if (refusal.function != nullptr) {
        Disarm();
        // Our callbacks stay registered if there were none before; the buffers they hand out are never filled.
        const BufferRequested theirs = capture.foreign.requested.load();
        if (theirs != nullptr) capture.api.register_callbacks(theirs, capture.foreign.completed.load());
        capture.owner.store(Owner::kNobody, std::memory_order_release);
      }
    }
    if (refusal.function != nullptr) return RefuseCupti(*process, refusal);
    process->cupti_state.store(1, std::memory_order_release);
  }
  if (capture.api.version == kCuda13_0) {
    char line[] =
        "lockstep: CUPTI of CUDA 13.0 can crash when it is asked for records: they are fetched at the end only, and "
        "torch.profiler sees more kinds than it asked for; update to CUDA 13.0 Update 1";
    SayPlain(line);
  }
  if (!StartFlusher()) {
    Control control(1'000'000'000);
    Disarm();
    capture.owner.store(Owner::kNobody, std::memory_order_release);
    return Refuse(*process, "no thread could be made", "raise the limit of processes");
  }
  static bool registered = false;
  if (registered) return;
  registered = true;
  pthread_atfork(nullptr, nullptr, InChild);
  atexit([] { EndFlush(true); });
}

// CUDA's own handlers have run by now, so CUPTI is not asked any more.
__attribute__((destructor)) void OnUnload() { EndFlush(false); }

}  // namespace

void SayPlain(char* line) {
  MakePlainLine(line);
  iovec parts[] = {{line, strlen(line)}, {const_cast<char*>("\n"), 1}};
  if (writev(STDERR_FILENO, parts, 2) < 0) return;
}

}  // namespace lockstep::cupti

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
  using namespace lockstep::cupti;
  const int error = errno;
  int none = 0;
  if (g_begun.compare_exchange_strong(none, 1)) Begin();
  errno = error;
  return 1;
}
