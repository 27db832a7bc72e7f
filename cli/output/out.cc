#include "cli/output/out.h"

#include <unistd.h>

#include <cstdio>

#include "analysis/report/text.h"

namespace lockstep::cli {
namespace {

bool Put(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

}  // namespace

bool ShowText(std::string_view text) {
  static const bool kColors = report::TextOptions::ForFile(STDOUT_FILENO).color;
  return Put(stdout, PrintedLines(text, kColors));
}

bool ShowNote(std::string_view text) {
  // Keeps the order of messages if both streams go to one file.
  std::fflush(stdout);
  return Put(stderr, PrintedLines(text, false));
}

bool ShowJson(std::string_view json) { return Put(stdout, PrintedJson(json)); }

bool ShowData(std::string_view data) { return Put(stdout, data); }

void ShowProgress(std::string_view line, bool terminal) {
  const std::string clean = Printed(line);
  if (terminal)
    std::fprintf(stderr, "\r%s\x1b[K", clean.c_str());
  else if (!clean.empty())
    std::fprintf(stderr, "%s\n", clean.c_str());
  std::fflush(stderr);
}

}  // namespace lockstep::cli
