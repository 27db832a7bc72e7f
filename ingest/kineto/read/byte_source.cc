#include "ingest/kineto/read/byte_source.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/file_lock.h"

namespace lockstep::kineto {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 20;
constexpr std::string_view kBehind = "bytes behind the end of the gzip data";

// A regular file, or any other source that can be read from front to back.
class File {
 public:
  File(OwnedFd fd, std::uint64_t bytes) : fd_(std::move(fd)), bytes_(bytes) {}

  std::size_t Read(char* into, std::size_t bytes) {
    std::size_t have = 0;
    while (have < bytes) {
      const ssize_t got = ::read(fd_.get(), into + have, bytes - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) error_ = errno;
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    done_ += have;
    return have;
  }
  std::uint64_t done() const { return done_; }
  // Pipes have no size, and files may grow.
  std::uint64_t bytes() const { return std::max(bytes_, done_); }
  int error() const { return error_; }

 private:
  OwnedFd fd_;
  std::uint64_t bytes_, done_ = 0;
  int error_ = 0;
};

Defect ReadError(const File& file) {
  return {Loss::kImportCutShort, 1,
          fmt::format("cannot be read behind byte {}: {}", file.done(), std::strerror(file.error()))};
}

class PlainSource final : public ByteSource {
 public:
  PlainSource(std::unique_ptr<File> file, std::string first) : file_(std::move(file)), first_(std::move(first)) {}
  std::size_t Read(char* into, std::size_t bytes) override {
    const std::size_t kept = std::min(bytes, first_.size() - first_used_);
    std::memcpy(into, first_.data() + first_used_, kept);
    first_used_ += kept;
    const std::size_t have = kept + file_->Read(into + kept, bytes - kept);
    if (file_->error() != 0 && defects_.empty()) defects_.push_back(ReadError(*file_));
    return have;
  }
  std::uint64_t file_done() const override { return file_->done(); }
  std::uint64_t file_bytes() const override { return file_->bytes(); }

 private:
  std::unique_ptr<File> file_;
  std::string first_;
  std::size_t first_used_ = 0;
};

class GzipSource final : public ByteSource {
 public:
  GzipSource(std::unique_ptr<File> file, std::string first) : file_(std::move(file)), in_(std::move(first)) {
    in_used_ = 0;
    in_end_ = in_.size();
    in_.resize(std::max(in_.size(), kReadBytes));
    ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
  }
  ~GzipSource() override { inflateEnd(&stream_); }

  std::size_t Read(char* into, std::size_t bytes) override {
    std::size_t have = 0;
    while (have < bytes && ready_) {
      if (in_used_ == in_end_ && !Refill()) {
        if (inside_ && members_ > 0 && stream_.total_out == 0)  // Less than a header.
          Stop(Loss::kImportGarbage, kBehind);
        else if (inside_)
          Stop(Loss::kImportCutShort, "the gzip data end early");
        ready_ = false;
        break;
      }
      if (!inside_ && !NextMember()) break;
      stream_.next_in = reinterpret_cast<Bytef*>(in_.data() + in_used_);
      stream_.avail_in = static_cast<uInt>(in_end_ - in_used_);
      stream_.next_out = reinterpret_cast<Bytef*>(into + have);
      stream_.avail_out = static_cast<uInt>(std::min<std::size_t>(bytes - have, 1u << 30));
      const uInt room = stream_.avail_out;
      const int status = inflate(&stream_, Z_NO_FLUSH);
      have += room - stream_.avail_out;
      in_used_ = in_end_ - stream_.avail_in;
      if (status == Z_STREAM_END) {
        inside_ = false;
        ++members_;
        inflateReset(&stream_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        Stop(Loss::kImportGarbage, stream_.msg != nullptr ? stream_.msg : "the gzip data are damaged");
      }
    }
    return have;
  }
  std::uint64_t file_done() const override { return file_->done() - (in_end_ - in_used_); }
  std::uint64_t file_bytes() const override { return file_->bytes(); }

 private:
  bool Refill() {
    in_used_ = 0;
    in_end_ = file_->Read(in_.data(), in_.size());
    if (file_->error() != 0 && defects_.empty()) defects_.push_back(ReadError(*file_));
    return in_end_ > 0;
  }
  // Moves to the first byte after a member, or after the file. Returns false if no member begins there.
  bool NextMember() {
    if (members_ > 0) {
      // Archivers and tapes pad with zeros; gzip(1) ignores them as well.
      while (in_[in_used_] == '\0')
        if (++in_used_ == in_end_ && !Refill()) {
          ready_ = false;
          return false;
        }
      if (static_cast<unsigned char>(in_[in_used_]) != 0x1F ||
          (in_used_ + 1 < in_end_ && static_cast<unsigned char>(in_[in_used_ + 1]) != 0x8B)) {
        Stop(Loss::kImportGarbage, kBehind);
        return false;
      }
    }
    inside_ = true;
    return true;
  }
  void Stop(Loss loss, std::string_view what) {
    defects_.push_back({loss, 1, fmt::format("{} at byte {} of {}", what, file_done(), file_bytes())});
    ready_ = false;
  }

  std::unique_ptr<File> file_;
  std::string in_;
  std::size_t in_used_ = 0, in_end_ = 0;
  z_stream stream_{};
  bool ready_ = false, inside_ = false;
  std::uint64_t members_ = 0;
};

class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(std::string_view text) : text_(text) {}
  std::size_t Read(char* into, std::size_t bytes) override {
    const std::size_t have = std::min(bytes, text_.size() - done_);
    if (have > 0) std::memcpy(into, text_.data() + done_, have);
    done_ += have;
    return have;
  }
  std::uint64_t file_done() const override { return done_; }
  std::uint64_t file_bytes() const override { return text_.size(); }

 private:
  std::string_view text_;
  std::size_t done_ = 0;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> OpenSource(const std::string& path) {
  const auto failed = [&path](int error) {
    const bool absent = error == ENOENT || error == ENOTDIR;
    return Error{absent ? ErrorCode::kNotFound : ErrorCode::kIo,
                 absent ? "there is no such trace" : fmt::format("the trace cannot be read: {}", std::strerror(error)),
                 path, absent ? "check the path" : "check its permissions and the disk"};
  };
  OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!fd.open() || ::fstat(fd.get(), &status) != 0) return failed(errno);
  if (S_ISDIR(status.st_mode)) return failed(EISDIR);
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  auto file =
      std::make_unique<File>(std::move(fd), S_ISREG(status.st_mode) ? static_cast<std::uint64_t>(status.st_size) : 0);
  std::string first(64 * 1024, '\0');
  first.resize(file->Read(first.data(), first.size()));
  if (first.empty() && file->error() != 0) return failed(file->error());
  std::unique_ptr<ByteSource> source;
  if (first.starts_with("\x1F\x8B"))
    source = std::make_unique<GzipSource>(std::move(file), std::move(first));
  else
    source = std::make_unique<PlainSource>(std::move(file), std::move(first));
  return source;
}

std::unique_ptr<ByteSource> TextSource(std::string_view text) { return std::make_unique<MemorySource>(text); }

}  // namespace lockstep::kineto
