// --fail-on: the change that counts as a regression.

#include <fmt/format.h>

#include <charconv>

#include "analysis/diff/compare.h"
#include "analysis/rules/diff.h"

namespace lockstep::diff {
namespace {

struct Unit {
  std::string_view name;
  double ns;
};
constexpr Unit kUnits[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

std::string MeasureNames() {
  std::string names;
  for (const Measure& measure : Measures()) names += (names.empty() ? "" : ", ") + std::string(measure.name);
  return names;
}

Error Refuse(std::string_view item, std::string what) {
  return {ErrorCode::kUsage, std::move(what), "--fail-on " + std::string(item),
          "--fail-on step_ns:+3%,exposed_wait_ns:+2ms"};
}

Result<Limit> ParseLimit(std::string_view item) {
  const std::size_t colon = item.find(':');
  if (colon == std::string_view::npos) return Refuse(item, "a limit is MEASURE:+CHANGE");
  Limit limit;
  limit.measure = item.substr(0, colon);
  limit.asked = true;
  const Measure* measure = FindMeasure(limit.measure);
  if (measure == nullptr)
    return Refuse(item, fmt::format("there is no measure '{}', only {}", limit.measure, MeasureNames()));
  std::string_view change = item.substr(colon + 1);
  const char wrong_sign = measure->less_is_better ? '-' : '+';
  if (change.starts_with(wrong_sign))
    return Refuse(item,
                  fmt::format("{} is worse when it {}", limit.measure, measure->less_is_better ? "grows" : "falls"));
  if (change.starts_with('+') || change.starts_with('-')) change.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(change.data(), change.data() + change.size(), value);
  if (error != std::errc() || !(value >= 0) || value > rules::kFailOnMost)
    return Refuse(item, fmt::format("'{}' is not a change", item.substr(colon + 1)));
  std::string_view unit(end, static_cast<std::size_t>(change.data() + change.size() - end));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  limit.text = fmt::format("{}{} {}", measure->less_is_better ? "+" : "-", value, unit);
  if (unit == "%") {
    limit.share = value / 100;
    return limit;
  }
  if (measure->fraction) return Refuse(item, fmt::format("{} is a fraction: its limit is in %", limit.measure));
  for (const Unit& each : kUnits)
    if (unit == each.name) limit.absolute = value * each.ns;
  if (!limit.absolute) return Refuse(item, fmt::format("'{}' is not a unit: %, ns, us, ms or s", unit));
  return limit;
}

}  // namespace

Result<std::vector<Limit>> ParseLimits(std::string_view text) {
  std::vector<Limit> limits;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    if (item.empty()) continue;
    LS_TRY(Limit limit, ParseLimit(item));
    for (const Limit& other : limits)
      if (other.measure == limit.measure) return Refuse(item, fmt::format("{} has two limits", limit.measure));
    limits.push_back(std::move(limit));
  }
  if (limits.empty()) return Refuse("", "no limit is given");
  return limits;
}

}  // namespace lockstep::diff
