#pragma once
// Which MPI library a call is meant for, and where its entry point leads. Called by the assembly of entry_points.cc.

namespace lockstep::pmpi {

extern "C" {
// The slots of the entry points, in the order of LS_MPI_ENTRY_POINTS; bounds by the linker.
extern const void* __start_lockstep_slots[];
extern const void* __stop_lockstep_slots[];

// The first call through a slot, from `caller`: chooses, if nothing is chosen yet, and returns where the call goes.
// Thread: any. Preserves errno.
[[gnu::used]] const void* lockstep_first_target(const void** slot, const void* caller);

// Resolves the reference to a function that not every MPI library has: its entry point, or null where a loaded MPI
// library lacks it, or none is loaded. Called by ld.so while it relocates others, maybe before this library itself.
[[gnu::used]] const void* lockstep_where_it_is(const char* name, const void* entry_point);
}

}  // namespace lockstep::pmpi
