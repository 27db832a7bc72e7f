#include "trace/decode/tick_rate.h"

#include <chrono>
#include <fstream>
#include <thread>

#include "core/event_clock.h"

namespace lockstep::trace {
namespace {

double MeasureTickRate() {
  const EventClock clock{.mode = ClockMode::kTsc};
  const ClockSnapshot first = TakeSnapshot(clock);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ClockSnapshot second = TakeSnapshot(clock);
  if (second.raw_ns <= first.raw_ns) return 0;
  return static_cast<double>(second.ticks - first.ticks) / static_cast<double>(second.raw_ns - first.raw_ns);
}

}  // namespace

std::string BootId() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

double TickRateOfThisMachine(const std::map<std::string, std::string>& meta, std::size_t snapshots) {
  if (snapshots != 1) return 0;
  const auto boot = meta.find("boot_id");
  if (boot == meta.end() || boot->second.empty() || boot->second != BootId()) return 0;
  static const double rate = MeasureTickRate();
  return rate;
}

}  // namespace lockstep::trace
