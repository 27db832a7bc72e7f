#pragma once
// One line on standard error, in one write, so that the lines of many ranks do
// not mix. Never standard output: that is the application's.

#include <string_view>

namespace lockstep::agent {

// Prints "lockstep: TEXT\n"; control characters in names are replaced (core/printed.h).
void Say(std::string_view text);

}  // namespace lockstep::agent
