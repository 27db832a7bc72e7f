#pragma once
// Renders the verdict for a terminal: one sentence, one bar, priced findings, ranks, collectives, and the reliability
// of the data.

#include <string>

#include "analysis/core/model.h"

namespace lockstep::report {

struct TextOptions {
  bool color = false;    // ANSI colours.
  bool unicode = true;   // false: ASCII bars and separators.
  unsigned width = 100;  // Columns; lines are kept within it.

  // What `fd` can show: colour on a terminal without NO_COLOR, Unicode if the
  // locale's character set (LC_ALL, LC_CTYPE, LANG) is UTF-8.
  static TextOptions ForFile(int fd);
};

// Ends with a newline. The caller adds the files' line.
std::string RenderText(const analysis::Analysis& analysis, const TextOptions& options);

// Rows behind finding `number` (from 1); "" if there is no such finding.
std::string RenderExplanation(const analysis::Analysis& analysis, std::size_t number, const TextOptions& options);

}  // namespace lockstep::report
