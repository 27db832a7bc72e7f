#include "ingest/kineto/read/unescape.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace lockstep::kineto {
namespace {

constexpr std::size_t kBlockBytes = 64 * 1024;
constexpr std::uint32_t kReplacement = 0xFFFD;

// Four hex digits at `at`; none if they are not.
std::optional<std::uint32_t> Hex4(std::string_view raw, std::size_t at) {
  if (at + 4 > raw.size()) return std::nullopt;
  std::uint32_t value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const char c = raw[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + static_cast<std::uint32_t>(digit);
  }
  return value;
}

char* PutUtf8(std::uint32_t code, char* out) {
  const auto put = [&out](std::uint32_t byte) { *out++ = static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
  return out;
}

// Converts one escape, `at` after its backslash. Null if it is invalid.
char* PutEscape(std::string_view raw, std::size_t& at, char* out) {
  const char c = at < raw.size() ? raw[at++] : '\0';
  switch (c) {
    case '"':
    case '\\':
    case '/':
      *out++ = c;
      return out;
    case 'b':
      *out++ = '\b';
      return out;
    case 'f':
      *out++ = '\f';
      return out;
    case 'n':
      *out++ = '\n';
      return out;
    case 'r':
      *out++ = '\r';
      return out;
    case 't':
      *out++ = '\t';
      return out;
    case 'u': {
      const auto first = Hex4(raw, at);
      if (!first) return nullptr;
      at += 4;
      std::uint32_t code = *first;
      if (code >= 0xD800 && code < 0xDC00 && raw.substr(at, 2) == "\\u") {
        const auto second = Hex4(raw, at + 2);
        if (second && *second >= 0xDC00 && *second < 0xE000) {
          code = 0x10000 + ((code - 0xD800) << 10) + (*second - 0xDC00);
          at += 6;
        }
      }
      if (code == 0 || (code >= 0xD800 && code < 0xE000)) code = kReplacement;
      return PutUtf8(code, out);
    }
    default:
      return nullptr;
  }
}

}  // namespace

char* Arena::Take(std::size_t bytes) {
  if (used_ + bytes > room_) {
    room_ = std::max(bytes, kBlockBytes);
    used_ = 0;
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(room_));
  }
  char* place = blocks_.back().get() + used_;
  used_ += bytes;
  return place;
}

void Arena::Clear() {
  blocks_.clear();
  used_ = room_ = 0;
}

std::optional<std::string_view> Unescape(std::string_view raw, Arena& arena) {
  if (raw.empty() || std::memchr(raw.data(), '\\', raw.size()) == nullptr) return raw;
  // No escape is shorter than the character it represents.
  char* const begin = arena.Take(raw.size());
  char* out = begin;
  for (std::size_t i = 0; i < raw.size();) {
    if (raw[i] != '\\') {
      *out++ = raw[i++];
      continue;
    }
    ++i;
    out = PutEscape(raw, i, out);
    if (out == nullptr) {
      arena.GiveBack(raw.size());
      return std::nullopt;
    }
  }
  arena.GiveBack(raw.size() - static_cast<std::size_t>(out - begin));
  return std::string_view(begin, static_cast<std::size_t>(out - begin));
}

}  // namespace lockstep::kineto
