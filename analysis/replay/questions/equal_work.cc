#include "analysis/replay/questions/equal_work.h"

#include <algorithm>
#include <cmath>

#include "analysis/core/statistics.h"

namespace lockstep::replay {
namespace {

class Equaliser {
 public:
  Equaliser(const RecordedRun& run, std::vector<bool> slow, Job& job)
      : run_(run), slow_(std::move(slow)), operations_(job.graph.operations()), about_(job.operations) {
    kinds_.assign(run_.ranks.size() * run_.steps.size(), 0);
    for (const JobOperation& about : about_)
      if (about.likeness != 0 && about.rank < run_.ranks.size() && about.step < run_.steps.size()) {
        std::uint64_t& kind = kinds_[about.step * run_.ranks.size() + about.rank];
        kind = (kind ^ about.likeness) * 1'099'511'628'211u;
      }
  }

  void Do(Role role) {
    cells_.assign(run_.ranks.size() * run_.steps.size(), {});
    for (std::uint32_t i = 0; i < about_.size(); ++i)
      if (about_[i].role == role && about_[i].rank < run_.ranks.size() && about_[i].step < run_.steps.size())
        Cell(about_[i].step, about_[i].rank).push_back(i);
    for (std::uint32_t step = 0; step < run_.steps.size(); ++step)
      for (std::uint32_t rank = 0; rank < run_.ranks.size(); ++rank)
        if (slow_[rank]) Change(step, rank);
  }

 private:
  std::vector<std::uint32_t>& Cell(std::size_t step, std::size_t rank) {
    return cells_[step * run_.ranks.size() + rank];
  }
  std::int64_t Total(std::size_t step, std::size_t rank) {
    std::int64_t total = 0;
    for (const std::uint32_t i : Cell(step, rank)) total += operations_[i].duration_ns;
    return total;
  }

  void Change(std::uint32_t step, std::uint32_t rank) {
    const std::vector<std::uint32_t>& own = Cell(step, rank);
    std::vector<std::uint32_t> peers, twins;  // Twins run the same kernels as well.
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r) {
      if (slow_[r] || Cell(step, r).size() != own.size()) continue;
      peers.push_back(r);
      if (kinds_[step * run_.ranks.size() + r] == kinds_[step * run_.ranks.size() + rank]) twins.push_back(r);
    }
    if (!twins.empty()) peers = std::move(twins);
    if (!peers.empty()) {
      for (std::size_t k = 0; k < own.size(); ++k) {
        std::vector<std::int64_t> theirs;
        for (const std::uint32_t r : peers) theirs.push_back(operations_[Cell(step, r)[k]].duration_ns);
        operations_[own[k]].duration_ns = LowerMedian(std::move(theirs));
      }
      return;
    }
    std::vector<std::int64_t> totals;
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r)
      if (!slow_[r]) totals.push_back(Total(step, r));
    const std::int64_t total = Total(step, rank);
    if (total <= 0) return;
    const double factor = static_cast<double>(LowerMedian(std::move(totals))) / static_cast<double>(total);
    for (const std::uint32_t i : own)
      operations_[i].duration_ns = std::llround(static_cast<double>(operations_[i].duration_ns) * factor);
  }

  const RecordedRun& run_;
  const std::vector<bool> slow_;
  std::vector<Operation>& operations_;
  const std::vector<JobOperation>& about_;
  std::vector<std::vector<std::uint32_t>> cells_;  // [step][rank]: its operations of the role, in order.
  std::vector<std::uint64_t> kinds_;               // [step][rank]: which kernels, in order.
};

}  // namespace

void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job) {
  std::vector<bool> slow;
  for (const std::int32_t rank : run.ranks) slow.push_back(std::find(ranks.begin(), ranks.end(), rank) != ranks.end());
  Equaliser equaliser(run, std::move(slow), job);
  for (const Role role : {Role::kWork, Role::kKernel, Role::kCopy, Role::kLaunch}) equaliser.Do(role);
}

}  // namespace lockstep::replay
