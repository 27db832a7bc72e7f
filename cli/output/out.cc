#include "cli/output/out.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "analysis/report/text.h"
#include "core/wrap.h"

namespace lockstep::cli {
namespace {

int g_output_error = 0;

bool Put(std::FILE* file, std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0) return true;
  if (file == stdout && g_output_error == 0) g_output_error = errno != 0 ? errno : EIO;
  return false;
}

// A window may become narrower while a command waits.
std::string Fitted(int fd, std::string_view text, bool colors) {
  const std::string lines = PrintedLines(text, colors);
  const report::TextOptions options = report::TextOptions::ForFile(fd);
  return options.terminal ? WrapLongLines(lines, options.width) : lines;
}

bool Colors() {
  static const bool kColors = report::TextOptions::ForFile(STDOUT_FILENO).color;
  return kColors;
}

}  // namespace

int OutputError() { return g_output_error; }

bool ShowText(std::string_view text) { return Put(stdout, PrintedLines(text, Colors())); }

bool ShowLines(std::string_view text) { return Put(stdout, Fitted(STDOUT_FILENO, text, Colors())); }

bool ShowNote(std::string_view text) {
  // Keeps the order of messages if both streams go to one file.
  std::fflush(stdout);
  return Put(stderr, PrintedLines(text, false));
}

bool NoteLines(std::string_view text) {
  std::fflush(stdout);
  return Put(stderr, Fitted(STDERR_FILENO, text, false));
}

bool ShowJson(std::string_view json) { return Put(stdout, PrintedJson(json)); }

bool ShowData(std::string_view data) { return Put(stdout, data); }

void ShowProgress(std::string_view line, bool terminal) {
  const std::string clean = Printed(line);
  // A line that the terminal breaks would not be replaced as a whole.
  if (terminal)
    std::fprintf(stderr, "\r%s\x1b[K",
                 PrintedShort(clean, report::TextOptions::ForFile(STDERR_FILENO).width - 1).c_str());
  else if (!clean.empty())
    std::fprintf(stderr, "%s\n", clean.c_str());
  std::fflush(stderr);
}

}  // namespace lockstep::cli
