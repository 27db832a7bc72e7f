// Phases of training and labels, as the wrappers of PyTorch's functions see them begin and end (runtime/python). What a
// wrapper needs to know at each call (whether anything is recorded, whether this is nested in its own kind, when the
// phase began) is kept here and not in Python, where looking it up takes longer than all else that a call does.

#include "runtime/probe/phases.h"

#include <string_view>

#include "core/schema_enums.h"
#include "runtime/probe/hooks.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

constexpr int kTorch = schema::RangeSource::kTorch;
// A phase goes by its category in the table ranges.
constexpr int kInput = schema::Category::kInput, kForward = schema::Category::kForward,
              kBackward = schema::Category::kBackward, kOptimizer = schema::Category::kOptimizer;
constexpr int kPhases = 8;
constexpr std::size_t kOpenLabels = 256, kTries = 16;  // Of the process; places that a label may have among them.

// PyTorch's own labels of what is a phase already.
constexpr std::string_view kCovered[] = {"Optimizer.step#", "enumerate(DataLoader)#",
                                         "DistributedDataParallel.forward"};
constexpr std::string_view kZeroGrad = "Optimizer.zero_grad#";

struct ThreadPhases {
  std::uint32_t inside;       // A bit for each phase: what nests in its own kind is not recorded again.
  bool had_forward;           // Since the last backward.
  std::uint64_t since_ticks;  // End of the last phase: without DDP, forward began there.
};
constinit thread_local ThreadPhases t_phases{};

// An open label or phase. They need not nest (generators), and nothing of them is in a thread's own memory, of which
// libraries that are loaded later share little. `owner` is set first and cleared last.
struct Label {
  std::atomic<const void*> owner;
  const void* name;  // Of labels; null: a phase.
  const char* text;
  std::uint64_t begin_ticks;
  const ThreadPhases* thread;
};
constinit Label g_labels[kOpenLabels]{};

Label& LabelAt(const void* owner, std::size_t attempt) {
  return g_labels[((reinterpret_cast<std::uintptr_t>(owner) >> 4) + attempt) % kOpenLabels];
}

// Of the process. Written by a thread that has the interpreter's lock; read by any.
std::atomic<bool> g_on{false}, g_opened{false}, g_told{false}, g_each_boundary{false};
std::atomic<const void*> g_first_optimizer{nullptr};

void Fill(Label& label, const void* name, const char* text) {
  label.name = name;
  label.text = text;
  label.thread = &t_phases;
  label.begin_ticks = lockstep_hook_range_begin(text, kTorch);
}

// An address of its own for each phase of each thread.
const void* OwnerOf(int phase) {
  static_assert(sizeof(ThreadPhases) >= kPhases);
  return reinterpret_cast<const char*>(&t_phases) + phase;
}

// A free place; null if there is none.
Label* Claim(const void* owner) {
  for (std::size_t i = 0; i < kTries; ++i) {
    const void* free = nullptr;
    if (LabelAt(owner, i).owner.compare_exchange_strong(free, owner, std::memory_order_acquire))
      return &LabelAt(owner, i);
  }
  return nullptr;
}

void CountTooMany() {
  ProcessEntry* process = ring::Recording() ? lockstep_process() : nullptr;
  if (process != nullptr) process->range_too_deep.fetch_add(1, std::memory_order_relaxed);
}

int Enter(int phase, const char* name) {
  ThreadPhases& thread = t_phases;
  if (phase < 0 || phase >= kPhases || (thread.inside & 1U << phase) != 0 || !g_on.load(std::memory_order_relaxed))
    return 0;
  Label* open = Claim(OwnerOf(phase));
  if (open == nullptr) {
    CountTooMany();
    return 0;
  }
  if (phase == kForward) thread.had_forward = true;
  if (phase == kBackward) {
    // No DDP, no FSDP: since the batch came, the model ran forward.
    if (thread.since_ticks != 0 && !thread.had_forward)
      lockstep_hook_range_end("until backward", kTorch, kForward, thread.since_ticks, 0, 0);
    thread.since_ticks = 0;
    thread.had_forward = false;
  }
  thread.inside |= 1U << phase;
  Fill(*open, nullptr, name);
  return 1;
}

}  // namespace

