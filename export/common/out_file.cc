#include "export/common/out_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "core/own_file.h"

namespace lockstep::exporters {

Status MakeDirectory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return Error{ErrorCode::kIo, "cannot make the directory: " + error.message(), path, "-o DIR elsewhere"};
  return Ok();
}

OutFile::~OutFile() {
  if (file_ != nullptr) std::fclose(file_);
}

Status OutFile::Open(const std::string& path) {
  path_ = path;
  buffer_.reserve(kBuffer + (64 << 10));
  error_ = part_.Open(path);
  if (error_ != 0) return status();
  const int fd = ::fcntl(part_.fd(), F_DUPFD_CLOEXEC, 0);
  file_ = fd < 0 ? nullptr : ::fdopen(fd, "wb");
  if (file_ == nullptr) {
    error_ = errno;
    if (fd >= 0) ::close(fd);
  }
  return status();
}

void OutFile::Flush() {
  if (file_ != nullptr && error_ == 0 && std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size())
    error_ = errno == 0 ? EIO : errno;
  written_ += buffer_.size();
  buffer_.clear();
}

void OutFile::PutAt(std::uint64_t offset, std::string_view text) {
  Flush();
  if (file_ == nullptr || error_ != 0) return;
  if (::fseeko(file_, static_cast<off_t>(offset), SEEK_SET) != 0 ||
      std::fwrite(text.data(), 1, text.size(), file_) != text.size() || ::fseeko(file_, 0, SEEK_END) != 0)
    error_ = errno == 0 ? EIO : errno;
}

Status OutFile::status() const {
  if (error_ == 0) return Ok();
  return Error{ErrorCode::kIo, "cannot write the export: " + std::generic_category().message(error_), path_,
               "name a directory with free space that can be written to with -o"};
}

Status OutFile::Close() {
  Flush();
  if (file_ != nullptr) {
    if (std::fclose(file_) != 0 && error_ == 0) error_ = errno;
    file_ = nullptr;
    if (error_ == 0) error_ = part_.Publish();
    if (error_ != 0) part_.Drop();
  }
  return status();
}

}  // namespace lockstep::exporters
