#include "ingest/map/args.h"

#include <charconv>
#include <cstring>

namespace lockstep::ingest {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::string_view Unquoted(std::string_view value) {
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  while (!value.empty() && IsBlank(value.front())) value.remove_prefix(1);
  while (!value.empty() && IsBlank(value.back())) value.remove_suffix(1);
  return value;
}

void AppendUtf8(std::string& text, std::uint32_t code) {
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xc0 | code >> 6);
    text += static_cast<char>(0x80 | (code & 0x3f));
  } else {
    text += static_cast<char>(0xe0 | code >> 12);
    text += static_cast<char>(0x80 | (code >> 6 & 0x3f));
    text += static_cast<char>(0x80 | (code & 0x3f));
  }
}

}  // namespace

void ArgsCursor::Enter() {
  SkipBlanks();
  if (at_ < end_ && *at_ == '{')
    ++at_;
  else
    at_ = end_;
}

// at_ is on the opening quote; afterwards after the closing one.
bool ArgsCursor::SkipString() {
  for (++at_; at_ < end_; ++at_) {
    at_ = static_cast<const char*>(std::memchr(at_, '"', static_cast<std::size_t>(end_ - at_)));
    if (at_ == nullptr) break;
    std::size_t slashes = 0;
    while (at_[-1 - static_cast<std::ptrdiff_t>(slashes)] == '\\') ++slashes;
    if (slashes % 2 == 0) {
      ++at_;
      return true;
    }
  }
  at_ = end_;
  return false;
}

bool ArgsCursor::Next(std::string_view& key, std::string_view& value) {
  SkipBlanks();
  if (at_ < end_ && *at_ == ',') {
    ++at_;
    SkipBlanks();
  }
  if (at_ >= end_ || *at_ != '"') return false;
  const char* begin = at_ + 1;
  if (!SkipString()) return false;
  key = {begin, static_cast<std::size_t>(at_ - 1 - begin)};
  SkipBlanks();
  if (at_ >= end_ || *at_ != ':') return false;
  ++at_;
  SkipBlanks();
  begin = at_;
  if (at_ < end_ && *at_ == '"') {
    if (!SkipString()) return false;
  } else if (at_ < end_ && (*at_ == '[' || *at_ == '{')) {
    for (int depth = 0; at_ < end_; ++at_) {
      const char c = *at_;
      if (c == '"') {
        if (!SkipString()) return false;
        --at_;
      } else if (c == '[' || c == '{') {
        ++depth;
      } else if ((c == ']' || c == '}') && --depth == 0) {
        ++at_;
        break;
      }
    }
  } else {
    while (at_ < end_ && *at_ != ',' && *at_ != '}') ++at_;
  }
  value = {begin, static_cast<std::size_t>(at_ - begin)};
  while (!value.empty() && IsBlank(value.back())) value.remove_suffix(1);
  return true;
}

std::string_view ArgOf(std::string_view json, std::string_view key) {
  ArgsCursor cursor(json);
  for (std::string_view at, value; cursor.Next(at, value);)
    if (at == key) return value;
  return {};
}

std::int64_t IntOf(std::string_view value, std::int64_t fallback) {
  value = Unquoted(value);
  std::int64_t number = 0;
  const auto [at, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc()) return fallback;
  if (at != value.data() + value.size() && *at != '.') return fallback;  // 1e9, 12ab.
  return number;
}

std::uint64_t UnsignedOf(std::string_view value, std::uint64_t fallback) {
  value = Unquoted(value);
  std::uint64_t number = 0;
  const auto [at, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  return error == std::errc() ? number : fallback;
}

std::string_view TextOf(std::string_view value, std::string& scratch) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return value;
  value = value.substr(1, value.size() - 2);
  if (value.find('\\') == std::string_view::npos) return value;
  scratch.clear();
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (value[i] != '\\' || i + 1 >= value.size()) {
      scratch += value[i];
      continue;
    }
    switch (value[++i]) {
      case 'n':
        scratch += '\n';
        break;
      case 't':
        scratch += '\t';
        break;
      case 'r':
        scratch += '\r';
        break;
      case 'b':
        scratch += '\b';
        break;
      case 'f':
        scratch += '\f';
        break;
      case 'u': {
        std::uint32_t code = 0;
        const std::size_t digits = std::min<std::size_t>(4, value.size() - i - 1);
        const auto parsed = std::from_chars(value.data() + i + 1, value.data() + i + 1 + digits, code, 16);
        i = static_cast<std::size_t>(parsed.ptr - value.data()) - 1;
        AppendUtf8(scratch, code);
        break;
      }
      default:
        scratch += value[i];
    }
  }
  return scratch;
}

std::vector<std::int64_t> IntsOf(std::string_view value, bool* cut) {
  std::vector<std::int64_t> numbers;
  value = Unquoted(value);
  if (cut != nullptr) *cut = value.find("...") != std::string_view::npos;
  const char *at = value.data(), *end = at + value.size();
  while (at < end) {
    if ((*at < '0' || *at > '9') && *at != '-') {
      ++at;
      continue;
    }
    std::int64_t number = 0;
    const auto parsed = std::from_chars(at, end, number);
    if (parsed.ec == std::errc()) numbers.push_back(number);
    at = parsed.ptr > at ? parsed.ptr : at + 1;
  }
  return numbers;
}

}  // namespace lockstep::ingest
