#include "cli/options/similar.h"

#include <algorithm>
#include <utility>

namespace lockstep::cli {

// Optimal string alignment, by rows: a pair that was exchanged costs one step, as typing errors go.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last, row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row.back();
}

std::string Nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;  // No name of ours is as long; the comparison takes the product of both.
  if (word.empty() || word.size() > kLongest) return {};
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    if (word.size() == 1 && name.size() > 1 && name[0] != word[0]) continue;
    const std::size_t distance = name.starts_with(word) ? 0 : EditDistance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = name;
  }
  return nearest;
}

}  // namespace lockstep::cli
