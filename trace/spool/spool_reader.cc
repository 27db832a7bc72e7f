#include "trace/spool/spool_reader.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/file_lock.h"

namespace lockstep::trace {
namespace {

// Writers stay below kSpoolBlockBytes. More is allowed for text, but so little that a damaged length does not make
// every resynchronisation checksum the whole file.
constexpr std::uint32_t kMaxPayload = 4 * kSpoolBlockBytes;

enum class Look { kGood, kBad, kCut };

Look LookAt(const std::byte* at, std::size_t left, SpoolBlockHeader& header) {
  if (left < sizeof header) {
    const std::uint32_t magic = kSpoolMagic;
    return std::memcmp(at, &magic, std::min(left, sizeof magic)) == 0 ? Look::kCut : Look::kBad;
  }
  std::memcpy(&header, at, sizeof header);
  if (header.magic != kSpoolMagic || header.bytes > kMaxPayload) return Look::kBad;
  if (header.bytes > left - sizeof header) return Look::kCut;
  SpoolBlockHeader unsigned_header = header;
  unsigned_header.crc = 0;
  const std::uint32_t crc =
      Crc32c(Crc32c(0, &unsigned_header, sizeof unsigned_header), at + sizeof header, header.bytes);
  return crc == header.crc ? Look::kGood : Look::kBad;
}

}  // namespace

Result<SpoolFile> SpoolFile::Open(const std::string& path) {
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  if (!fd.open())
    return Error{errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 std::string("cannot read the spool: ") + std::strerror(errno), path, "check the path and permissions"};
  struct stat info {};
  SpoolFile file;
  if (::fstat(fd.get(), &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0) {
    void* mapped = ::mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd.get(), 0);
    if (mapped != MAP_FAILED) {
      file.data_ = static_cast<const std::byte*>(mapped);
      file.bytes_ = static_cast<std::size_t>(info.st_size);
    }
  }
  file.Scan();
  if (file.blocks_.empty())
    return Error{ErrorCode::kMalformed, "the spool holds no readable block", path,
                 "nothing of this rank can be recovered from it; remove the file to stop this message"};
  return file;
}

SpoolFile::SpoolFile(SpoolFile&& other) noexcept { *this = std::move(other); }
SpoolFile& SpoolFile::operator=(SpoolFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(blocks_, other.blocks_);
  bad_blocks_ = other.bad_blocks_;
  newer_blocks_ = other.newer_blocks_;
  cut_ = other.cut_;
  return *this;
}
SpoolFile::~SpoolFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

void SpoolFile::Scan() {
  const std::uint32_t magic = kSpoolMagic;
  for (std::size_t at = 0; at < bytes_;) {
    SpoolBlockHeader header;
    Look look = LookAt(data_ + at, bytes_ - at, header);
    if (look == Look::kGood) {
      if (header.version == kSpoolVersion)
        blocks_.push_back({header, {data_ + at + sizeof header, header.bytes}});
      else
        ++newer_blocks_;
      at += sizeof header + header.bytes;
      continue;
    }
    // Looks for the next block after the damage.
    const bool began_as_block = look == Look::kCut;
    std::size_t next = at + 1;
    for (; next < bytes_; ++next) {
      const void* found = ::memmem(data_ + next, bytes_ - next, &magic, sizeof magic);
      if (found == nullptr) {
        next = bytes_;
        break;
      }
      next = static_cast<std::size_t>(static_cast<const std::byte*>(found) - data_);
      look = LookAt(data_ + next, bytes_ - next, header);
      if (look == Look::kGood) break;
    }
    if (next == bytes_ && began_as_block)
      cut_ = true;
    else
      ++bad_blocks_;
    at = next;
  }
}

}  // namespace lockstep::trace
