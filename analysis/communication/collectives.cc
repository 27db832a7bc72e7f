// Makes one row per kind, communicator and size: how often, how long, how fast.

#include <algorithm>
#include <map>
#include <tuple>

#include "analysis/core/rates.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "core/collective.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

struct Samples {
  std::int64_t count = 0, censored = 0, partial = 0, grouped = 0;
  std::uint32_t members = 0;
  // The size is known and no data moved. An operation of a GPU has a kernel because it moves data, so there 0 is an
  // unknown size.
  bool known_empty = false;
  std::vector<std::int64_t> transfer_ns, wait_ns;
  std::map<std::int32_t, std::vector<std::int64_t>> waits_of_rank;
};

// Finds the rank with the longest median wait, and that median; of ranks that wait equally long, the lowest. There is
// none if the ranks take turns, that is, if no rank's median is as long as the mean over all of them.
void FindLongestWait(std::map<std::int32_t, std::vector<std::int64_t>>& waits_of_rank, CollectiveRow& row) {
  for (auto& [rank, waits] : waits_of_rank) {
    const std::int64_t wait_ns = LowerMedian(std::move(waits));
    if (row.longest_wait_ns_median && wait_ns <= *row.longest_wait_ns_median) continue;
    row.longest_wait_rank = rank;
    row.longest_wait_ns_median = wait_ns;
  }
  if (row.longest_wait_ns_median < row.wait_ns_median)
    row.longest_wait_rank = row.longest_wait_ns_median = std::nullopt;
}

}  // namespace

void TabulateCollectives(const Context& context, Analysis& analysis) {
  const auto& t = context.tables().collectives;
  const auto& members = context.tables().collective_ranks;
  std::map<std::tuple<std::uint8_t, std::uint64_t, std::uint64_t>, Samples> kinds;
  std::map<std::uint64_t, std::vector<std::int32_t>> groups;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Counts(c)) continue;
    Samples& samples = kinds[{t.kind[c], t.comm_id[c], t.bytes[c]}];
    ++samples.count;
    // Without all members the end is unknown as well, so the missing members are the reason.
    if (t.seen[c] < t.expected[c])
      ++samples.partial;
    else
      samples.censored += t.censored[c] != 0;
    samples.known_empty |= t.bytes[c] == 0 && (t.mode[c] != schema::Code(CollectiveMode::kGpu) ||
                                               t.kind[c] == schema::Code(CollectiveKind::kBarrier));
    samples.members = std::max(samples.members, t.expected[c]);
    samples.grouped += t.operations[c] > 1;
    if (t.wait_ns[c] >= 0 && IsSound(t, c) && !context.OfSameKernel(c)) {
      samples.wait_ns.push_back(t.wait_ns[c]);
      for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m)
        if (members.wait_ns[m] >= 0) samples.waits_of_rank[members.rank[m]].push_back(members.wait_ns[m]);
    }
    if (HasCertainTransfer(t, c)) samples.transfer_ns.push_back(t.transfer_ns[c]);

    std::vector<std::int32_t>& group = groups[t.comm_id[c]];
    if (group.size() < t.seen[c]) {
      group.clear();
      for (std::size_t m = context.timeline().FirstMember(c); m < context.timeline().FirstMember(c + 1); ++m)
        group.push_back(members.rank[m]);
      std::sort(group.begin(), group.end());
    }
  }
  for (const auto& [comm, ranks] : groups) analysis.groups.push_back({comm, ranks});
  for (auto& [key, samples] : kinds) {
    const auto [kind, comm, bytes] = key;
    CollectiveRow row;
    row.op = Name(static_cast<CollectiveKind>(kind));
    row.comm = comm;
    row.group = groups[comm];
    if (bytes > 0 || samples.known_empty) row.bytes = bytes;
    row.count = samples.count;
    row.censored = samples.censored;
    row.partial = samples.partial;
    row.grouped = samples.grouped;
    if (!samples.wait_ns.empty()) row.wait_ns_median = LowerMedian(std::move(samples.wait_ns));
    FindLongestWait(samples.waits_of_rank, row);
    if (const std::size_t timed = samples.transfer_ns.size(); timed > 0) {
      row.transfer_ns_median = LowerMedian(std::move(samples.transfer_ns));
      if (samples.members > 1 && bytes > 0 && *row.transfer_ns_median > 0 && timed >= rules::kFewest) {
        row.algbw = static_cast<double>(bytes) * 1e9 / static_cast<double>(*row.transfer_ns_median);
        row.busbw = *row.algbw * BusFactor(static_cast<CollectiveKind>(kind), samples.members);
      }
    }
    analysis.collectives.push_back(std::move(row));
  }
}

}  // namespace lockstep::analysis
