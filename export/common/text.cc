#include "export/common/text.h"

#include <charconv>

namespace lockstep::exporters {
namespace {

// Bytes of the valid sequence at `at`, 0 if there is none (Unicode 15, table 3-7).
std::size_t SequenceAt(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u; };
  const auto follows = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xbf) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return follows(1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80, high = first == 0xed ? 0x9f : 0xbf;
    return follows(1, low, high) && follows(2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80, high = first == 0xf4 ? 0x8f : 0xbf;
    return follows(1, low, high) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

std::string_view ValidUtf8(std::string_view text, std::string& scratch) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const std::size_t bytes = SequenceAt(text, at);
    if (bytes == 0) break;
    at += bytes;
  }
  if (at == text.size()) return text;
  scratch.assign(text.substr(0, at));
  while (at < text.size()) {
    const std::size_t bytes = SequenceAt(text, at);
    if (bytes == 0) {
      scratch += "\xef\xbf\xbd";
      ++at;
    } else {
      scratch.append(text.substr(at, bytes));
      at += bytes;
    }
  }
  return scratch;
}

void AppendJsonText(std::string& out, std::string_view given) {
  std::string scratch;
  const std::string_view text = ValidUtf8(given, scratch);
  out += '"';
  std::size_t from = 0;  // What precedes it is in `out`.
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, from, i - from);
    from = i + 1;
    out += '\\';
    switch (c) {
      case '"':
      case '\\':
        out += c;
        break;
      case '\n':
        out += 'n';
        break;
      case '\r':
        out += 'r';
        break;
      case '\t':
        out += 't';
        break;
      default:
        constexpr char kHex[] = "0123456789abcdef";
        out += "u00";
        out += kHex[static_cast<unsigned char>(c) >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, from);
  out += '"';
}

void AppendCsvText(std::string& out, std::string_view given) {
  std::string scratch;
  const std::string_view text = ValidUtf8(given, scratch);
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

void AppendInt(std::string& out, std::int64_t value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void AppendUnsigned(std::string& out, std::uint64_t value) {
  char digits[24];
  out.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

void AppendMicroseconds(std::string& out, std::int64_t ns) {
  std::uint64_t size = static_cast<std::uint64_t>(ns);
  if (ns < 0) {
    out += '-';
    size = 0 - size;
  }
  AppendUnsigned(out, size / 1000);
  const std::uint64_t rest = size % 1000;
  out += '.';
  out += static_cast<char>('0' + rest / 100);
  out += static_cast<char>('0' + rest / 10 % 10);
  out += static_cast<char>('0' + rest % 10);
}

}  // namespace lockstep::exporters
