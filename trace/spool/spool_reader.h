#pragma once
// Reads the blocks of a spool file; damage is skipped and counted.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spool_layout.h"

namespace lockstep::trace {

struct SpoolBlock {
  SpoolBlockHeader header;
  std::span<const std::byte> payload;  // Into the mapped file; of any alignment.
};

// Maps the file for its lifetime. Reads never leave the size it had at Open; the
// file may grow meanwhile, but must not be cut.
class SpoolFile {
 public:
  // kNotFound, or kMalformed if no block is readable.
  static Result<SpoolFile> Open(const std::string& path);
  SpoolFile(SpoolFile&& other) noexcept;
  SpoolFile& operator=(SpoolFile&& other) noexcept;
  ~SpoolFile();

  const std::vector<SpoolBlock>& blocks() const { return blocks_; }
  std::uint64_t bad_blocks() const { return bad_blocks_; }      // Runs of bytes that are no good block.
  bool cut() const { return cut_; }                             // Runs of bytes that are not a good block.
  std::uint64_t newer_blocks() const { return newer_blocks_; }  // Good blocks of a version that is not supported.

 private:
  SpoolFile() = default;
  void Scan();

  const std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<SpoolBlock> blocks_;
  std::uint64_t bad_blocks_ = 0, newer_blocks_ = 0;
  bool cut_ = false;
};

}  // namespace lockstep::trace
