#pragma once
// What the objects that are loaded in this process define, without asking ld.so: its own search knows scopes, and must
// not be called while it relocates.

namespace lockstep::pmpi {

// Whether an object other than the one that contains `self` defines the symbol. The path of the first such object goes
// to `path` ("" the program), if that is not null; false also where the path is too long.
bool LoadedObjectDefines(const char* symbol, const void* self, char* path, unsigned long path_bytes);

}  // namespace lockstep::pmpi
