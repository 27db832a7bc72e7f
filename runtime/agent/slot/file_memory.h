#pragma once
// Memory that the kernel can write out: the tables of a long recording are larger than what an agent may take of the
// memory of a job that still computes, and a node of a cluster has no swap.

#include <cstdint>
#include <string>

namespace lockstep::agent {

// While one exists, blocks of 1 MiB and more that its thread gets by operator new are in a file without a name in
// `directory`: pages of a file, and no private memory. Blocks may be given back by any thread. Where that is not
// possible (file systems without O_TMPFILE or fallocate, those that are memory themselves, no space) they are as
// always.
class FileMemory {
 public:
  // At most `most_bytes`, those that were given back included.
  FileMemory(const std::string& directory, std::uint64_t most_bytes);
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;
  ~FileMemory();
  bool in_file() const;
};

}  // namespace lockstep::agent
