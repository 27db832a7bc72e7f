#pragma once
// Where a part of a run is, as the user writes it: HOST:DIR, or DIR on this machine.

#include <string>
#include <string_view>

#include "core/result.h"

namespace lockstep::cli {

struct Place {
  std::string host;  // "user@node2", "fd00::2"; "": this machine.
  std::string dir;   // On another host relative to where its shell begins, mostly the user's home.
};

// A text is a HOST:DIR if a colon comes before its first slash, as for scp and rsync; [fd00::2]:DIR for an IPv6
// address. kUsage: no directory, or a host that a remote shell could take for an option or for several words.
Result<Place> ParsePlace(std::string_view text);

// As the user writes it.
std::string TextOf(const Place& place);

// One word of a command line to be typed: as a POSIX shell reads it, or, for characters that a terminal does not show,
// as bash, zsh and ksh do ($'\n').
std::string TypedWord(const std::string& word);

}  // namespace lockstep::cli
