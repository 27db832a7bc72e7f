#include "make_run/json_stream.h"

#include <algorithm>

namespace lockstep::make_run {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

constexpr auto kPairs = [] {
  struct {
    char digits[200];
  } pairs{};
  for (int i = 0; i < 100; ++i) {
    pairs.digits[2 * i] = static_cast<char>('0' + i / 10);
    pairs.digits[2 * i + 1] = static_cast<char>('0' + i % 10);
  }
  return pairs;
}();

}  // namespace

JsonStream::JsonStream(std::string path, Options options)
    : path_(std::move(path)), options_(options), buffer_(new char[kBufferBytes]) {
  at_ = buffer_.get();
  end_ = at_ + kBufferBytes;
  if (options_.gzip) {
    gzip_ = gzopen(path_.c_str(), "wb1");
    if (gzip_ != nullptr) gzbuffer(gzip_, 1 << 18);
  } else {
    file_ = std::fopen(path_.c_str(), "wb");
  }
  failed_ = file_ == nullptr && gzip_ == nullptr;
}

JsonStream::~JsonStream() {
  if (file_ != nullptr) std::fclose(file_);
  if (gzip_ != nullptr) gzclose(gzip_);
}

void JsonStream::PutDigits(std::uint64_t value) {
  char digits[20];
  char* first = digits + sizeof digits;
  while (value >= 100) {
    first -= 2;
    std::memcpy(first, kPairs.digits + 2 * (value % 100), 2);
    value /= 100;
  }
  if (value >= 10) {
    first -= 2;
    std::memcpy(first, kPairs.digits + 2 * value, 2);
  } else {
    *--first = static_cast<char>('0' + value);
  }
  const auto size = static_cast<std::size_t>(digits + sizeof digits - first);
  std::memcpy(at_, first, size);
  at_ += size;
}

void JsonStream::PutInt(std::int64_t value) {
  if (value < 0) *at_++ = '-';
  PutDigits(value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value));
}

void JsonStream::Microseconds(std::int64_t ns, bool whole) {
  Room(32);
  if (whole) return PutInt(ns / 1000);
  std::uint64_t size = static_cast<std::uint64_t>(ns);
  if (ns < 0) {
    *at_++ = '-';
    size = 0 - size;
  }
  PutDigits(size / 1000);
  const std::uint64_t rest = size % 1000;
  *at_++ = '.';
  *at_++ = static_cast<char>('0' + rest / 100);
  std::memcpy(at_, kPairs.digits + 2 * (rest % 100), 2);
  at_ += 2;
}

// Blanks outside texts go; in place.
std::size_t JsonStream::Minify(char* text, std::size_t size) {
  char* out = text;
  for (std::size_t i = 0; i < size; ++i) {
    const char c = text[i];
    if (in_string_) {
      *out++ = c;
      in_string_ = escaped_ || c != '"';
      escaped_ = !escaped_ && c == '\\';
    } else if (c != ' ' && c != '\n') {
      *out++ = c;
      in_string_ = c == '"';
    }
  }
  return static_cast<std::size_t>(out - text);
}

void JsonStream::Flush(std::size_t room) {
  auto size = static_cast<std::size_t>(at_ - buffer_.get());
  if (options_.minified) size = Minify(buffer_.get(), size);
  if (gzip_ != nullptr)
    failed_ |= size > 0 && gzwrite(gzip_, buffer_.get(), static_cast<unsigned>(size)) != static_cast<int>(size);
  else if (file_ != nullptr)
    failed_ |= std::fwrite(buffer_.get(), 1, size, file_) != size;
  const auto capacity = static_cast<std::size_t>(end_ - buffer_.get());
  if (room > capacity) {
    buffer_.reset(new char[room]);
    end_ = buffer_.get() + room;
  }
  at_ = buffer_.get();
}

Status JsonStream::Close() {
  Flush(0);
  if (file_ != nullptr) failed_ |= std::fclose(file_) != 0;
  if (gzip_ != nullptr) failed_ |= gzclose(gzip_) != Z_OK;
  file_ = nullptr;
  gzip_ = nullptr;
  if (failed_) return Error{ErrorCode::kIo, "cannot write the trace", path_, "free space there"};
  return Ok();
}

}  // namespace lockstep::make_run
