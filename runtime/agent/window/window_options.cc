#include "runtime/agent/window/window_options.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/rank_list.h"

namespace lockstep::agent {
namespace {

// Far below where sums of two overflow.
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 60;
constexpr double kMaxSeconds = 1e9;
constexpr std::int64_t kTriggerDurationNs = 10'000'000'000;

Error Wrong(const std::string& what, const char* option, std::string example) {
  return {ErrorCode::kUsage, what, option, std::move(example)};
}

// Accepts digits only: no sign, no space, nothing after them.
std::optional<std::int64_t> Number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMaxNumber) return std::nullopt;
  return value;
}

std::vector<std::string_view> Split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Status ParseSteps(const std::string& text, WindowPlan& plan) {
  constexpr const char* kExample =
      "--steps 110:310 for the steps 110 to 309, --steps 100:103/5000 for three of every 5000";
  std::string_view rest = text;
  const std::size_t slash = rest.find('/');
  std::optional<std::int64_t> every = 0;
  if (slash != std::string_view::npos) {
    every = Number(rest.substr(slash + 1));
    rest = rest.substr(0, slash);
  }
  const auto parts = Split(rest, ':');
  const auto begin = Number(parts[0]);
  const auto end = parts.size() == 2 ? Number(parts[1]) : std::nullopt;
  if (!begin || !end || !every) return Wrong("not a range of steps: '" + text + "'", "--steps", kExample);
  if (*end <= *begin) return Wrong("this range of steps is empty: '" + text + "'", "--steps", kExample);
  if (slash != std::string_view::npos && *every < *end - *begin)
    return Wrong("the repeat interval is shorter than the range of steps: '" + text + "'", "--steps", kExample);
  plan.kind = WindowKind::kSteps;
  plan.begin_step = *begin;
  plan.end_step = *end;
  plan.every_steps = *every;
  plan.text = "steps " + text;
  return Ok();
}

Status ParseSchedule(const std::string& text, WindowPlan& plan) {
  constexpr const char* kExample =
      "--schedule wait=1,warmup=1,active=3,repeat=2,skip_first=10, as torch.profiler.schedule";
  std::map<std::string_view, std::int64_t*> keys = {{"wait", &plan.wait},
                                                    {"warmup", &plan.warmup},
                                                    {"active", &plan.active},
                                                    {"repeat", &plan.repeat},
                                                    {"skip_first", &plan.skip_first}};
  for (const std::string_view part : Split(text, ',')) {
    const std::size_t equals = part.find('=');
    const auto key = keys.find(part.substr(0, equals));
    const auto value = equals == std::string_view::npos ? std::nullopt : Number(part.substr(equals + 1));
    if (key == keys.end() || !value || *value > kMaxNumber / 4)
      return Wrong("not a part of a schedule, or given twice: '" + std::string(part) + "'", "--schedule", kExample);
    *key->second = *value;
    keys.erase(key);
  }
  if (plan.active < 1) return Wrong("a schedule needs active=1 or more: '" + text + "'", "--schedule", kExample);
  plan.kind = WindowKind::kSchedule;
  plan.text = "schedule " + text;
  return Ok();
}

Status ParseName(std::string_view name, const char* option, const char* example, std::string& to) {
  if (name.empty()) return Wrong("a range needs a name", option, example);
  if (name.size() >= kWindowNameBytes)
    return Wrong("a range name of more than " + std::to_string(kWindowNameBytes - 1) + " bytes", option, example);
  to = name;
  return Ok();
}

