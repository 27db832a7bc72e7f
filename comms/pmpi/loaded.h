#pragma once
// What the objects that are loaded in this process define, without asking ld.so: its own search knows scopes, and must
// not be called while it relocates.

#include <cstdint>

struct dl_phdr_info;

namespace lockstep::pmpi {

// Whether an object other than the one that contains `self` defines the symbol. The path of the first such object goes
// to `path` ("" the program), if that is not null; false also where the path is too long.
bool LoadedObjectDefines(const char* symbol, const void* self, char* path, unsigned long path_bytes);

// Wrappers of another tool: an object with functions of MPI whose PMPI_ names are another's.
struct OtherTool {
  std::uintptr_t begin, end;  // Of the object.
  const char* path;           // "" the program.
  bool calls_pmpi;            // It refers to PMPI_ functions by name.

  bool Contains(const void* address) const { return reinterpret_cast<std::uintptr_t>(address) - begin < end - begin; }
};

// Whether the object refers to functions of MPI by name, and is no MPI library.
bool RefersToMpi(const dl_phdr_info& object);

constexpr unsigned kMostTools = 8;

// Finds the tools among the loaded objects other than the one that contains `names`, and returns how many there are.
// `names`: `count` names, each ended by a zero, in pairs of MPI_X and PMPI_X.
unsigned FindTools(const char* names, unsigned count, OtherTool (&tools)[kMostTools]);

}  // namespace lockstep::pmpi
