#include "export/common/tar.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lockstep::exporters {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::uint64_t kOctalLimit = 1ull << 33;  // Eleven octal digits.

std::string Header(const std::string& name, std::uint64_t bytes) {
  std::string header(kBlock, '\0');
  const auto put = [&](std::size_t at, std::string_view text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, std::string_view(name).substr(0, 99));
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  char text[16];
  if (bytes < kOctalLimit) {
    std::snprintf(text, sizeof text, "%011llo", static_cast<unsigned long long>(bytes));
    put(124, text);
  } else {
    header[124] = static_cast<char>(0x80);
    for (int i = 0; i < 8; ++i) header[static_cast<std::size_t>(135 - i)] = static_cast<char>(bytes >> (8 * i));
  }
  put(136, "00000000000");  // No times, so that the same run gives the same bytes.
  put(148, "        ");
  header[156] = '0';
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(text, sizeof text, "%06o", sum);
  put(148, text);
  header[154] = '\0';
  header[155] = ' ';
  return header;
}

void Pad(OutFile& out, std::uint64_t bytes) {
  if (const std::uint64_t rest = bytes % kBlock; rest != 0) out.Put(std::string(kBlock - rest, '\0'));
}

}  // namespace

void Tar::Add(const std::string& name, std::string_view content) {
  out_.Put(Header(name, content.size()));
  out_.Put(content);
  Pad(out_, content.size());
}

void Tar::Finish() { out_.Put(std::string(2 * kBlock, '\0')); }

void Tar::Member::Begin(const std::string& name) {
  name_ = name;
  header_at_ = out_.bytes();
  out_.Put(std::string(kBlock, '\0'));
}

void Tar::Member::End() {
  const std::uint64_t bytes = out_.bytes() - header_at_ - kBlock;
  Pad(out_, bytes);
  out_.PutAt(header_at_, Header(name_, bytes));
}

}  // namespace lockstep::exporters
