#pragma once
// The capture-window options of `lockstep run`, from text to what agent and probe need.

#include <csignal>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/window.h"

namespace lockstep::agent {

// As given on the command line; "" not given.
struct WindowFlags {
  std::string steps;               // A:B or A:B/N
  std::string schedule;            // wait=1,warmup=1,active=3,repeat=2,skip_first=0
  std::string range, range_count;  // SOURCE:NAME, cuda or NAME
  std::string step_range;
  std::string delay, duration;  // Seconds.
  std::string on_signal;        // USR1 or USR2
  bool trigger = false;         // The trigger file.
  std::string signal_steps, align;
  std::string start;  // on or off
  std::string ranks;  // 0-3,7
};

struct WindowPlan {
  WindowKind kind = WindowKind::kAll;
  std::uint32_t range_source = kRangeSourceAny;
  std::int64_t begin_step = 0, end_step = 0, every_steps = 0;
  std::int64_t skip_first = 0, wait = 0, warmup = 0, active = 0, repeat = 0;
  std::int64_t delay_ns = 0, duration_ns = 0;  // Duration 0: to the end.
  std::uint64_t range_count = 0;
  std::string range_name, step_range;
  bool trigger_file = false;                                 // Its path is to be printed.
  int signal = 0;                                            // kTrigger: arms as the trigger file does; 0 none.
  std::int64_t trigger_steps = 10, align_steps = 100;        // kTrigger.
  std::vector<std::pair<std::int32_t, std::int32_t>> ranks;  // [first, end); empty: all.
  std::string text = "all";                                  // As the user would say it: meta "recording".

  bool Includes(std::int32_t rank) const;
};

// kUsage with what is wrong, in which option, and a line that works.
Result<WindowPlan> ParseWindow(const WindowFlags& flags);

// Into a zeroed specification.
void FillSpec(const WindowPlan& plan, WindowSpec& spec);

// The words of `lockstep run` that give these flags; a value is "" where its flag was not given. --trigger has none.
std::vector<std::pair<const char*, std::string>> WindowWords(const WindowFlags& flags);

}  // namespace lockstep::agent
