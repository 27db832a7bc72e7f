// A shared object that uses NVTX with tables of its own: every object that compiled
// the headers is injected once. Built twice, with another name each.

#include <cstdio>

#ifdef LOCKSTEP_REAL_NVTX
#include <nvtx3/nvToolsExt.h>

#include <nvtx3/nvtx3.hpp>
#else
#include "tests/fakes/nvtx_host.h"
#endif

#define LS_STRING2(x) #x
#define LS_STRING(x) LS_STRING2(x)

#ifdef LOCKSTEP_REAL_NVTX
// Names of their own: inline functions of templates are one for the whole process.
#define LS_PASTE2(a, b) a##b
#define LS_PASTE(a, b) LS_PASTE2(a, b)
#define LibraryDomain LS_PASTE(LIBRARY_NAME, _domain)
#define LibraryText LS_PASTE(LIBRARY_NAME, _text)
struct LibraryDomain {
  static constexpr char const* name{LS_STRING(LIBRARY_NAME)};
};
struct LibraryText {
  static constexpr char const* message{LS_STRING(LIBRARY_NAME) " registered"};
};
#endif

extern "C" __attribute__((visibility("default"))) void LIBRARY_WORK(int n) {
  for (int i = 0; i < n; ++i) {
    nvtxRangePushA(LS_STRING(LIBRARY_NAME) " literal");
    char name[64];
    std::snprintf(name, sizeof name, "%s made at run time, number %04d", LS_STRING(LIBRARY_NAME), i % 5);
    nvtxRangePushA(name);
    nvtxRangePop();
#ifdef LOCKSTEP_REAL_NVTX
    nvtx3::scoped_range_in<LibraryDomain> range{nvtx3::registered_string_in<LibraryDomain>::get<LibraryText>(),
                                                nvtx3::payload{i}};
    nvtx3::mark_in<LibraryDomain>("mark");
#endif
    nvtxRangePop();
  }
}
