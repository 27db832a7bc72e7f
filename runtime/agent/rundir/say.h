#pragma once
// A message on standard error, in one write, so that the messages of many ranks do
// not mix. Never standard output: that is the application's.

#include <string_view>

namespace lockstep::agent {

// Prints "lockstep: TEXT\n", on a terminal broken at spaces to its width, but for a command behind a colon; control
// characters in names are replaced (core/printed.h).
void Say(std::string_view text);

}  // namespace lockstep::agent
