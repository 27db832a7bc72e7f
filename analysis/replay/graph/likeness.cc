#include "analysis/replay/graph/likeness.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "analysis/core/statistics.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

class Likener {
 public:
  Likener(const RecordedRun& run, const Job& job) : run_(run), job_(job) {
    for (const Operation& operation : job.graph.operations()) ordinary_.push_back(operation.duration_ns);
    const std::size_t ranks = run.ranks.size();
    cuts_.assign(ranks * run.steps.size(), 14695981039346656037u);  // FNV-1a.
    for (const JobOperation& about : job.operations) {
      if (about.role == Role::kOther || about.rank >= ranks || about.step >= run.steps.size()) continue;
      std::uint64_t& hash = cuts_[about.step * ranks + about.rank];
      hash = (hash ^ static_cast<std::uint64_t>(about.role)) * 1099511628211u;
    }
  }

  std::vector<std::int64_t> Run() {
    for (std::uint8_t role = 0; role <= static_cast<std::uint8_t>(Role::kSync); ++role)
      if (static_cast<Role>(role) != Role::kMember && static_cast<Role>(role) != Role::kExit &&
          static_cast<Role>(role) != Role::kOther)
        Works(static_cast<Role>(role));
    Transfers();
    return std::move(ordinary_);
  }

 private:
  struct Cell {
    std::uint32_t count = 0;
    std::int64_t sum = 0;
  };

  void Works(Role role) {
    const std::size_t ranks = run_.ranks.size(), steps = run_.steps.size();
    std::vector<Cell> cells(ranks * steps);
    std::vector<std::uint32_t> list;
    for (std::uint32_t i = 0; i < job_.operations.size(); ++i) {
      const JobOperation& about = job_.operations[i];
      if (about.role != role || about.rank >= ranks || about.step >= steps) continue;
      list.push_back(i);
      Cell& cell = cells[about.step * ranks + about.rank];
      ++cell.count;
      cell.sum += job_.graph.operations()[i].duration_ns;
    }
    if (list.empty()) return;
    // How each rank mostly divides its steps, by the order of its operations; only ranks that divide them equally are
    // compared (stages of a pipeline do not).
    std::vector<std::uint64_t> usual(ranks);
    std::size_t agree = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      std::map<std::uint64_t, std::size_t> seen;
      for (std::size_t s = 0; s < steps; ++s) ++seen[cuts_[s * ranks + r]];
      const auto most =
          std::max_element(seen.begin(), seen.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
      usual[r] = most->first;
      agree += most->second;
    }
    if (NearlyAllOf(agree, cells.size())) {
      std::map<std::pair<std::uint64_t, std::uint32_t>, std::pair<double, std::uint32_t>> sums;
      const auto whole = [&](std::uint32_t i) {
        const JobOperation& about = job_.operations[i];
        return cuts_[about.step * ranks + about.rank] == usual[about.rank];
      };
      for (const std::uint32_t i : list) {
        if (!whole(i)) continue;
        auto& [sum, count] = sums[{usual[job_.operations[i].rank], job_.operations[i].position}];
        sum += static_cast<double>(job_.graph.operations()[i].duration_ns);
        ++count;
      }
      for (const std::uint32_t i : list) {
        if (!whole(i)) continue;
        const auto& [sum, count] = sums.at({usual[job_.operations[i].rank], job_.operations[i].position});
        ordinary_[i] = std::llround(sum / count);
      }
      return;
    }
    double sum = 0;
    std::size_t count = 0;
    for (const Cell& cell : cells)
      if (cell.count > 0) sum += static_cast<double>(cell.sum), ++count;
    const double ordinary = sum / static_cast<double>(std::max<std::size_t>(1, count));
    for (const std::uint32_t i : list) {
      const JobOperation& about = job_.operations[i];
      const std::int64_t own = cells[about.step * ranks + about.rank].sum;
      if (own > 0)
        ordinary_[i] = std::llround(static_cast<double>(job_.graph.operations()[i].duration_ns) * ordinary /
                                    static_cast<double>(own));
    }
  }

  void Transfers() {
    using Class = std::tuple<Role, CollectiveKind, std::uint64_t, std::uint32_t>;
    std::map<Class, std::vector<std::int64_t>> values;
    const auto of = [&](std::uint32_t i) {
      const RunCollective& c = run_.collectives[job_.operations[i].collective];
      return Class{job_.operations[i].role, c.kind, c.bytes, c.members};
    };
    const auto is = [&](std::uint32_t i) {
      const JobOperation& about = job_.operations[i];
      return (about.role == Role::kMember || about.role == Role::kExit) && about.collective != kNone;
    };
    for (std::uint32_t i = 0; i < job_.operations.size(); ++i)
      if (is(i)) values[of(i)].push_back(job_.graph.operations()[i].duration_ns);
    std::map<Class, std::int64_t> ordinary;
    for (auto& [key, list] : values) ordinary[key] = std::llround(MiddleMedian(std::move(list)));
    for (std::uint32_t i = 0; i < job_.operations.size(); ++i)
      if (is(i)) ordinary_[i] = ordinary.at(of(i));
  }

  const RecordedRun& run_;
  const Job& job_;
  std::vector<std::int64_t> ordinary_;
  std::vector<std::uint64_t> cuts_;  // [step][rank]: a hash of a rank's operations in a step, in order.
};

}  // namespace

WorkKind KindOf(const Job& job, std::uint32_t i) {
  switch (job.operations[i].role) {
    case Role::kMember:
    case Role::kExit:
    case Role::kMessage:
      return WorkKind::kCommunication;
    case Role::kKernel:
    case Role::kCopy:
      return WorkKind::kCompute;
    case Role::kWork:
      // A host thread's own time is compute only if no GPU computes.
      return job.graph.operations()[i].activity == Activity::kCompute ? WorkKind::kCompute : WorkKind::kHost;
    case Role::kCall:
    case Role::kPost:
    case Role::kWait:
    case Role::kLaunch:
    case Role::kSync:
      return WorkKind::kHost;
    case Role::kOther:
    case Role::kStepEnd:
      break;
  }
  return WorkKind::kNeither;
}

std::string_view NameOf(WorkKind kind) {
  return kind == WorkKind::kCompute ? "compute" : kind == WorkKind::kHost ? "host" : "communication";
}

std::vector<std::int64_t> OrdinaryDurations(const RecordedRun& run, const Job& job) { return Likener(run, job).Run(); }

}  // namespace lockstep::replay
