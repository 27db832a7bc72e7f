#pragma once
// What hooks in an interpreter call, for the rest of the probe, for the MPI wrappers, and as builtin functions of
// Python's (python_calls.cc). Each is described where it is defined: in hooks.cc if nothing else is said.

extern "C" {
// What the probe does when it is loaded, now if it has not been done: MPI may be called before its constructor runs
// (Open MPI's C++ bindings do, in theirs). process.cc
void lockstep_hook_loaded(void);
void lockstep_hook_fact(const char* text);
unsigned long long lockstep_hook_now(void);
unsigned long long lockstep_hook_range_begin(const char* name, int source);
void lockstep_hook_range_end(const char* name, int source, int category, unsigned long long begin_ticks,
                             long long payload, int nested);
void lockstep_hook_host_memory(void);
void lockstep_hook_step(void);  // steps.cc
// phases.cc
int lockstep_hook_phase_begin(int phase, const char* name);
int lockstep_hook_phase_enter(int phase, const char* name);
void lockstep_hook_phase_end(int phase);
void lockstep_hook_phase_since(void);
int lockstep_hook_boundary(const void* optimizer);
void lockstep_hook_first_optimizer(const void* optimizer);
// reference.cc
int lockstep_hook_own_reference(int rank, char* text, int bytes);
void lockstep_hook_reference(int rank, const char* text);
unsigned lockstep_hook_torch_enter(unsigned number, int peer, int tag);  // comms/c10d/groups.cc
void lockstep_hook_torch_shown(int more);                                // comms/c10d/groups.cc
}

namespace lockstep::probe {

// At the process's end: leaves a fact if it used PyTorch without Lockstep's hooks.
void NoteUnhookedPython();

// Whether lockstep_hook_host_memory would take a sample now.
bool HostMemoryIsDue();

}  // namespace lockstep::probe
