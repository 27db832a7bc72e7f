#include "runtime/agent/stacks/stack_reader.h"

#include <sys/ptrace.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/event_clock.h"
#include "core/own_file.h"
#include "runtime/agent/stacks/held_lock.h"
#include "runtime/agent/stacks/process_memory.h"
#include "runtime/agent/stacks/python_frames.h"
#include "runtime/agent/stacks/refusal.h"
#include "runtime/agent/stacks/stack_merge.h"
#include "runtime/agent/stacks/stack_names.h"
#include "runtime/agent/stacks/stack_request.h"
#include "runtime/agent/stacks/thread_state.h"
#include "runtime/agent/stacks/thread_stop.h"

namespace lockstep::agent {
namespace {

constexpr std::size_t kMostStack = std::size_t{256} << 10, kUnknownStack = std::size_t{64} << 10;
constexpr std::uint64_t kRedZone = 128;  // Below the stack pointer a function may keep something (x86-64's ABI).
constexpr std::size_t kMostStacks = 512, kMostUnnamed = 16, kMostRequest = std::size_t{64} << 20;
constexpr int kTries = 3;
constexpr std::int64_t kMapsLastNs = 1'000'000'000;

// What a thread was in, before its names are known.
struct Capture {
  ThreadStack thread;
  bool native = false;
  ThreadRequest request;
  std::string stack;
  RawPythonStack python_raw;
  std::vector<PythonFrame> python;
  FutexWait futex;
  std::optional<PythonFrame>
      holder;  // Where the thread is that has what this one waits for, if that has no stack here.
};

struct Taken {
  StackSample sample;
  std::vector<Capture> threads;
  std::string request, interpreter, python_note;
};

// What is known of a process from one sample to the next.
struct Known {
  std::vector<Mapping> mappings;
  std::int64_t read_ns = 0;
  std::string maps_lines;  // Those that lockstep-stacks needs.
  std::optional<PythonReader> python;
  bool own_child = false;
};

// Why a process below this one cannot be looked at, with what to do.
std::string Forbidden(pid_t pid) { return RefusalText(pid, FactsOfRefusal(pid)); }

bool OnPath(const char* program) {
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (::access((std::string(rest.substr(0, end)) + "/" + program).c_str(), X_OK) == 0) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

}  // namespace

struct StackReader::Impl {
  explicit Impl(Setup setup)
      : names(std::move(setup.program), std::move(setup.restore_signals)), scratch(kMostStack, '\0') {}

  Known* Look(pid_t pid) {
    Known& known = processes[pid];
    const std::int64_t now_ns = RawNs();
    if (known.read_ns != 0 && now_ns - known.read_ns < kMapsLastNs) return &known;
    known.mappings = MappingsOf(pid);
    known.read_ns = now_ns;
    known.maps_lines = CodeLinesOf(known.mappings);
    if (known.mappings.empty()) {
      processes.erase(pid);
      return nullptr;
    }
    known.python.emplace(known.mappings);
    known.python->ReadHead(ProcessMemory(pid));
    return &known;
  }

  void CopyStack(const Known& known, const ProcessMemory& memory, ThreadRequest& request) {
    const std::uint64_t pointer = request.registers.value[kStackRegister],
                        begin = pointer - std::min(pointer, kRedZone);
    const Mapping* mapping = MappingAt(known.mappings, pointer);
    std::size_t bytes = mapping == nullptr ? kUnknownStack : std::min<std::uint64_t>(mapping->end - begin, kMostStack);
    // A stack that has grown since, or one that ends before: less is better than nothing.
    constexpr std::size_t kPage = 4096;
    while (bytes >= kPage && !memory.Read(begin, scratch.data(), bytes)) bytes /= 2;
    request.stack_begin = begin;
    request.stack_bytes = bytes < kPage && !memory.Read(begin, scratch.data(), bytes) ? 0 : bytes;
  }

