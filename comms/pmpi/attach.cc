// Where the slots of the entry points lead: MPI_ names to the wrappers, PMPI_ names to what is decided by the caller.
//
// A PMPI_ call that comes from the code of a Fortran binding goes to the wrapper, with handles that the binding has
// converted already. Beside another tool, whose wrappers have the application's calls before us, so does any call that
// is not the MPI library's own. Otherwise (programs that avoid profiling) it goes straight to the library. Our own
// calls are found by dlsym in libmpi itself and never come here.

#include <type_traits>

#include "comms/pmpi/fortran.h"
#include "comms/pmpi/traced.h"
#include "comms/pmpi/wrapper_library.h"

namespace lockstep::pmpi {
namespace {

template <auto kWrapper, auto kMember>
struct Entry;
template <typename... Args, int (*kWrapper)(Args...), int (*PmpiTable::*kMember)(Args...)>
struct Entry<kWrapper, kMember> {
  static int Call(Args... args) {
    if (PassesOn(__builtin_return_address(0))) return kWrapper(args...);
    // The program may avoid our MPI_Finalize, but the other ranks wait for this rank's vote.
    if constexpr (std::is_same_v<decltype(kWrapper), decltype(&MPI_Finalize)>)
      if (kWrapper == &MPI_Finalize) FinalizeBegins();
    auto* function = g_table.*kMember;
    return function != nullptr ? function(args...) : static_cast<int>(MPI_ERR_OTHER);
  }
};

// The rest of its arguments is a tool's, and nobody here is one.
template <>
struct Entry<&MPI_Pcontrol, &PmpiTable::Pcontrol> {
  static int Call(const int level, ...) {
    if (PassesOn(__builtin_return_address(0))) return MPI_Pcontrol(level);
    return g_table.Pcontrol(level);
  }
};

// In the order of the slots, each with whether the library has the function.
template <typename Take>
void ForEachEntryPoint(Take&& take) {
#define LS_ENTRY(wrapper, member)                                          \
  take(g_table.member != nullptr, reinterpret_cast<const void*>(&wrapper), \
       reinterpret_cast<const void*>(&Entry<&wrapper, &PmpiTable::member>::Call));
#define LS_STANDARD(name) LS_ENTRY(MPI_##name, name)
#define LS_EXPERIMENTAL(name) LS_ENTRY(MPIX_##name, X_##name)
#if LS_LARGE_COUNTS
#define LS_LARGE_COUNT(name) LS_STANDARD(name)
#else
#define LS_LARGE_COUNT(name) take(false, nullptr, nullptr);
#endif
  LS_MPI_ENTRY_POINTS(LS_STANDARD, LS_STANDARD, LS_EXPERIMENTAL, LS_LARGE_COUNT)
}

}  // namespace
}  // namespace lockstep::pmpi

extern "C" __attribute__((visibility("default"))) bool lockstep_mpi_attach(
    const lockstep::pmpi::Attachment& attachment) {
  using namespace lockstep::pmpi;
  unsigned count = 0;
  ForEachEntryPoint([&](bool, const void*, const void*) { count += 2; });
  if (count != attachment.slot_count || !AttachLibrary(attachment.library)) return false;
  g_entry = attachment.allreduce;
  if (attachment.tools) HearOtherTools();
  const void** slot = attachment.slots;
  ForEachEntryPoint([&](bool there, const void* wrapper, const void* behind) {
    slot[0] = there ? wrapper : nullptr;
    slot[1] = there ? behind : nullptr;
    slot += 2;
  });
  return true;
}
