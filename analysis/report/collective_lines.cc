#include "analysis/report/collective_lines.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "core/order_statistics.h"

namespace lockstep::report {
namespace {

struct Sum {
  CollectiveLine line;
  std::vector<std::int64_t> transfers, waits;
  std::vector<double> bandwidths;
};

template <typename T>
std::optional<T> Middle(std::vector<T> values) {
  return values.empty() ? std::nullopt : std::optional(LowerMedian(std::move(values)));
}

std::int64_t CostOf(const CollectiveLine& line) {
  return (line.transfer_ns.value_or(0) + line.wait_ns.value_or(0)) * (line.count / line.groups);
}

}  // namespace

std::vector<CollectiveLine> CollectiveLines(const std::vector<analysis::CollectiveRow>& rows, std::size_t screen) {
  const bool merge = rows.size() > screen;
  std::vector<Sum> sums;
  std::map<std::tuple<std::string_view, std::optional<std::uint64_t>, std::size_t>, std::size_t> sum_of;
  for (const analysis::CollectiveRow& row : rows) {
    const auto [at, is_new] = sum_of.try_emplace({row.op, row.bytes, row.group.size()}, sums.size());
    if (is_new || !merge) sums.push_back({.line = {.row = &row}});
    Sum& sum = merge ? sums[at->second] : sums.back();
    ++sum.line.groups;
    sum.line.count += row.count;
    sum.line.censored += row.censored;
    sum.line.partial += row.partial;
    sum.line.grouped += row.grouped;
    if (row.transfer_ns_median) sum.transfers.push_back(*row.transfer_ns_median);
    if (row.wait_ns_median) sum.waits.push_back(*row.wait_ns_median);
    if (row.longest_wait_ns_median > sum.line.longest_wait_ns) {
      sum.line.longest_wait_ns = row.longest_wait_ns_median;
      sum.line.longest_wait_rank = row.longest_wait_rank;
    }
    if (row.busbw) sum.bandwidths.push_back(*row.busbw);
  }
  std::vector<CollectiveLine> lines;
  for (Sum& sum : sums) {
    sum.line.transfer_ns = Middle(std::move(sum.transfers));
    sum.line.wait_ns = Middle(std::move(sum.waits));
    sum.line.bus_bandwidth = Middle(std::move(sum.bandwidths));
    lines.push_back(sum.line);
  }
  std::stable_sort(lines.begin(), lines.end(),
                   [](const CollectiveLine& a, const CollectiveLine& b) { return CostOf(a) > CostOf(b); });
  return lines;
}

}  // namespace lockstep::report
