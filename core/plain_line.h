#pragma once
// For the few words that the libraries in the application's process say themselves,
// where nothing may be allocated: core/printed.h, only coarser.

namespace lockstep {

// Makes `line` (zero-terminated, one line without its end) harmless to show, in place: what is no visible ASCII is '?'.
inline void MakePlainLine(char* line) {
  for (; *line != '\0'; ++line)
    if (*line < 0x20 || *line > 0x7e) *line = '?';
}

}  // namespace lockstep
