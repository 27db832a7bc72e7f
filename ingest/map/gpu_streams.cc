#include "ingest/map/gpu_streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "core/rules/common.h"
#include "trace/decode/sort_rows.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

using schema::kNone;

// Correlation -> begin of the call.
using Launches = std::unordered_map<std::uint64_t, std::int64_t>;

// Rows of `table` that have a time; their number is the table's if all have.
template <typename Table>
std::vector<std::uint32_t> Timed(const Table& table, const Launches& launches) {
  std::vector<std::uint32_t> rows;
  rows.reserve(table.rows());
  for (std::uint32_t row = 0; row < table.rows(); ++row) {
    const std::int64_t begin = table.begin_ns[row];
    const auto launch = launches.find(table.correlation[row]);
    const bool before = launch != launches.end() && begin < launch->second - rules::kUntimedNs;
    if (!before && (begin != 0 || table.duration_ns[row] != 0)) rows.push_back(row);
  }
  return rows;
}

struct StreamOp {
  std::int64_t begin_ns = 0, end_ns = 0;
  std::uint32_t row = 0;
  bool copy = false;
};

}  // namespace

void LeaveOutUntimed(MappedTrace& trace, RankFinish& finish) {
  schema::RankTables& t = trace.tables;
  // Most traces have none, and need no index of the launches.
  const std::int64_t first_call_ns = t.api.rows() == 0 ? 0 : *std::ranges::min_element(t.api.begin_ns);
  const auto may_be = [&](std::int64_t begin_ns) {
    return begin_ns == 0 || begin_ns < first_call_ns - rules::kUntimedNs;
  };
  if (std::ranges::none_of(t.kernels.begin_ns, may_be) && std::ranges::none_of(t.copies.begin_ns, may_be)) return;
  Launches launches;
  for (std::size_t i = 0; i < t.api.rows(); ++i)
    if (t.api.correlation[i] != 0) launches.try_emplace(t.api.correlation[i], t.api.begin_ns[i]);
  const std::vector<std::uint32_t> kernels = Timed(t.kernels, launches), copies = Timed(t.copies, launches);
  const std::uint64_t untimed = t.kernels.rows() - kernels.size() + t.copies.rows() - copies.size();
  if (untimed == 0) return;
  std::vector<std::uint32_t> moved(t.kernels.rows(), kNone);
  for (std::uint32_t i = 0; i < kernels.size(); ++i) moved[kernels[i]] = i;
  std::erase_if(trace.comm_kernels, [&](const CommKernel& kernel) { return moved[kernel.row] == kNone; });
  for (CommKernel& kernel : trace.comm_kernels) kernel.row = moved[kernel.row];
  trace::TakeRows(t.kernels, kernels);
  trace::TakeRows(t.copies, copies);
  finish.Lose(Loss::kImportTimeMissing, untimed, "");
}

void CutWithinStreams(MappedTrace& trace, RankFinish& finish) {
  schema::RankTables& t = trace.tables;
  std::map<std::tuple<std::uint16_t, std::uint32_t, std::uint32_t>, std::vector<StreamOp>> streams;
  const auto add = [&](const auto& table, bool copy, auto&& in_order) {
    for (std::uint32_t row = 0; row < table.rows(); ++row)
      if (in_order(row))
        streams[{table.device[row], table.context[row], table.stream[row]}].push_back(
            {table.begin_ns[row], table.begin_ns[row] + table.duration_ns[row], row, copy});
  };
  // Branches of a graph run side by side under the stream on which it was launched.
  add(t.kernels, false, [&](std::uint32_t row) { return t.kernels.graph_node[row] == 0; });
  add(t.copies, true, [](std::uint32_t) { return true; });
  std::uint64_t found = 0;
  std::int64_t overlap_ns = 0;
  std::string detail;
  for (auto& [key, ops] : streams) {
    std::stable_sort(ops.begin(), ops.end(),
                     [](const StreamOp& a, const StreamOp& b) { return a.begin_ns < b.begin_ns; });
    std::vector<std::size_t> within;  // During which the next one begins and ends.
    for (std::size_t i = 0; i + 1 < ops.size(); ++i)
      if (ops[i].begin_ns < ops[i + 1].begin_ns && ops[i + 1].end_ns + rules::kGpuClockSlackNs < ops[i].end_ns)
        within.push_back(i);
    if (within.empty()) continue;
    const bool cut = LittleOf(within.size(), ops.size());
    std::int64_t sum_ns = 0;
    for (const std::size_t i : within) {
      const StreamOp& op = ops[i];
      sum_ns += op.end_ns - ops[i + 1].begin_ns;
      if (!cut) continue;
      (op.copy ? t.copies.duration_ns : t.kernels.duration_ns)[op.row] = ops[i + 1].begin_ns - op.begin_ns;
    }
    found += within.size();
    overlap_ns += sum_ns;
    const StreamOp& first = ops[within.front()];
    const std::string_view name = first.copy ? "a copy" : lockstep::trace::TextOf(t, t.kernels.name[first.row]);
    detail += fmt::format("{}GPU {} stream {}: {} by {:.3f} ms, first {} of {:.3f} ms{}", detail.empty() ? "" : "; ",
                          std::get<0>(key), std::get<2>(key), within.size(), static_cast<double>(sum_ns) / 1e6, name,
                          static_cast<double>(first.end_ns - first.begin_ns) / 1e6,
                          cut ? ", cut where the next one begins" : "; too many to be cut");
  }
  if (found == 0) return;
  finish.Lose(Loss::kGpuStreamOverlaps, found, detail);
  finish.Add("gpu_overlap_ns", std::to_string(overlap_ns));
}

}  // namespace lockstep::ingest
