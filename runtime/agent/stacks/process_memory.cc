#include "runtime/agent/stacks/process_memory.h"

#include <sys/uio.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <set>
#include <string_view>
#include <utility>

namespace lockstep::agent {

bool ProcessMemory::Read(std::uint64_t address, void* to, std::size_t bytes) const {
  if (bytes == 0) return true;
  const iovec here{to, bytes};
  const iovec there{reinterpret_cast<void*>(address), bytes};
  return ::process_vm_readv(pid_, &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

std::vector<Mapping> MappingsOf(pid_t pid) {
  std::vector<Mapping> mappings;
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  for (std::string line; std::getline(file, line);) {
    // "7f01c000-7f01d000 r-xp 00001000 08:01 1234      /usr/lib/libc.so.6".
    Mapping mapping;
    unsigned long begin = 0, end = 0, offset = 0;
    char rights[8] = "";
    int path = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx %7s %lx %*s %*s %n", &begin, &end, rights, &offset, &path) < 4) continue;
    mapping.begin = begin;
    mapping.end = end;
    mapping.offset = offset;
    mapping.executable = rights[2] == 'x';
    if (path > 0) mapping.path = line.substr(static_cast<std::size_t>(path));
    mapping.line = std::move(line);
    mappings.push_back(std::move(mapping));
  }
  return mappings;
}

std::string CodeLinesOf(const std::vector<Mapping>& mappings) {
  std::set<std::string_view> with_code;
  for (const Mapping& mapping : mappings)
    if (mapping.executable && !mapping.path.empty()) with_code.insert(mapping.path);
  std::string lines;
  for (const Mapping& mapping : mappings)
    if (with_code.contains(mapping.path) && (mapping.path[0] == '/' || mapping.path == "[vdso]"))
      lines += mapping.line + "\n";
  return lines;
}

const Mapping* MappingAt(const std::vector<Mapping>& mappings, std::uint64_t address) {
  const auto after = std::upper_bound(mappings.begin(), mappings.end(), address,
                                      [](std::uint64_t wanted, const Mapping& each) { return wanted < each.begin; });
  if (after == mappings.begin()) return nullptr;
  const Mapping& mapping = *(after - 1);
  return address < mapping.end ? &mapping : nullptr;
}

}  // namespace lockstep::agent
