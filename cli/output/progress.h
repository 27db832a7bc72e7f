#pragma once
// How far a command is, on stderr: one line that rewrites itself on a terminal, a
// line each ten seconds elsewhere.

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
  // `done`: share of everything, 0 to 1; the time it will still take follows from it.
  void Show(std::string_view phase, double done);
  // A line that stays.
  void Say(std::string_view text);
  // Since it was made.
  double seconds() const;

 private:
  bool quiet_, terminal_, shown_ = false;
  std::chrono::steady_clock::time_point begin_, last_;
};

}  // namespace lockstep::cli