  // False: the thread has ended.
  bool CaptureThread(const Known& known, const ProcessMemory& memory, std::uint64_t python_state, Capture& capture,
                     std::int64_t& stopped_ns) {
    const pid_t pid = memory.pid(), thread = static_cast<pid_t>(capture.thread.thread);
    const auto walk = [&] {
      if (python_state != 0) capture.python_raw = known.python->Walk(memory, python_state);
    };
    bool may_stop = true;
    for (int i = 0; i < kTries; ++i) {
      const ThreadState state = StateOf(pid, thread);
      if (state.state == 'Z' || state.state == 'X' || state.state == '?') return false;
      capture.request = {.thread = static_cast<std::uint32_t>(thread)};
      capture.futex = FutexOf(state);
      capture.native = false;
      if (may_stop && MayBeStopped(pid, state)) {
        const ThreadStopper::Outcome outcome =
            stopper.Stop(pid, thread, known.own_child, [&](const Registers& registers) {
              capture.request.registers = registers;
              capture.request.all_registers = 1;
              CopyStack(known, memory, capture.request);
              walk();
            });
        stopped_ns = std::max(stopped_ns, stopper.last_stop_ns());
        capture.native = outcome == ThreadStopper::Outcome::kDone;
        if (capture.native) break;
        if (outcome == ThreadStopper::Outcome::kGone) return false;
        if (outcome == ThreadStopper::Outcome::kForbidden) forbidden = true;
        may_stop = false;
        capture.thread.why_short =
            outcome == ThreadStopper::Outcome::kLate ? "it did not stop in time" : "it may not be stopped";
        continue;
      }
      if (state.in_kernel) {
        capture.request.registers.value[kStackRegister] = state.stack_pointer;
        capture.request.registers.value[kCounterRegister] = state.program_counter;
        CopyStack(known, memory, capture.request);
        capture.native = true;
      }
      walk();
      const ThreadState after = StateOf(pid, thread);
      if (after.in_kernel == state.in_kernel && after.stack_pointer == state.stack_pointer &&
          after.program_counter == state.program_counter && after.call == state.call)
        break;
    }
    if (capture.native) capture.stack.assign(scratch.data(), capture.request.stack_bytes);
    return true;
  }

  // Who waits for Python's lock wakes every 5 ms to ask for it, and where others want the cores it may do so for long.
  static void LookAgain(pid_t pid, int rounds, std::vector<Capture>& captures) {
    constexpr timespec kPause{0, 2'000'000};
    for (int round = 0; round < rounds; ++round) {
      bool any = false;
      for (Capture& capture : captures) {
        if (capture.futex.address != 0) continue;
        capture.futex = FutexOf(StateOf(pid, static_cast<pid_t>(capture.thread.thread)));
        any |= capture.futex.address == 0;
      }
      if (!any) return;
      if (round + 1 < rounds) ::nanosleep(&kPause, nullptr);
    }
  }

  // After all were captured: who waits for a lock goes on waiting.
  static void FindLocks(const Known& known, const ProcessMemory& memory, const std::vector<pid_t>& threads,
                        const std::map<pid_t, std::uint64_t>& states, std::vector<Capture>& captures) {
    const bool readable = known.python->found() == PythonReader::Found::kReadable;
    for (Capture& capture : captures) {
      const auto thread = static_cast<pid_t>(capture.thread.thread);
      HeldLock lock = LockOf(memory, thread, capture.futex, threads, readable ? &*known.python : nullptr, states);
      capture.thread.waits_for = std::move(lock.what);
      capture.thread.held_by = lock.holder;
      const bool here = std::any_of(captures.begin(), captures.end(),
                                    [&](const Capture& each) { return each.thread.thread == lock.holder; });
      const auto state = states.find(lock.holder);
      if (lock.holder == 0 || here || state == states.end()) continue;
      const std::vector<PythonFrame> frames = known.python->Name(memory, known.python->Walk(memory, state->second));
      const auto own =
          std::find_if(frames.begin(), frames.end(), [](const PythonFrame& frame) { return !IsLibrary(frame.path); });
      if (!frames.empty()) capture.holder = own != frames.end() ? *own : frames.front();
    }
  }

  std::string Refusal(pid_t pid) {
    const ProcessFacts facts = FactsOfThread(pid, pid);
    if (facts.name.empty()) return "process " + std::to_string(pid) + " has ended";
    if (facts.tracer != 0)
      return "stacks of process " + std::to_string(pid) + " are not taken: process " + std::to_string(facts.tracer) +
             " traces it (a debugger, strace)";
    return "";
  }