extern "C" {

// Whether anything is recorded; whether training has begun; whether the facts that waited for that were written;
// whether Python has something to do at each step's end. Less than 0: as it is.
__attribute__((visibility("default"))) void lockstep_hook_training(int on, int opened, int told, int each_boundary) {
  if (on >= 0) g_on.store(on != 0, std::memory_order_relaxed);
  if (opened >= 0) g_opened.store(opened != 0, std::memory_order_relaxed);
  if (told >= 0) g_told.store(told != 0, std::memory_order_relaxed);
  if (each_boundary >= 0) g_each_boundary.store(each_boundary != 0, std::memory_order_relaxed);
}

// In a forked child, which is a worker until it joins a process group.
__attribute__((visibility("default"))) void lockstep_hook_training_forked(void) {
  lockstep_hook_training(0, 0, 0, -1);
  g_first_optimizer.store(nullptr, std::memory_order_relaxed);
  t_phases = {};
  for (Label& label : g_labels) label.owner.store(nullptr, std::memory_order_relaxed);
}

// A phase begins on this thread; `name` lives until its end. 0: it is not recorded, and lockstep_hook_phase_end is not
// called. That is so before training has begun, too, as the first of it is Python's to find out.
__attribute__((visibility("default"))) int lockstep_hook_phase_begin(int phase, const char* name) {
  return g_opened.load(std::memory_order_relaxed) ? Enter(phase, name) : 0;
}

// The same, whether training has begun or not.
__attribute__((visibility("default"))) int lockstep_hook_phase_enter(int phase, const char* name) {
  return Enter(phase, name);
}

__attribute__((visibility("default"))) void lockstep_hook_phase_end(int phase) {
  ThreadPhases& thread = t_phases;
  if (phase < 0 || phase >= kPhases || (thread.inside & 1U << phase) == 0) return;  // Begun before a fork.
  thread.inside &= ~(1U << phase);
  for (std::size_t i = 0; i < kTries; ++i) {
    Label& at = LabelAt(OwnerOf(phase), i);
    if (at.owner.load(std::memory_order_relaxed) != OwnerOf(phase)) continue;
    lockstep_hook_range_end(at.text, kTorch, phase, at.begin_ticks, 0, 1);
    at.owner.store(nullptr, std::memory_order_release);
    break;
  }
  if (phase == kInput) thread.since_ticks = lockstep_hook_now();
}

// What comes next until the backward pass is the model's forward, if nothing else says so.
__attribute__((visibility("default"))) void lockstep_hook_phase_since(void) {
  t_phases.since_ticks = lockstep_hook_now();
}

// The optimizer whose steps count; lockstep_hook_boundary knows it by its address.
__attribute__((visibility("default"))) void lockstep_hook_first_optimizer(const void* optimizer) {
  g_first_optimizer.store(optimizer, std::memory_order_relaxed);
}

// An optimizer's step() has returned. 0: nothing was done, because there is something for Python to do or to decide.
__attribute__((visibility("default"))) int lockstep_hook_boundary(const void* optimizer) {
  if (optimizer != g_first_optimizer.load(std::memory_order_relaxed) ||
      g_each_boundary.load(std::memory_order_relaxed) || HostMemoryIsDue())
    return 0;
  lockstep_hook_step();
  t_phases.since_ticks = lockstep_hook_now();
  return 1;
}
}

LabelBegun BeginLabel(const void* owner, const void* name, const char* text, const void** dropped) {
  if (!g_on.load(std::memory_order_relaxed)) return LabelBegun::kNot;
  const std::string_view label(text);
  for (const std::string_view covered : kCovered)
    if (label.substr(0, covered.size()) == covered) return LabelBegun::kNot;
  if (!g_told.load(std::memory_order_relaxed)) return LabelBegun::kTellFirst;
  if (Label* free = Claim(owner); free != nullptr) {
    Fill(*free, name, text);
    return LabelBegun::kKept;
  }
  // Too many are open, or have never ended: the label that has been open for longest is given up.
  CountTooMany();
  Label* oldest = nullptr;
  for (std::size_t i = 0; i < kTries; ++i) {
    Label& at = LabelAt(owner, i);
    if (at.name != nullptr && (oldest == nullptr || at.begin_ticks < oldest->begin_ticks)) oldest = &at;
  }
  if (oldest == nullptr) return LabelBegun::kNot;
  *dropped = oldest->name;
  oldest->owner.store(owner, std::memory_order_relaxed);
  Fill(*oldest, name, text);
  return LabelBegun::kKept;
}

const void* EndLabel(const void* owner) {
  Label* found = nullptr;
  for (std::size_t i = 0; i < kTries; ++i) {
    Label& at = LabelAt(owner, i);
    if (at.owner.load(std::memory_order_relaxed) == owner && at.thread == &t_phases &&
        (found == nullptr || at.begin_ticks > found->begin_ticks))
      found = &at;
  }
  if (found == nullptr) return nullptr;
  const void* name = found->name;
  const bool zeroes = std::string_view(found->text).substr(0, kZeroGrad.size()) == kZeroGrad;
  lockstep_hook_range_end(found->text, kTorch, zeroes ? kOptimizer : 0, found->begin_ticks, 0, 1);
  found->owner.store(nullptr, std::memory_order_release);
  return name;
}

}  // namespace lockstep::probe
