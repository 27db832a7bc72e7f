#include "ingest/ras/answer.h"

#include <algorithm>
#include <cctype>

namespace lockstep::ras {

std::string KindOf(const std::string& name) {
  if (name == "AlltoAll") return "all_to_all";
  std::string kind;
  for (const char c : name) {
    const auto u = static_cast<unsigned char>(c);
    if (std::isupper(u) != 0 && !kind.empty()) kind += '_';
    kind += static_cast<char>(std::tolower(u));
  }
  return kind;
}

std::string PlainHash(const std::string& hash) {
  std::string plain = hash.starts_with("0x") ? hash.substr(2) : hash;
  plain.erase(0, std::min(plain.find_first_not_of('0'), plain.size()));
  return plain;
}

}  // namespace lockstep::ras
