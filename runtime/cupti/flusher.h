#pragma once
// The thread that fetches what CUPTI has and decodes it.

#include <cstdint>

namespace lockstep::cupti {

// Starts it; false if the system refuses. Once per process, after Arm.
bool StartFlusher();
// At the process's end, on the thread that ends it: everything that CUPTI has, written. Waits at
// most about two seconds in all calls together. `ask_cupti` false: only what came back already.
void EndFlush(bool ask_cupti);
// In a forked child.
void ForgetFlusher();

}  // namespace lockstep::cupti
