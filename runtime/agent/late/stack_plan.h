#pragma once
// `lockstep run --stacks`: of whom stacks are taken.

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace lockstep::agent {

struct StackPlan {
  // kHang: when nothing moves; kLate and kAll: then, too.
  enum Kind { kOff, kHang, kLate, kAll } kind = kHang;
  double hz = 0;       // kAll: samples a second.
  bool calls = false;  // With what each collective and message was called from.
  bool told = false;   // Whether `kind` was asked for.
};

inline constexpr double kMostHz = 200;

// Words between commas: one of "hang", "late", "off" and "all:HZ", and "calls"; nothing for anything else.
inline std::optional<StackPlan> StackPlanOf(std::string_view text) {
  StackPlan plan;
  for (bool more = true; more;) {
    const std::size_t comma = text.find(',');
    std::string_view word = text.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
    if (word == "calls") {
      if (plan.calls) return std::nullopt;
      plan.calls = true;
      continue;
    }
    if (plan.told) return std::nullopt;
    plan.told = true;
    constexpr std::string_view kAllAt = "all:";
    if (word == "hang") {
      plan.kind = StackPlan::kHang;
    } else if (word == "late") {
      plan.kind = StackPlan::kLate;
    } else if (word == "off") {
      plan.kind = StackPlan::kOff;
    } else if (word.starts_with(kAllAt)) {
      word.remove_prefix(kAllAt.size());
      plan.kind = StackPlan::kAll;
      const auto read = std::from_chars(word.data(), word.data() + word.size(), plan.hz);
      if (read.ec != std::errc{} || read.ptr != word.data() + word.size() || !(plan.hz > 0) || plan.hz > kMostHz)
        return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return plan;
}

}  // namespace lockstep::agent
