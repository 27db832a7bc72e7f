#include "runtime/agent/send/file_words.h"

#include <algorithm>

namespace lockstep::agent {
namespace {

// No field has this byte, and a place has two.
constexpr char kBetween = '\0';
constexpr std::ptrdiff_t kInPlace = 2, kInText = 4;

}  // namespace

std::string OpenText(const Caller& caller) {
  return caller.place + kBetween + caller.version + kBetween + caller.boot_id;
}

std::optional<Caller> ReadOpenText(const std::string& text) {
  if (std::count(text.begin(), text.end(), kBetween) != kInText) return std::nullopt;
  std::size_t version = 0;
  for (std::ptrdiff_t field = 0; field <= kInPlace; ++field) version = text.find(kBetween, version) + 1;
  const std::size_t boot_id = text.find(kBetween, version) + 1;
  return Caller{text.substr(0, version - 1), text.substr(version, boot_id - 1 - version), text.substr(boot_id)};
}

}  // namespace lockstep::agent
