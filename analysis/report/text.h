#pragma once
// Renders the verdict for a terminal: one sentence, one bar, priced findings, ranks, collectives, and the reliability
// of the data.

#include <string>

#include "analysis/core/model.h"

namespace lockstep::report {

struct TextOptions {
  bool color = false;     // ANSI colours.
  bool unicode = true;    // false: ASCII bars and separators.
  bool terminal = false;  // Lines are read where they are shown, and not by another program.
  unsigned width = 100;   // Columns; lines are kept within it.

  // What `fd` can show: colour on a terminal without NO_COLOR, Unicode if the
  // locale's character set (LC_ALL, LC_CTYPE, LANG) is UTF-8. The width is that of the terminal (COLUMNS if it does not
  // tell), at least 40; of a file or a pipe it is always 100, so that what is kept does not depend on a window.
  static TextOptions ForFile(int fd);
};

// Ends with a newline. The caller adds the files' line.
std::string RenderText(const analysis::Analysis& analysis, const TextOptions& options);

// Rows behind finding `number` (from 1), broken at the width on terminals only; "" if there is no such finding.
std::string RenderExplanation(const analysis::Analysis& analysis, std::size_t number, const TextOptions& options);

// How far the data can be trusted: each loss and guess with its ranks, details and what to do.
std::string RenderTrust(const analysis::Analysis& analysis, const TextOptions& options);

}  // namespace lockstep::report
