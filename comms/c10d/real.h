#pragma once
// The functions of libtorch that preloaded ones stand in front of.

#include <atomic>

namespace lockstep::c10d {

// The function of this name that the calling library would have called. Never null: that library was linked with it.
void* Real(std::atomic<void*>& real, const char* symbol, const void* caller);

}  // namespace lockstep::c10d
