#pragma once
// Of hooks.cc, for the rest of the probe.

namespace lockstep::probe {

// At the process's end: leaves a fact if it used PyTorch without Lockstep's hooks.
void NoteUnhookedPython();

// Whether lockstep_hook_host_memory would take a sample now.
bool HostMemoryIsDue();

}  // namespace lockstep::probe
