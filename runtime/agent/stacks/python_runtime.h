#pragma once
// Finds the interpreter's state in a process by the ELF file that holds it.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/agent/stacks/process_memory.h"

namespace lockstep::agent {

struct PythonRuntime {
  std::string path;           // Of the file that holds it; "" there is none.
  std::uint64_t address = 0;  // Of _PyRuntime.
  std::uint32_t version = 0;  // 0x030b: 3.11; 0 not known.
};

// Looks at the program and at libraries that are named like Python's.
PythonRuntime FindPython(const std::vector<Mapping>& mappings);

}  // namespace lockstep::agent
