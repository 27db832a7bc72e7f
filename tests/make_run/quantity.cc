#include "make_run/spec.h"

namespace lockstep::make_run {
namespace {

// A decimal times `unit`, cut to an integer.
bool ParseScaled(std::string_view number, __int128 unit, std::int64_t* out) {
  bool negative = false;
  if (!number.empty() && (number[0] == '-' || number[0] == '+')) {
    negative = number[0] == '-';
    number.remove_prefix(1);
  }
  const std::size_t dot = number.find('.');
  const std::string_view whole = number.substr(0, dot);
  const std::string_view fraction = dot == std::string_view::npos ? std::string_view() : number.substr(dot + 1);
  if (whole.empty() && fraction.empty()) return false;
  __int128 digits = 0, scale = 1;
  for (const std::string_view part : {whole, fraction})
    for (const char c : part) {
      if (c < '0' || c > '9' || digits > INT64_MAX) return false;
      digits = digits * 10 + (c - '0');
      if (part.data() == fraction.data() && !fraction.empty()) scale *= 10;
    }
  const __int128 value = digits * unit / scale;
  if (value > INT64_MAX) return false;
  *out = static_cast<std::int64_t>(negative ? -value : value);
  return true;
}

struct Unit {
  std::string_view name;
  std::int64_t factor;
};

template <std::size_t N>
bool ParseUnits(std::string_view text, const Unit (&units)[N], std::int64_t* out) {
  const std::size_t end = text.find_first_not_of("+-.0123456789");
  const std::string_view unit = end == std::string_view::npos ? std::string_view() : text.substr(end);
  for (const Unit& candidate : units)
    if (candidate.name == unit) return ParseScaled(text.substr(0, end), candidate.factor, out);
  return false;
}

constexpr Unit kTimes[] = {{"", 1}, {"ns", 1}, {"us", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}};
constexpr Unit kSizes[] = {
    {"", 1},          {"B", 1},         {"kB", 1'000},   {"MB", 1'000'000}, {"GB", 1'000'000'000},
    {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}};
constexpr Unit kRates[] = {{"B/s", 1}, {"kB/s", 1'000}, {"MB/s", 1'000'000}, {"GB/s", 1'000'000'000}};
constexpr Unit kFractions[] = {{"", kMillion}, {"%", kMillion / 100}, {"ppm", 1}};
constexpr Unit kDrifts[] = {{"ppb", 1}, {"ppm", 1'000}};

}  // namespace

bool ParseRate(std::string_view text, std::int64_t* rate) { return ParseUnits(text, kRates, rate) && *rate > 0; }
bool ParseDrift(std::string_view text, std::int64_t* ppb) { return ParseUnits(text, kDrifts, ppb); }
bool ParseDuration(std::string_view text, std::int64_t* ns) { return ParseUnits(text, kTimes, ns); }
bool ParseBytes(std::string_view text, std::uint64_t* bytes) {
  std::int64_t value = 0;
  if (!ParseUnits(text, kSizes, &value) || value < 0) return false;
  *bytes = static_cast<std::uint64_t>(value);
  return true;
}
bool ParsePpm(std::string_view text, std::int64_t* ppm) { return ParseUnits(text, kFractions, ppm); }

}  // namespace lockstep::make_run