Status ParseRange(const WindowFlags& flags, WindowPlan& plan) {
  constexpr const char* kExample =
      "--range nvtx:NAME, lockstep:NAME, torch:NAME, NAME, or cuda for cudaProfilerStart and Stop";
  std::string_view name = flags.range;
  plan.kind = WindowKind::kRange;
  plan.text = "range " + flags.range;
  if (name == "cuda") {
    plan.range_source = kRangeSourceCuda;
  } else {
    constexpr std::pair<std::string_view, std::uint32_t> kSources[] = {
        {"lockstep:", 0}, {"nvtx:", 1}, {"torch:", 2}, {"any:", kRangeSourceAny}};
    for (const auto& [prefix, source] : kSources) {
      if (!name.starts_with(prefix)) continue;
      plan.range_source = source;
      name.remove_prefix(prefix.size());
      break;
    }
    LS_CHECK(ParseName(name, "--range", kExample, plan.range_name));
  }
  if (flags.range_count.empty()) return Ok();
  const auto count = Number(flags.range_count);
  if (!count || *count == 0)
    return Wrong("not a number of ranges: '" + flags.range_count + "'", "--range-count", "--range-count 100");
  plan.range_count = static_cast<std::uint64_t>(*count);
  plan.text += ", " + flags.range_count + " times";
  return Ok();
}

Status ParseSeconds(const std::string& text, const char* option, std::int64_t& ns) {
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  const bool digits = text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  if (text.empty() || *end != 0 || !digits || !std::isfinite(seconds) || seconds < 0 || seconds > kMaxSeconds)
    return Wrong("not a number of seconds: '" + text + "'", option, "--delay 60 --duration 10.5");
  ns = std::llround(seconds * 1e9);
  return Ok();
}

Status ParseTrigger(const WindowFlags& flags, WindowPlan& plan) {
  plan.kind = WindowKind::kTrigger;
  plan.text = "on request";
  plan.trigger_file = flags.trigger;
  if (!flags.on_signal.empty()) {
    std::string_view name = flags.on_signal;
    if (name.starts_with("SIG")) name.remove_prefix(3);
    if (name != "USR1" && name != "USR2")
      return Wrong("not a signal that a job can be sent: '" + flags.on_signal + "'", "--on-signal",
                   "--on-signal USR1 or --on-signal USR2");
    plan.signal = name == "USR1" ? SIGUSR1 : SIGUSR2;
  }
  const auto count = [](const std::string& text, const char* option, const char* example, std::int64_t& to) -> Status {
    if (text.empty()) return Ok();
    const auto number = Number(text);
    if (!number || *number == 0) return Wrong("not a number of steps: '" + text + "'", option, example);
    to = *number;
    return Ok();
  };
  LS_CHECK(count(flags.signal_steps, "--signal-steps", "--signal-steps 10", plan.trigger_steps));
  LS_CHECK(count(flags.align, "--align", "--align 100 to begin at a multiple of 100 steps", plan.align_steps));
  if (plan.duration_ns == 0) plan.duration_ns = kTriggerDurationNs;
  return Ok();
}

Status ParseRanks(const std::string& text, WindowPlan& plan) {
  auto spans = ParseRankSpans(text);
  if (!spans)
    return Wrong("not a list of ranks: '" + text + "'", "--ranks", "--ranks " + std::string(kRankListExample));
  plan.ranks = std::move(*spans);
  return Ok();
}

// Only one of the options that say when to record may be given.
Status OnlyOne(const WindowFlags& flags) {
  const char* first = nullptr;
  const std::pair<const char*, bool> kWays[] = {
      {"--steps", !flags.steps.empty()},
      {"--schedule", !flags.schedule.empty()},
      {"--range", !flags.range.empty()},
      {"--delay", !flags.delay.empty()},
      {"--on-signal", !flags.on_signal.empty()},
      {"--trigger", flags.trigger && flags.on_signal.empty()},
      {"--start off", flags.start == "off"},
      {"--duration", !flags.duration.empty() && flags.delay.empty() && flags.on_signal.empty() && !flags.trigger},
  };
  for (const auto& [name, given] : kWays) {
    if (!given) continue;
    if (first != nullptr)
      return Wrong(std::string(first) + " and " + name + " cannot be combined: each of them decides when to record",
                   name, "give one of them");
    first = name;
  }
  const auto needs = [](bool given, bool there, const char* option, const char* other) -> Status {
    if (given && !there)
      return Wrong(std::string(option) + " has no effect without " + other, option, "give both, or leave it out");
    return Ok();
  };
  const bool trigger = flags.trigger || !flags.on_signal.empty();
  LS_CHECK(needs(!flags.range_count.empty(), !flags.range.empty(), "--range-count", "--range"));
  LS_CHECK(needs(!flags.signal_steps.empty(), trigger, "--signal-steps", "--on-signal or --trigger"));
  return needs(!flags.align.empty(), trigger, "--align", "--on-signal or --trigger");
}

}  // namespace

