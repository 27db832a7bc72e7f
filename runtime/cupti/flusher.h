#pragma once
// The thread that fetches CUPTI's records and decodes them.

#include <cstdint>

namespace lockstep::cupti {

// Starts it; returns false if the system refuses. Once per process, after Arm.
bool StartFlusher();
// Called at the process's end, on the thread that ends it: writes everything that CUPTI has. Waits at most about two
// seconds in all calls together. `ask_cupti` false: only what was returned already.
void EndFlush(bool ask_cupti);
// In a forked child.
void ForgetFlusher();

}  // namespace lockstep::cupti
