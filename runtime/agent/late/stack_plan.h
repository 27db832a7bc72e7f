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
  double hz = 0;  // kAll: samples a second.
};

inline constexpr double kMostHz = 200;

// "hang", "late", "off" or "all:HZ"; nothing for anything else.
inline std::optional<StackPlan> StackPlanOf(std::string_view text) {
  if (text == "hang") return StackPlan{};
  if (text == "late") return StackPlan{StackPlan::kLate, 0};
  if (text == "off") return StackPlan{StackPlan::kOff, 0};
  constexpr std::string_view kAllAt = "all:";
  if (!text.starts_with(kAllAt)) return std::nullopt;
  text.remove_prefix(kAllAt.size());
  double hz = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), hz);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size() || !(hz > 0) || hz > kMostHz) return std::nullopt;
  return StackPlan{StackPlan::kAll, hz};
}

}  // namespace lockstep::agent