bool WindowPlan::Includes(std::int32_t rank) const {
  if (ranks.empty()) return true;
  for (const auto& [first, end] : ranks)
    if (rank >= first && rank < end) return true;
  return false;
}

Result<WindowPlan> ParseWindow(const WindowFlags& flags) {
  WindowPlan plan;
  if (!flags.start.empty() && flags.start != "on" && flags.start != "off")
    return Wrong("neither on nor off: '" + flags.start + "'", "--start", "--start off to begin at lockstep_start()");
  LS_CHECK(OnlyOne(flags));
  if (!flags.duration.empty()) {
    LS_CHECK(ParseSeconds(flags.duration, "--duration", plan.duration_ns));
    if (plan.duration_ns == 0) return Wrong("a recording of 0 seconds", "--duration", "--duration 10");
  }
  if (!flags.delay.empty()) LS_CHECK(ParseSeconds(flags.delay, "--delay", plan.delay_ns));
  if (!flags.steps.empty()) {
    LS_CHECK(ParseSteps(flags.steps, plan));
  } else if (!flags.schedule.empty()) {
    LS_CHECK(ParseSchedule(flags.schedule, plan));
  } else if (!flags.range.empty()) {
    LS_CHECK(ParseRange(flags, plan));
  } else if (!flags.on_signal.empty() || flags.trigger) {
    LS_CHECK(ParseTrigger(flags, plan));
  } else if (!flags.delay.empty() || !flags.duration.empty()) {
    plan.kind = WindowKind::kTimer;
    plan.text = (flags.delay.empty() ? "" : "after " + flags.delay + " s") +
                std::string(flags.delay.empty() || flags.duration.empty() ? "" : ", ") +
                (flags.duration.empty() ? "" : "for " + flags.duration + " s");
  } else if (flags.start == "off") {
    plan.kind = WindowKind::kManual;
    plan.text = "by lockstep_start()";
  }
  if (!flags.step_range.empty())
    LS_CHECK(ParseName(flags.step_range, "--step-range", "--step-range NAME, one range of this name per step",
                       plan.step_range));
  if (!flags.ranks.empty()) LS_CHECK(ParseRanks(flags.ranks, plan));
  return plan;
}

void FillSpec(const WindowPlan& plan, WindowSpec& spec) {
  spec.kind = plan.kind;
  spec.range_source = plan.range_source;
  spec.begin_step = plan.begin_step;
  spec.end_step = plan.end_step;
  spec.every_steps = plan.every_steps;
  spec.skip_first = plan.skip_first;
  spec.wait = plan.wait;
  spec.warmup = plan.warmup;
  spec.active = plan.active;
  spec.repeat = plan.repeat;
  spec.delay_ns = plan.delay_ns;
  spec.duration_ns = plan.duration_ns;
  spec.range_count = plan.range_count;
  std::memcpy(spec.range_name, plan.range_name.c_str(), plan.range_name.size() + 1);
  std::memcpy(spec.step_range, plan.step_range.c_str(), plan.step_range.size() + 1);
  spec.armed_begin.store(-1);
  spec.armed_end.store(-1);
}

std::vector<std::pair<const char*, std::string>> WindowWords(const WindowFlags& flags) {
  return {{"--steps", flags.steps},
          {"--schedule", flags.schedule},
          {"--range", flags.range},
          {"--range-count", flags.range_count},
          {"--step-range", flags.step_range},
          {"--delay", flags.delay},
          {"--duration", flags.duration},
          {"--on-signal", flags.on_signal},
          {"--signal-steps", flags.signal_steps},
          {"--align", flags.align},
          {"--start", flags.start},
          {"--ranks", flags.ranks}};
}

}  // namespace lockstep::agent
