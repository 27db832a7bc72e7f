#pragma once
// Appends checksummed blocks to a spool file (core/spool_layout.h).
//
// A full disk must not tear a block or silence its own report: space is allocated
// ahead (fallocate keeps the size), and the last of it is kept for the blocks that
// say what was lost and that the application ended (SpoolReserve).
//
// The writer holds the file's exclusive lock (core/file_lock.h) from before it has its name until Unlock() or its
// own end: as long as that is so, no other process may touch the spool or what it points to.

#include <sys/uio.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_lock.h"
#include "core/result.h"
#include "core/spool_layout.h"

namespace lockstep::agent {

// The spool keeps 128 KiB allocated beyond what is written, so that the most important blocks fit on a full disk: how
// much of this reserve a block may use.
enum class SpoolReserve : std::uint8_t {
  kNone,
  kHalf,  // Few and small blocks, without which others cannot be understood.
  kAll,   // Blocks that are written once, after the application's end.
};

class SpoolWriter {
 public:
  // kIo if the file cannot be made, or something has its name already. The descriptor is close-on-exec.
  static Result<SpoolWriter> Create(const std::string& path);
  // A writer that writes nothing and counts the bytes.
  static SpoolWriter Counting();
  SpoolWriter(SpoolWriter&& other) noexcept;
  SpoolWriter& operator=(SpoolWriter&& other) noexcept;
  ~SpoolWriter();

  struct Key {
    SpoolKind kind;
    std::uint32_t ring = 0, generation = 0;
    std::uint64_t first_slot = 0;
  };
  // Writes one block whole or not at all. Returns false if there is no space or on an I/O error; the file still ends
  // with a whole block.
  bool Append(const Key& key, std::span<const iovec> payload, SpoolReserve reserve = SpoolReserve::kNone);
  bool Append(const Key& key, const void* payload, std::size_t bytes, SpoolReserve reserve = SpoolReserve::kNone);
  bool Append(const Key& key, std::string_view text, SpoolReserve reserve = SpoolReserve::kNone) {
    return Append(key, text.data(), text.size(), reserve);
  }
  // Writes a block of plain rows.
  template <typename Row>
  bool Append(const Key& key, const std::vector<Row>& rows, SpoolReserve reserve = SpoolReserve::kNone) {
    return Append(key, rows.data(), rows.size() * sizeof(Row), reserve);
  }

  // Gives unused allocated space back and closes the file. Returns false if the system reported a write error. The lock
  // stays.
  bool Close();
  // Another process may finish the spool from now on.
  void Unlock() { lock_.Reset(); }
  // Whether the lock proves that this process runs; false on file systems without locks.
  bool locked() const { return locked_; }
  std::uint64_t inode() const { return inode_; }

  std::uint64_t bytes() const { return bytes_; }
  int last_error() const { return last_error_; }  // errno of the last failed Append.
  const std::string& path() const { return path_; }

 private:
  SpoolWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  bool Allocate(std::uint64_t end);

  int fd_ = -1;
  OwnedFd lock_;  // A duplicate of the descriptor: it keeps the same lock after fd_ was closed.
  std::string path_;
  std::uint64_t bytes_ = 0, allocated_ = 0, inode_ = 0, size_limit_ = UINT64_MAX;
  bool can_allocate_ = true, counting_ = false, locked_ = false;
  int last_error_ = 0;
};

}  // namespace lockstep::agent
