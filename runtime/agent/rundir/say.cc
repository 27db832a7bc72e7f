#include "runtime/agent/rundir/say.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "core/printed.h"
#include "core/wrap.h"

namespace lockstep::agent {
namespace {

// Of the terminal; 0: standard error is none, or does not tell.
std::size_t WidthOfTerminal() {
  // As for what commands print: narrower lines hold no number beside its name.
  constexpr std::size_t kLeast = 40;
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 0;
  return std::max<std::size_t>(size.ws_col, kLeast);
}

}  // namespace

void Say(std::string_view text) {
  constexpr std::string_view kHead = "lockstep: ";
  // Who copies a command from a terminal gets what that broke as one line, and what was broken here as two commands.
  constexpr std::string_view kCommand = ": lockstep ";
  const std::size_t columns = WidthOfTerminal();
  const std::string printed = Printed(text);
  std::string lines = std::string(kHead) + printed + "\n";
  if (columns > 0 && PaintedColumns(lines) > columns) {
    const std::size_t command = std::min(printed.find(kCommand), printed.size() - 1);
    lines = WrapText(kHead, "  ", printed.substr(0, command + 1), columns);
    if (command + 1 < printed.size()) lines += " " + printed.substr(command + 1) + "\n";
  }
  const ssize_t ignored = ::write(STDERR_FILENO, lines.data(), lines.size());
  static_cast<void>(ignored);
}

}  // namespace lockstep::agent
