#pragma once
// Reads records as the agent takes them from a ring: in parts that may cut a record between two slots.

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

namespace lockstep::agent {

class RecordReader {
 public:
  explicit RecordReader(std::span<const iovec> parts) : parts_(parts) {
    for (const iovec& part : parts) bytes_ += part.iov_len;
  }
  std::size_t bytes() const { return bytes_; }
  bool Copy(std::size_t at, void* to, std::size_t size) const {
    if (at > bytes_ || size > bytes_ - at) return false;
    auto* out = static_cast<std::byte*>(to);
    for (const iovec& part : parts_) {
      if (at >= part.iov_len) {
        at -= part.iov_len;
        continue;
      }
      const std::size_t count = std::min(size, part.iov_len - at);
      std::memcpy(out, static_cast<const std::byte*>(part.iov_base) + at, count);
      out += count;
      size -= count;
      at = 0;
      if (size == 0) break;
    }
    return true;
  }

 private:
  std::span<const iovec> parts_;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep::agent
