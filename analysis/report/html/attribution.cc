#include "analysis/report/html/attribution.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/collective.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kMostRanks = 16, kMostKinds = 12, kParts = 10;

struct Sum {
  std::int64_t last = 0, charge_ns = 0;
};
using Key = std::tuple<std::uint8_t, std::uint64_t, std::uint32_t>;  // Kind, bytes, members.

// Sorted by cost, largest first.
template <typename K>
std::vector<K> Costliest(const std::map<K, Sum>& sums, std::size_t most) {
  std::vector<std::pair<K, Sum>> order(sums.begin(), sums.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.charge_ns, a.second.last) > std::pair(b.second.charge_ns, b.second.last);
  });
  if (order.size() > most) order.resize(most);
  std::vector<K> keys;
  for (const auto& [key, sum] : order) keys.push_back(key);
  return keys;
}

PageJson Matrix(const std::vector<Sum>& cells) {
  std::vector<std::int64_t> last, charge_ns;
  for (const Sum& cell : cells) {
    last.push_back(cell.last);
    charge_ns.push_back(cell.charge_ns);
  }
  return {{"last", Packed(last)}, {"charge_ns", Packed(charge_ns)}};
}

}  // namespace

PageJson AttributionOf(const analysis::Context& context) {
  const auto& t = context.tables().collectives;
  const auto& steps = context.tables().steps;
  std::unordered_map<std::int64_t, std::size_t> step_row;
  for (const std::size_t row : context.steps()) step_row.emplace(steps.index[row], row);
  std::map<std::int32_t, Sum> of_rank;
  std::map<Key, Sum> of_kind;
  std::map<std::pair<std::int32_t, Key>, Sum> cells;
  std::map<std::pair<std::int32_t, std::size_t>, Sum> parts;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!(context.Comparable(c) || context.WaitsForOne(c)) || t.last_rank[c] < 0) continue;
    const Key key{t.kind[c], t.bytes[c], t.expected[c]};
    const auto add = [&](Sum& sum) {
      ++sum.last;
      sum.charge_ns += t.charge_ns[c];
    };
    add(of_rank[t.last_rank[c]]);
    add(of_kind[key]);
    add(cells[{t.last_rank[c], key}]);
    const auto step = step_row.find(t.step[c]);
    if (step == step_row.end()) continue;
    const std::int64_t begin = steps.begin_ns[step->second], length = steps.end_ns[step->second] - begin;
    if (length <= 0) continue;
    const double at = static_cast<double>(context.LastAwaited(c) - begin) / static_cast<double>(length);
    add(parts[{t.last_rank[c], static_cast<std::size_t>(std::clamp(at, 0.0, 0.999999) * kParts)}]);
  }
  if (of_rank.empty()) return nullptr;
  const std::vector<std::int32_t> ranks = Costliest(of_rank, kMostRanks);
  const std::vector<Key> kinds = Costliest(of_kind, kMostKinds);
  PageJson json{{"ranks", ranks},
                {"ranks_left_out", of_rank.size() - ranks.size()},
                {"kinds", PageJson::array()},
                {"kinds_left_out", of_kind.size() - kinds.size()}};
  for (const auto& [kind, bytes, members] : kinds)
    json["kinds"].push_back({{"op", Name(static_cast<CollectiveKind>(kind))}, {"bytes", bytes}, {"members", members}});
  std::vector<Sum> by_kind, by_part;
  for (const std::int32_t rank : ranks) {
    for (const Key& key : kinds) by_kind.push_back(cells[{rank, key}]);
    for (std::size_t part = 0; part < kParts; ++part) by_part.push_back(parts[{rank, part}]);
  }
  json["by_kind"] = Matrix(by_kind);
  json["tenths"] = std::all_of(by_part.begin(), by_part.end(), [](const Sum& sum) { return sum.last == 0; })
                       ? PageJson(nullptr)
                       : Matrix(by_part);
  return json;
}

}  // namespace lockstep::report
