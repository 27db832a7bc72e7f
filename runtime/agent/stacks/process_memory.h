#pragma once
// What another process has in memory, read without stopping it.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace lockstep::agent {

class ProcessMemory {
 public:
  explicit ProcessMemory(pid_t pid) : pid_(pid) {}
  // All of it, or false.
  bool Read(std::uint64_t address, void* to, std::size_t bytes) const;
  template <typename T>
  bool Get(std::uint64_t address, T& value) const {
    static_assert(std::is_trivially_copyable_v<T>);
    return Read(address, &value, sizeof value);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

struct Mapping {
  std::uint64_t begin = 0, end = 0, offset = 0;
  bool executable = false;
  std::string path;  // "" anonymous; "[stack]".
  std::string line;  // As /proc has it, without its end.
};

// Ascending. Empty: it cannot be read.
std::vector<Mapping> MappingsOf(pid_t pid);
// The lines of files that code is mapped of, each of them whole, and of the vdso: what names of functions are found by.
std::string CodeLinesOf(const std::vector<Mapping>& mappings);
// Null: nothing is mapped there.
const Mapping* MappingAt(const std::vector<Mapping>& mappings, std::uint64_t address);

}  // namespace lockstep::agent
