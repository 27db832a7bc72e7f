#include "cli/output/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <string>

#include "cli/output/out.h"

namespace lockstep::cli {
namespace {

// Before that an estimate would only jump about.
constexpr double kFirstGuess = 0.03;

std::string Remaining(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace

Progress::Progress(bool quiet)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), begin_(std::chrono::steady_clock::now()), last_(begin_) {}

Progress::~Progress() {
  if (shown_ && terminal_) ShowProgress("", true);
}

void Progress::Say(std::string_view text) {
  if (quiet_) return;
  if (shown_ && terminal_) ShowProgress("", true);
  Note("lockstep: {}\n", text);
}

double Progress::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

bool Progress::IsDue(std::chrono::milliseconds on_terminal) {
  const auto now = std::chrono::steady_clock::now();
  if (quiet_ || now - last_ < (terminal_ ? on_terminal : std::chrono::milliseconds(10'000))) return false;
  last_ = now;
  return shown_ = true;
}

void Progress::Show(std::string_view phase, double done) {
  if (!IsDue(std::chrono::milliseconds(200))) return;
  std::string text = fmt::format("lockstep: {} {:.0f} %", phase, 100 * done);
  // Less than a second may last, and is no news.
  const double left = done >= kFirstGuess && done < 1 ? seconds() * (1 - done) / done : 0;
  if (left >= 0.5) text += fmt::format(", {} left", Remaining(left));
  ShowProgress(text, terminal_);
}

void Progress::ShowMost(std::string_view phase, double left_s) {
  if (IsDue(std::chrono::milliseconds(0)))
    ShowProgress(fmt::format("lockstep: {}, at most {} left", phase, Remaining(left_s)), terminal_);
}

void Progress::ShowPart(std::string_view phase, std::size_t part, std::size_t parts) {
  // Each is shown, because it may be the one that takes all the time.
  if (IsDue(std::chrono::milliseconds(0)))
    ShowProgress(fmt::format("lockstep: {}, {} of {}", phase, part, parts), terminal_);
}

}  // namespace lockstep::cli
