#pragma once
// Shows the progress of a command on stderr: one line that rewrites itself on a terminal, else a line every ten
// seconds.

#include <chrono>
#include <cstddef>
#include <string_view>

namespace lockstep::cli {

// Thread: one call at a time.
class Progress {
 public:
  explicit Progress(bool quiet);
  // Removes the line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  // `done`: share of everything, 0 to 1, from which the remaining time is estimated.
  void Show(std::string_view phase, double done);
  // Of work that is over after so many seconds, or before.
  void ShowMost(std::string_view phase, double left_s);
  // Of work whose parts take very different times, so that nothing is known about the rest of it: "analysis, 3 of 31".
  void ShowPart(std::string_view phase, std::size_t part, std::size_t parts);
  // A line that stays.
  void Say(std::string_view text);
  // Since this object was made.
  double seconds() const;

 private:
  bool IsDue(std::chrono::milliseconds on_terminal);

  bool quiet_, terminal_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

}  // namespace lockstep::cli
