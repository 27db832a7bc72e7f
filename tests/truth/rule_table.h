#pragma once

#include <span>
#include <string_view>

namespace lockstep::rules {

// A row of analysis/rules/ or merge/rules/.
struct Rule {
  std::string_view list, name, type, unit, why, source, test;
  double value;
  const void* at;             // Where it is held.
  void (*set)(double value);  // For all later analyses of this process. Not while another thread reads rules.
};

// All rules, list by list.
std::span<const Rule> Table();

}  // namespace lockstep::rules
