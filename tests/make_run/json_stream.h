#pragma once
// Text of a large JSON file, formatted by hand into a buffer that goes to a plain or gzip file.

#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"

namespace lockstep::make_run {

// Thread: one at a time. Errors are kept and told by Close.
class JsonStream {
 public:
  struct Options {
    bool minified = false, gzip = false;
  };
  JsonStream(std::string path, Options options);
  ~JsonStream();
  JsonStream(const JsonStream&) = delete;

  void Text(std::string_view text) {
    Room(text.size());
    std::memcpy(at_, text.data(), text.size());
    at_ += text.size();
  }
  void Int(std::int64_t value) {
    Room(24);
    PutInt(value);
  }
  // Microseconds with three decimals, or cut to whole ones.
  void Microseconds(std::int64_t ns, bool whole);
  Status Close();

 private:
  void Room(std::size_t bytes) {
    if (static_cast<std::size_t>(end_ - at_) < bytes) Flush(bytes);
  }
  void PutInt(std::int64_t value);
  void PutDigits(std::uint64_t value);
  void Flush(std::size_t room);
  std::size_t Minify(char* text, std::size_t size);

  std::string path_;
  Options options_;
  std::unique_ptr<char[]> buffer_;
  char *at_ = nullptr, *end_ = nullptr;
  std::FILE* file_ = nullptr;
  gzFile gzip_ = nullptr;
  bool failed_ = false, in_string_ = false, escaped_ = false;
};

}  // namespace lockstep::make_run
