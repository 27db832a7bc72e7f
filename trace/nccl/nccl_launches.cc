// Finds what NCCL's threads launched, and the resulting work on the GPU.

#include <algorithm>
#include <unordered_set>

#include "core/comm_kernels.h"
#include "trace/file/strings.h"
#include "trace/nccl/nccl_operations.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

std::int64_t EndOf(std::int64_t begin_ns, std::int64_t duration_ns) {
  return begin_ns > INT64_MAX - duration_ns ? INT64_MAX : begin_ns + duration_ns;
}

template <typename Rows>
auto WithCorrelation(const Rows& rows, std::uint64_t correlation) {
  const auto less = [](const auto& a, const auto& b) { return a.first < b.first; };
  return std::equal_range(rows.begin(), rows.end(), std::pair<std::uint64_t, std::uint32_t>(correlation, 0), less);
}

}  // namespace

NcclLaunchIndex::NcclLaunchIndex(const schema::RankTables& tables) : tables_(tables), nccl_(tables.kernels.rows()) {
  threads_.resize(tables.threads.rows());
  const schema::Api& api = tables.api;  // By begin.
  for (std::size_t i = 0; i < api.rows(); ++i) {
    // Some launching functions are newer than the list of known launching functions; their kind is "other".
    const bool may_launch = api.kind[i] == schema::ApiKind::kOther || api.kind[i] == schema::ApiKind::kLaunch ||
                            api.kind[i] == schema::ApiKind::kCopy;
    if (!may_launch || api.correlation[i] == 0) continue;
    if (api.thread[i] < threads_.size())
      threads_[api.thread[i]].push_back(
          {api.begin_ns[i], EndOf(api.begin_ns[i], api.duration_ns[i]), api.correlation[i]});
  }
  const auto index = [](const std::vector<std::uint64_t>& correlations, Rows& rows) {
    rows.reserve(correlations.size());
    for (std::uint32_t row = 0; row < correlations.size(); ++row)
      if (correlations[row] != 0) rows.emplace_back(correlations[row], row);
    std::sort(rows.begin(), rows.end());
  };
  index(tables.kernels.correlation, kernels_);
  index(tables.copies.correlation, copies_);
  std::vector<std::uint8_t> named(tables.strings.rows());
  for (std::uint32_t i = 0; i < named.size(); ++i) named[i] = IsNcclKernelName(TextOf(tables, i));
  for (std::size_t i = 0; i < nccl_.size(); ++i)
    nccl_[i] = tables.kernels.name[i] < named.size() && named[tables.kernels.name[i]] != 0;
}

std::span<const NcclLaunchIndex::Launch> NcclLaunchIndex::Within(std::uint32_t thread, std::int64_t begin_ns,
                                                                 std::int64_t end_ns) const {
  if (thread >= threads_.size() || end_ns < begin_ns) return {};
  const std::vector<Launch>& launches = threads_[thread];
  const auto first = std::lower_bound(launches.begin(), launches.end(), begin_ns,
                                      [](const Launch& launch, std::int64_t ns) { return launch.begin_ns < ns; });
  const auto last = std::upper_bound(first, launches.end(), end_ns,
                                     [](std::int64_t ns, const Launch& launch) { return ns < launch.begin_ns; });
  return {first, last};
}

std::vector<std::uint32_t> NcclLaunchIndex::KernelsOf(std::span<const Launch> launches) const {
  std::vector<std::uint32_t> rows;
  std::unordered_set<std::uint64_t> seen;  // A runtime call and the driver call inside it have one correlation.
  for (const Launch& launch : launches) {
    if (!seen.insert(launch.correlation).second) continue;
    const auto [first, last] = WithCorrelation(kernels_, launch.correlation);
    for (auto at = first; at != last; ++at) rows.push_back(at->second);
  }
  return rows;
}

NcclTie NcclLaunchIndex::TieOf(std::span<const Launch> launches) const {
  NcclTie tie;
  for (const Launch& launch : launches) {
    const auto [first, last] = WithCorrelation(kernels_, launch.correlation);
    for (auto at = first; at != last; ++at) {
      if (IsNccl(at->second)) return {.kernel = at->second};
      if (tie.kernel == kNone) tie.kernel = at->second;
    }
  }
  if (!tie.tied()) AddCopies(launches, tie);
  return tie;
}

NcclTie NcclLaunchIndex::WholeOf(std::span<const Launch> launches) const {
  NcclTie tie;
  AddCopies(launches, tie);
  for (const std::uint32_t kernel : KernelsOf(launches)) {
    if (!IsNccl(kernel)) continue;
    if (tie.kernel == kNone) tie.kernel = kernel;
    const std::int64_t begin = tables_.kernels.begin_ns[kernel];
    tie.copy_begin_ns = tie.copy_begin_ns == kNoTime ? begin : std::min(tie.copy_begin_ns, begin);
    tie.copy_end_ns = std::max(tie.copy_end_ns, EndOf(begin, tables_.kernels.duration_ns[kernel]));
  }
  return tie;
}

void NcclLaunchIndex::AddCopies(std::span<const Launch> launches, NcclTie& tie) const {
  for (const Launch& launch : launches) {
    const auto [first, last] = WithCorrelation(copies_, launch.correlation);
    for (auto at = first; at != last; ++at) {
      const std::int64_t begin = tables_.copies.begin_ns[at->second];
      const std::int64_t end = EndOf(begin, tables_.copies.duration_ns[at->second]);
      tie.copy_begin_ns = tie.copy_begin_ns == kNoTime ? begin : std::min(tie.copy_begin_ns, begin);
      tie.copy_end_ns = std::max(tie.copy_end_ns, end);
    }
  }
}

}  // namespace lockstep::trace
