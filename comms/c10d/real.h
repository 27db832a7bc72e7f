#pragma once
// The functions of libtorch that preloaded ones stand in front of.

#include <atomic>

namespace lockstep::c10d {

// The function of this name that the calling library would have called. Never null: that library was linked with it.
void* Real(std::atomic<void*>& real, const char* symbol, const void* caller);

// The same for a member function of `object`, which has it in its virtual table: any library may call it so, also one
// that was not linked with that one, but the library of the table was.
void* RealOf(std::atomic<void*>& real, const char* symbol, const void* object, const void* caller);

}  // namespace lockstep::c10d
