#pragma once
// Escapes of JSON strings.

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::kineto {

// Texts that live until Clear().
class Arena {
 public:
  char* Take(std::size_t bytes);
  void GiveBack(std::size_t bytes) { used_ -= bytes; }  // Of the last Take().
  void Clear();

 private:
  std::vector<std::unique_ptr<char[]>> blocks_;
  std::size_t used_ = 0, room_ = 0;
};

// `raw` is the text between the quotes; it is returned itself if it contains no backslash. Empty if an escape is
// unknown or incomplete. Half a surrogate pair, which Python writes and reads, becomes U+FFFD; so does \u0000, which
// later stages cannot print.
std::optional<std::string_view> Unescape(std::string_view raw, Arena& arena);

}  // namespace lockstep::kineto
