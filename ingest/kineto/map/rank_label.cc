#include "ingest/kineto/map/rank_label.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "core/operation_name.h"

namespace lockstep::ingest {
namespace {

// What a number outside of brackets may be a place in. Others ("GPU 0", "stream 7") are parts of a rank.
constexpr std::string_view kDimensions[] = {"rank", "tp", "pp", "dp", "ep", "cp", "sp", "vp", "fsdp", "hsdp"};
constexpr std::string_view kOrder[] = {"rank", "pp", "dp", "tp", "ep"};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool Joins(char c) { return std::string_view(" _-=:#[(").find(c) != std::string_view::npos; }
bool IsIn(std::string_view word, const auto& list) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Takes "tp_rank=1", "TP01" or "global rank 3" at `at`; moves `at` behind it. False: there is none.
bool TakePlace(std::string_view text, bool any_dimension, std::size_t& at, RankLabel& label) {
  std::string dimension;
  std::size_t i = at;
  for (int words = 0;; ++words) {
    const std::size_t begin = i;
    while (i < text.size() && IsLetter(text[i])) ++i;
    if (i == begin || words == 2) return false;
    const std::string word = Letters(text.substr(begin, i - begin));
    // "tp_rank" is a place in tp; "global rank" and "world rank" are the rank itself; a "local rank" is neither.
    if (words == 0)
      dimension = word;
    else if (word != "rank")
      return false;
    else if (dimension == "global" || dimension == "world")
      dimension = "rank";
    for (int joints = 0; joints < 2 && i < text.size() && Joins(text[i]); ++joints) ++i;
    if (i < text.size() && IsDigit(text[i])) break;
  }
  if (!any_dimension && dimension != "local" && !IsIn(dimension, kDimensions)) return false;
  const std::size_t begin = i;
  while (i < text.size() && IsDigit(text[i])) ++i;
  std::int64_t number = 0;
  if (std::from_chars(text.data() + begin, text.data() + i, number).ec != std::errc()) return false;
  label.places.emplace_back(std::move(dimension), number);
  at = i;
  return true;
}

// All places from `at` on that follow each other; `at` is then behind the last.
void TakePlaces(std::string_view text, bool any_dimension, std::size_t& at, RankLabel& label) {
  for (std::size_t next = at; TakePlace(text, any_dimension, next, label);) {
    at = next;
    while (next < text.size() && std::string_view(" _-,/|.").find(text[next]) != std::string_view::npos) ++next;
  }
}

std::string Beside(std::string_view before, std::string_view after) {
  constexpr std::string_view kAround = " _-=:#,/|.()[]";
  std::string rest;
  for (std::string_view part : {before, after}) {
    const std::size_t first = part.find_first_not_of(kAround);
    if (first == std::string_view::npos) continue;
    part = part.substr(first, part.find_last_not_of(kAround) - first + 1);
    rest += (rest.empty() ? "" : " ") + std::string(part);
  }
  return rest;
}

}  // namespace

std::int64_t RankLabel::In(std::string_view dimension) const {
  for (const auto& [name, number] : places)
    if (name == dimension) return number;
  return -1;
}

RankLabel RankLabelOf(std::string_view text) {
  RankLabel label;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end != std::string_view::npos) {
      std::size_t at = 1;
      TakePlaces(text.substr(0, end), true, at, label);
      if (!label.places.empty()) label.text = text.substr(1, end - 1);
      label.rest = Beside("", text.substr(end + 1));  // "[Unknown] 4001" tells nothing but the process.
      return label;
    }
  }
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    if (!IsLetter(text[begin]) || (begin > 0 && (IsLetter(text[begin - 1]) || IsDigit(text[begin - 1])))) continue;
    std::size_t at = begin;
    TakePlaces(text, false, at, label);
    if (label.places.empty()) continue;
    label.text = text.substr(begin, at - begin);
    label.rest = Beside(text.substr(0, begin), text.substr(at));
    return label;
  }
  label.rest = text;
  return label;
}

bool Before(const RankLabel& a, const RankLabel& b) {
  for (const std::string_view dimension : kOrder)
    if (a.In(dimension) != b.In(dimension)) return a.In(dimension) < b.In(dimension);
  const auto others = [](const RankLabel& label) {
    std::vector<std::int64_t> numbers;
    for (const auto& [name, number] : label.places)
      if (!IsIn(name, kOrder)) numbers.push_back(number);
    return numbers;
  };
  return others(a) < others(b);
}

}  // namespace lockstep::ingest
