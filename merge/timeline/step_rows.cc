#include "merge/timeline/step_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <type_traits>

#include "core/zero_pages.h"
#include "merge/release.h"

namespace lockstep::merge {
namespace {

// Where each row of the joined table comes from, the other way round: its place, by rank and row.
struct Places {
  std::vector<std::size_t> order;                // Results by their rank; those without rows are left out.
  std::vector<std::vector<std::uint32_t>> rows;  // As `order`.
  std::size_t count = 0;
};

template <typename Table>
Places FindPlaces(const std::vector<RankPassResult>& ranks, Table RankPassResult::*of) {
  Places places;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if ((ranks[r].*of).rows() > 0) places.order.push_back(r);
  std::stable_sort(places.order.begin(), places.order.end(), [&](std::size_t a, std::size_t b) {
    return (ranks[a].*of).rank.front() < (ranks[b].*of).rank.front();
  });
  std::map<std::int64_t, std::size_t> next;  // By number of the step.
  // f(entry of the step) for each row of a result. Ranks mostly have the same steps one after the other.
  const auto each = [&](std::size_t r, auto&& f) {
    auto at = next.end();
    for (const std::int64_t index : (ranks[r].*of).index) {
      if (at != next.end() && at->first != index) ++at;
      if (at == next.end() || at->first != index) at = next.try_emplace(index, 0).first;
      f(at->second);
    }
  };
  for (const std::size_t r : places.order) each(r, [](std::size_t& rows) { ++rows; });
  for (auto& [index, rows] : next) {
    const std::size_t first = places.count;
    places.count += rows;
    rows = first;
  }
  for (const std::size_t r : places.order) {
    std::vector<std::uint32_t>& rows = places.rows.emplace_back();
    rows.reserve((ranks[r].*of).rows());
    each(r, [&](std::size_t& place) { rows.push_back(static_cast<std::uint32_t>(place++)); });
  }
  return places;
}

template <typename Table>
Table JoinByStep(std::vector<RankPassResult>& ranks, Table RankPassResult::*of) {
  const Places places = FindPlaces(ranks, of);
  Table table;
  std::size_t column = 0;
  table.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
    using Values = std::remove_reference_t<decltype(values)>;
    values.resize(places.count);
    for (std::size_t i = 0; i < places.order.size(); ++i) {
      std::size_t at = 0;
      (ranks[places.order[i]].*of).ForEachColumn([&](const schema::ColumnInfo&, auto& from) {
        if (at++ != column) return;
        if constexpr (std::is_same_v<std::remove_reference_t<decltype(from)>, Values>) {
          for (std::size_t row = 0; row < from.size(); ++row) values[places.rows[i][row]] = from[row];
          Release(from);
        }
      });
    }
    GiveBackZeroPages(values);
    ++column;
  });
  return table;
}

}  // namespace

schema::TlStepRanks StepRankTable(std::vector<RankPassResult>& ranks) {
  return JoinByStep(ranks, &RankPassResult::step_ranks);
}

schema::TlStepPhases StepPhaseTable(std::vector<RankPassResult>& ranks) {
  return JoinByStep(ranks, &RankPassResult::phases);
}

void LeaveOutZeros(schema::TlStepRanks& rows) {
  std::size_t column = 0;
  rows.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
    const std::size_t at = column++;
    if (at == schema::TlStepRanks::IndexOf(&schema::TlStepRanks::index) ||
        at == schema::TlStepRanks::IndexOf(&schema::TlStepRanks::rank))
      return;
    if (std::ranges::all_of(values, [](const auto value) { return value == 0; }))
      Release(values);
    else
      values.shrink_to_fit();
  });
}

}  // namespace lockstep::merge
