#include "analysis/core/format.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>

namespace lockstep::analysis {
namespace {

// 412, 41.3, 4.13: three digits. Trailing zeros carry no information and are dropped.
std::string ThreeDigits(double value) {
  const double size = std::fabs(value);
  int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (decimals > 0) {
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

}  // namespace

std::string Duration(std::int64_t ns) { return MeanDuration(static_cast<double>(ns)); }

std::string MeanDuration(double value) {
  const double size = std::fabs(value);
  if (size < 0.5) return "0";
  if (size < 999.5) return fmt::format("{} ns", std::llround(value));
  if (size < 999.5e3) return ThreeDigits(value / 1e3) + " us";
  if (size < 9999.5e6) return ThreeDigits(value / 1e6) + " ms";
  if (size < 600e9) return ThreeDigits(value / 1e9) + " s";
  return ThreeDigits(value / 60e9) + " min";
}

std::string Percent(double fraction) {
  const double percent = 100 * fraction, size = std::fabs(percent);
  if (percent == 0) return "0 %";
  if (size < 0.1) return "< 0.1 %";
  if (size < 9.95) return fmt::format("{:.1f} %", percent);
  return fmt::format("{:.0f} %", percent);
}

std::string Percent(std::int64_t part, std::int64_t whole) {
  return whole <= 0 ? "-" : Percent(static_cast<double>(part) / static_cast<double>(whole));
}

std::string Bytes(std::uint64_t bytes) { return MeanBytes(static_cast<double>(bytes)); }

std::string MeanBytes(double value) {
  if (value < 999.5) return fmt::format("{} B", std::llround(value));
  if (value < 999.5e3) return ThreeDigits(value / 1e3) + " kB";
  if (value < 999.5e6) return ThreeDigits(value / 1e6) + " MB";
  if (value < 999.5e9) return ThreeDigits(value / 1e9) + " GB";
  return ThreeDigits(value / 1e12) + " TB";
}

std::string Bandwidth(double bytes_per_second) {
  if (bytes_per_second >= 999.5e6) return ThreeDigits(bytes_per_second / 1e9) + " GB/s";
  if (bytes_per_second >= 999.5e3) return ThreeDigits(bytes_per_second / 1e6) + " MB/s";
  return ThreeDigits(bytes_per_second / 1e3) + " kB/s";
}

std::string Count(std::int64_t n) {
  std::string digits = std::to_string(n), text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t left = digits.size() - i;
    if (i > 0 && left % 3 == 0 && digits[i - 1] != '-') text += ' ';
    text += digits[i];
  }
  return text;
}

std::string RankList(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (j > i) text += (j > i + 1 ? '-' : ',') + std::to_string(ranks[j]);
    i = j + 1;
  }
  return text;
}

std::string Listed(const std::vector<std::string>& names, std::string_view last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == names.size() ? last : ", ").append(names[i]);
  return text;
}

std::string RankNames(const std::vector<std::int32_t>& ranks) {
  constexpr std::size_t kMaxItems = 4;
  struct Item {
    std::string text;
    std::size_t ranks;
  };
  std::vector<Item> items;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    if (j < i + 2) j = i;
    items.push_back({j > i ? fmt::format("{}-{}", ranks[i], ranks[j]) : std::to_string(ranks[i]), j - i + 1});
    i = j + 1;
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = items.size() > kMaxItems ? kMaxItems - 1 : items.size();
  std::size_t named = 0;
  for (std::size_t i = 0; i < shown; ++i) {
    text += (i == 0 ? "" : i + 1 == items.size() ? " and " : ", ") + items[i].text;
    named += items[i].ranks;
  }
  if (shown < items.size()) text += " and " + Plural(static_cast<std::int64_t>(ranks.size() - named), "other");
  return text;
}

std::string ShortRankList(const std::vector<std::int32_t>& ranks, std::size_t columns) {
  std::string list = RankList(ranks);
  if (list.size() <= columns) return list;
  list.resize(list.rfind(',', columns) == std::string::npos ? columns : list.rfind(',', columns));
  return fmt::format("{},.. ({} in all)", list, Count(static_cast<std::int64_t>(ranks.size())));
}

std::string Plural(std::int64_t n, const char* noun) {
  return fmt::format("{} {}{}", Count(n), noun, n == 1 ? "" : "s");
}

std::string Mean(double value) { return std::fabs(value) < 999.5 ? ThreeDigits(value) : Count(std::llround(value)); }

std::string PluralOfMean(double value, const char* noun) {
  const std::string mean = Mean(value);
  return fmt::format("{} {}{}", mean, noun, mean == "1" ? "" : "s");
}

std::string CountOf(std::uint64_t n, std::string_view plural) {
  if (plural.starts_with("no ")) return std::string(plural);
  const std::string count = Count(static_cast<std::int64_t>(n));
  return n == 1 ? fmt::format("{}: {}", plural, count) : fmt::format("{} {}", count, plural);
}

std::string Ordinal(std::int64_t n) {
  const std::int64_t last = n % 10;
  const bool teen = n % 100 / 10 == 1;
  return Count(n) + (teen ? "th" : last == 1 ? "st" : last == 2 ? "nd" : last == 3 ? "rd" : "th");
}

std::string ThrottleReasons(std::uint64_t reasons) {
  constexpr std::pair<std::uint64_t, std::string_view> kReasons[] = {{4, "power cap"},
                                                                     {8, "hardware slowdown"},
                                                                     {32, "heat (software)"},
                                                                     {64, "heat (hardware)"},
                                                                     {128, "power brake"}};
  std::string text;
  for (const auto& [bit, name] : kReasons)
    if ((reasons & bit) != 0) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

}  // namespace lockstep::analysis
