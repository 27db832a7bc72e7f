#pragma once
// For the few messages that the libraries in the application's process print themselves, where nothing may be
// allocated: a coarser form of core/printed.h.

namespace lockstep {

// Makes `line` (zero-terminated, one line without its end) safe to print, in place: visible ASCII stays, the rest is
// '?'.
inline void MakePlainLine(char* line) {
  for (; *line != '\0'; ++line)
    if (*line < 0x20 || *line > 0x7e) *line = '?';
}

}  // namespace lockstep
