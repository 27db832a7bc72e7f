#pragma once
// Shows the progress of a command on stderr: one line that rewrites itself on a terminal, else a line every ten
// seconds.

#include <chrono>
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
  // A line that stays.
  void Say(std::string_view text);
  // Since this object was made.
  double seconds() const;

 private:
  bool quiet_, terminal_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

}  // namespace lockstep::cli