  std::int64_t Take(pid_t pid, Which which) {
    stopper.Settle();
    if (why = Refusal(pid); !why.empty()) return 0;
    if (waiting.size() >= kMostUnnamed) {
      why = "the names of earlier stacks are not found yet";
      return 0;
    }
    Known* known = Look(pid);
    if (known == nullptr) {
      why = Forbidden(pid);
      return 0;
    }
    known->own_child = FactsOfThread(pid, pid).parent == ::getpid();
    forbidden = false;
    const ProcessMemory memory(pid);
    std::vector<pid_t> threads = ThreadsOf(pid);
    std::map<pid_t, std::uint64_t> states;
    const bool readable = known->python->found() == PythonReader::Found::kReadable;
    if (readable) states = known->python->Threads(memory, threads);
    const std::vector<pid_t> all_threads = threads;
    if (which == Which::kMainThread) threads.resize(std::min<std::size_t>(threads.size(), 1));
    const std::size_t more = threads.size() - std::min(threads.size(), kMostStacks);
    threads.resize(threads.size() - more);
    Taken taken;
    taken.sample = {.id = ++last_id, .process = pid, .at_ns = RawNs()};
    for (const pid_t thread : threads) {
      Capture capture;
      capture.thread = {.thread = thread, .name = FactsOfThread(pid, thread).name, .main = thread == pid};
      const auto state = states.find(thread);
      if (!CaptureThread(*known, memory, state == states.end() ? 0 : state->second, capture, taken.sample.stopped_ns))
        continue;
      if (!capture.python_raw.frames.empty()) capture.python = known->python->Name(memory, capture.python_raw);
      if (capture.python_raw.cut) capture.thread.why_short = "it has more frames of Python";
      taken.threads.push_back(std::move(capture));
    }
    LookAgain(pid, which == Which::kAllThreads ? 5 : 1, taken.threads);
    FindLocks(*known, memory, all_threads, states, taken.threads);
    const bool any = std::any_of(taken.threads.begin(), taken.threads.end(), [](const Capture& capture) {
      return capture.request.stack_bytes != 0 || !capture.python.empty();
    });
    if (!any) {
      why = taken.threads.empty() ? "process " + std::to_string(pid) + " has ended" : Forbidden(pid);
      return 0;
    }
    if (forbidden) why = Forbidden(pid);
    if (known->python->found() == PythonReader::Found::kNotCovered)
      taken.python_note = "its Python " + known->python->version() + " is not covered" +
                          (OnPath("py-spy") ? ": py-spy dump --pid " + std::to_string(pid) : "");
    taken.interpreter = known->python->path();
    MakeRequest(*known, taken);
    waiting.push_back(std::move(taken));
    Pump();
    return last_id;
  }

  static void MakeRequest(const Known& known, Taken& taken) {
    std::string bodies;
    std::uint32_t count = 0;
    const auto append = [](std::string& text, const auto& value) {
      text.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    for (Capture& capture : taken.threads) {
      if (!capture.native || bodies.size() > kMostRequest) continue;
      append(bodies, capture.request);
      bodies += std::exchange(capture.stack, {});
      ++count;
    }
    if (count == 0) return;
    append(taken.request, StackRequest{.process = static_cast<std::uint32_t>(taken.sample.process),
                                       .threads = count,
                                       .maps_bytes = known.maps_lines.size()});
    taken.request += known.maps_lines + bodies;
  }

  // Without `answer` there are no names but Python's.
  void Finish(std::string_view answer) {
    Taken taken = std::move(waiting.front());
    waiting.pop_front();
    std::map<std::int64_t, NativeStack> native;
    for (NativeStack& stack : NativeStacksOf(answer)) native[stack.thread] = std::move(stack);
    for (Capture& capture : taken.threads) {
      ThreadStack& thread = capture.thread;
      const NativeStack& stack = native[thread.thread];
      thread.frames = MergeStacks(stack.frames, capture.python, taken.interpreter);
      // In the place of the innermost call, so that samples tell it.
      if (capture.holder)
        thread.frames.push_back(
            {.function = "[waits for " + thread.waits_for + ", held in " + capture.holder->function + "]",
             .file = std::string(BaseName(capture.holder->path)),
             .line = capture.holder->line,
             .python = true,
             .library = true});
      if (thread.why_short.empty()) thread.why_short = stack.why_short.empty() ? taken.python_note : stack.why_short;
      if (stack.frames.empty() && thread.why_short.empty())
        thread.why_short =
            "its native functions are not known (" + (names.why().empty() ? "no lockstep-stacks" : names.why()) + ")";
      taken.sample.threads.push_back(std::move(thread));
    }
    ready.push_back(std::move(taken.sample));
  }

  void Pump() {
    for (;;) {
      if (asking) {
        const std::optional<std::string> answer = names.Answer();
        if (!answer) return;
        asking = false;
        Finish(*answer);
      }
      if (waiting.empty()) return;
      asking = !waiting.front().request.empty() && names.Ask(waiting.front().request);
      if (!asking) Finish("");
      if (asking) waiting.front().request = {};
    }
  }

  StackNames names;
  ThreadStopper stopper;
  std::vector<char> scratch;  // A stack is copied into memory that is there already.
  std::map<pid_t, Known> processes;
  std::deque<Taken> waiting;  // The first one's names are being asked for, if `asking`.
  std::vector<StackSample> ready;
  std::int64_t last_id = 0;
  bool asking = false, forbidden = false;
  std::string why;
};

StackReader::StackReader(Setup setup) : impl_(std::make_unique<Impl>(std::move(setup))) {}
StackReader::~StackReader() = default;

std::int64_t StackReader::Take(pid_t pid, Which which) { return impl_->Take(pid, which); }

std::vector<StackSample> StackReader::Ready() {
  impl_->stopper.Settle();
  impl_->Pump();
  return std::exchange(impl_->ready, {});
}

const std::string& StackReader::why() const { return impl_->why; }
std::size_t StackReader::pending() const { return impl_->waiting.size(); }
std::uint64_t StackReader::mended() const { return impl_->stopper.mended(); }

}  // namespace lockstep::agent
