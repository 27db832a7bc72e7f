#pragma once
// Writes a file through a buffer, so that it appears whole or not at all.

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "core/result.h"
#include "trace/file/part_file.h"

namespace lockstep::exporters {

// For exporters whose output is a directory; kIo if it cannot be made.
Status MakeDirectory(const std::string& path);

// Writes a part (trace/file/part_file.h) and renames it in Close; the destructor removes it without Close. Errors are
// kept until status() is called, so that a walk over millions of events checks once. Thread: one at a time.
class OutFile {
 public:
  OutFile() = default;
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;
  ~OutFile();

  Status Open(const std::string& path);
  void Put(std::string_view text) {
    buffer_.append(text);
    if (buffer_.size() >= kBuffer) Flush();
  }
  std::string& buffer() { return buffer_; }  // To append to; then Grown().
  void Grown() {
    if (buffer_.size() >= kBuffer) Flush();
  }
  // Overwrites bytes that were written before.
  void PutAt(std::uint64_t offset, std::string_view text);
  std::uint64_t bytes() const { return written_ + buffer_.size(); }
  Status status() const;
  Status Close();

 private:
  static constexpr std::size_t kBuffer = 1 << 20;
  void Flush();

  std::string path_, buffer_;
  trace::PartFile part_;
  std::FILE* file_ = nullptr;
  std::uint64_t written_ = 0;
  int error_ = 0;
};

}  // namespace lockstep::exporters
