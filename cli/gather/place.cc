#include "cli/gather/place.h"

#include <array>
#include <cstdio>
#include <vector>

#include "core/printed.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/slot/manifest.h"

namespace lockstep::cli {

Result<Place> ParsePlace(std::string_view text) {
  const Error no_directory{ErrorCode::kUsage, "no directory is named", std::string(text),
                           "HOST:DIR, where DIR holds manifest.json and ranks/, or DIR on this machine"};
  const std::size_t slash = text.find('/'), bracket = text.find('[');
  std::size_t colon = text.find(':');
  const bool bracketed = bracket < slash && bracket < colon && (bracket == 0 || text[bracket - 1] == '@');
  if (bracketed) colon = text.find("]:") == std::string_view::npos ? colon : text.find("]:") + 1;
  if (text.empty()) return no_directory;
  if (colon == std::string_view::npos || slash < colon) return Place{"", std::string(text)};
  Place place{std::string(text.substr(0, colon)), std::string(text.substr(colon + 1))};
  if (bracketed && place.host.back() == ']') place.host.erase(place.host.size() - 1).erase(bracket, 1);
  if (place.dir.empty()) return no_directory;
  if (!agent::NamesHost(place.host))
    return Error{ErrorCode::kUsage, "'" + place.host + "' is no name of a host", std::string(text),
                 "HOST:DIR with a name or address; a directory on this machine whose name has a colon: ./DIR"};
  return place;
}

std::string TextOf(const Place& place) {
  if (place.host.empty()) return place.dir;
  if (place.host.find(':') == std::string::npos) return place.host + ":" + place.dir;
  const std::size_t at = place.host.find('@');
  const std::string user = at == std::string::npos ? "" : place.host.substr(0, at + 1);
  return user + "[" + place.host.substr(user.size()) + "]:" + place.dir;
}

std::string TypedWord(const std::string& word) {
  if (Printed(word) == word) return agent::ShellQuote({word});
  std::string typed = "$'";
  for (const char c : word) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      typed += {'\\', c};
    } else if (byte >= 0x20 && byte < 0x7f) {
      typed += c;
    } else {
      std::array<char, 8> octal{};
      std::snprintf(octal.data(), octal.size(), "\\%03o", byte);
      typed += octal.data();
    }
  }
  return typed + "'";
}

}  // namespace lockstep::cli
