#include "analysis/replay/questions/equal_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

#include "analysis/core/statistics.h"

namespace lockstep::replay {
namespace {

using TypicalFunction = std::int64_t (*)(std::vector<std::int64_t> values);

std::int64_t MedianOf(std::vector<std::int64_t> values) { return LowerMedian(std::move(values)); }
std::int64_t MeanOf(std::vector<std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0}) / static_cast<std::int64_t>(values.size());
}

// Further ranks change the median of their work no more.
constexpr std::size_t kMostCompared = 64;

class Equaliser {
 public:
  Equaliser(const RecordedRun& run, std::vector<bool> changed, std::vector<bool> compared, TypicalFunction typical,
            Spread spread, Job& job)
      : run_(run),
        changed_(std::move(changed)),
        compared_(std::move(compared)),
        typical_(typical),
        spread_(spread),
        operations_(job.graph.operations()),
        about_(job.operations) {
    for (const Operation& operation : operations_) as_it_was_.push_back(operation.duration_ns);
    kinds_.assign(run_.ranks.size() * run_.steps.size(), 0);
    orders_ = kinds_;
    for (const JobOperation& about : about_)
      if (about.likeness != 0 && about.rank < run_.ranks.size() && about.step < run_.steps.size()) {
        std::uint64_t& kind = (about.role == Role::kKernel ? kinds_ : orders_)[At(about.step, about.rank)];
        kind = (kind ^ about.likeness) * 1'099'511'628'211u;
      }
  }

  // Whether there were lone ranks that work.
  bool DoAll() {
    for (const Role role : {Role::kWork, Role::kKernel, Role::kCopy, Role::kLaunch}) Do(role);
    return any_lone_;
  }

 private:
  void Do(Role role) {
    cells_.assign(run_.ranks.size() * run_.steps.size(), {});
    marks_.assign(cells_.size(), {});
    std::vector<bool> cut_by_call(run_.ranks.size(), false);
    std::vector<std::uint32_t> lanes(run_.ranks.size(), kNone);  // Of the thread that works.
    several_threads_.assign(run_.ranks.size(), false);
    for (std::uint32_t i = 0; i < about_.size(); ++i) {
      const JobOperation& about = about_[i];
      if (about.rank >= run_.ranks.size() || about.step >= run_.steps.size()) continue;
      if (about.role == role) {
        if (lanes[about.rank] == kNone) lanes[about.rank] = operations_[i].lane;
        several_threads_[about.rank] = several_threads_[about.rank] || operations_[i].lane != lanes[about.rank];
      }
      if (role == Role::kWork && about.collective != kNone && operations_[i].lane == lanes[about.rank] &&
          lanes[about.rank] != kNone)
        marks_[At(about.step, about.rank)].push_back({about.collective, Cell(about.step, about.rank).size()});
      if (about.role != role) {
        if (about.role != Role::kOther) cut_by_call[about.rank] = about.role == Role::kCall;
        continue;
      }
      std::vector<Piece>& cell = Cell(about.step, about.rank);
      if (cell.empty() || !cut_by_call[about.rank]) cell.emplace_back();
      cell.back().push_back(i);
      cut_by_call[about.rank] = false;
    }
    for (std::uint32_t step = 0; step < run_.steps.size(); ++step) {
      GroupRanks(step);
      for (std::uint32_t rank = 0; rank < run_.ranks.size(); ++rank)
        if (changed_[rank]) Change(step, rank);
    }
  }

  // Operations of one role that calls which communicate with nobody cut into parts: a rank that polls (MPI_Test) cuts
  // longer work into more of them, so their number does not say what kind of work it is.
  using Piece = std::vector<std::uint32_t>;

  std::size_t At(std::size_t step, std::size_t rank) const { return step * run_.ranks.size() + rank; }
  std::vector<Piece>& Cell(std::size_t step, std::size_t rank) { return cells_[At(step, rank)]; }
  std::int64_t Length(const Piece& piece) const {
    std::int64_t length = 0;
    for (const std::uint32_t i : piece) length += as_it_was_[i];
    return length;
  }
  std::int64_t Total(std::size_t step, std::size_t rank) {
    std::int64_t total = 0;
    for (const Piece& piece : Cell(step, rank)) total += Length(piece);
    return total;
  }
  void Lengthen(const Piece& piece, std::int64_t own_ns, std::int64_t to_ns) {
    if (piece.size() == 1) {
      operations_[piece[0]].duration_ns = to_ns;
      return;
    }
    const double factor = own_ns > 0 ? static_cast<double>(to_ns) / static_cast<double>(own_ns) : 1;
    for (const std::uint32_t i : piece)
      operations_[i].duration_ns = std::llround(static_cast<double>(as_it_was_[i]) * factor);
  }

  // Ranks that are compared and alike in a step, ascending, and what each of their pieces typically takes, as far as
  // somebody asked.
  struct Group {
    std::vector<std::uint32_t> ranks;
    std::vector<std::int64_t> typical_ns;
  };
  // What they have in common: the number of pieces, and perhaps the kernels, and the order in which they communicate.
  using Alike = std::tuple<std::size_t, std::optional<std::uint64_t>, std::optional<std::uint64_t>>;
  Alike AlikeOf(std::uint32_t step, std::uint32_t rank, bool kernels, bool order) {
    Alike alike{Cell(step, rank).size(), std::nullopt, std::nullopt};
    if (kernels) std::get<1>(alike) = kinds_[At(step, rank)];
    if (order) std::get<2>(alike) = orders_[At(step, rank)];
    return alike;
  }
  void GroupRanks(std::uint32_t step) {
    groups_.clear();
    total_of_all_.reset();
    for (std::uint32_t rank = 0; rank < run_.ranks.size(); ++rank)
      if (compared_[rank])
        for (const bool kernels : {false, true})
          for (const bool order : {false, true}) groups_[AlikeOf(step, rank, kernels, order)].ranks.push_back(rank);
  }

  // Those with which a rank is compared: the others that divide this step as it does; if some of these also run the
  // same kernels, only those. A rank that is compared itself is one of them. nullptr: there is no other.
  Group* PeersOf(std::uint32_t step, std::uint32_t rank) {
    const std::size_t others = compared_[rank] ? 2 : 1;
    const auto of = [&](bool kernels, bool order) -> Group* {
      const auto at = groups_.find(AlikeOf(step, rank, kernels, order));
      return at == groups_.end() || at->second.ranks.size() < others ? nullptr : &at->second;
    };
    Group* twins = of(true, false);
    Group* peers = twins != nullptr ? twins : of(false, false);
    // Of them those that communicate in the same order: for them the k-th piece is the same work. As many pieces alone
    // do not say that: two stages of a pipeline have as many, forward and backward passes in another order. Only for
    // the median: a mean over some of those that divide the step equally would not keep the sum of all.
    if (compared_[rank] || peers == nullptr) return peers;
    Group* in_order = of(twins != nullptr, true);
    return in_order != nullptr ? in_order : peers;
  }

  void Change(std::uint32_t step, std::uint32_t rank) {
    const std::vector<Piece>& own = Cell(step, rank);
    if (Group* peers = PeersOf(step, rank)) {
      for (std::size_t k = peers->typical_ns.size(); k < own.size(); ++k) {
        std::vector<std::int64_t> theirs;
        for (const std::uint32_t r : peers->ranks) theirs.push_back(Length(Cell(step, r)[k]));
        peers->typical_ns.push_back(typical_(std::move(theirs)));
      }
      for (std::size_t k = 0; k < own.size(); ++k) Lengthen(own[k], Length(own[k]), peers->typical_ns[k]);
      return;
    }
    if (!compared_[rank] && ChangeBetweenMarks(step, rank)) return;
    const std::int64_t total = Total(step, rank);
    if (total <= 0 || std::find(compared_.begin(), compared_.end(), true) == compared_.end()) return;
    any_lone_ = true;
    if (spread_ == Spread::kOverAlike) return;
    const double factor = static_cast<double>(TypicalTotal(step)) / static_cast<double>(total);
    for (const Piece& piece : own)
      for (const std::uint32_t i : piece)
        operations_[i].duration_ns = std::llround(static_cast<double>(as_it_was_[i]) * factor);
  }

  std::int64_t TypicalTotal(std::uint32_t step) {
    if (!total_of_all_) {
      std::vector<std::int64_t> totals;
      for (std::uint32_t r = 0; r < run_.ranks.size(); ++r)
        if (compared_[r]) totals.push_back(Total(step, r));
      total_of_all_ = typical_(std::move(totals));
    }
    return *total_of_all_;
  }

  // A point on a rank's thread at which it comes to a collective: it hands it over, posts it, or is in it.
  struct Mark {
    std::uint32_t collective;
    std::size_t pieces;  // Of its work of the step before that.
  };

  // Ranks that divide a step differently still come to the same collectives: between two of those to which all come in
  // one order, this rank's work takes as long as the others'. What it does too much stays where it does it, which a
  // factor for the whole step would spread over all of it. False: there are no such collectives.
  bool ChangeBetweenMarks(std::uint32_t step, std::uint32_t rank) {
    std::vector<std::uint32_t> others;
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r)
      if (compared_[r] && r != rank && !Cell(step, r).empty()) others.push_back(r);
    if (others.size() > kMostCompared) {
      for (std::size_t i = 0; i < kMostCompared; ++i) others[i] = others[i * others.size() / kMostCompared];
      others.resize(kMostCompared);
    }
    std::map<std::uint32_t, std::size_t>
        common;  // From a collective of this rank to how many of the others come to it.
    for (const Mark& mark : marks_[At(step, rank)]) common[mark.collective] = 0;
    for (const std::uint32_t r : others)
      for (const Mark& mark : marks_[At(step, r)])
        if (const auto at = common.find(mark.collective); at != common.end()) ++at->second;
    const auto of_all = [&](std::uint32_t r) {
      std::vector<Mark> kept;
      for (const Mark& mark : marks_[At(step, r)])
        if (const auto at = common.find(mark.collective); at != common.end() && at->second == others.size())
          kept.push_back(mark);
      return kept;
    };
    const std::vector<Mark> shared = of_all(rank);
    if (others.empty() || shared.empty() || several_threads_[rank]) return false;
    std::vector<std::vector<std::int64_t>> theirs(shared.size() + 1);  // By stretch between two marks; of each rank.
    for (const std::uint32_t r : others) {
      const std::vector<Mark> marks = of_all(r);
      const bool same = std::equal(marks.begin(), marks.end(), shared.begin(), shared.end(),
                                   [](const Mark& a, const Mark& b) { return a.collective == b.collective; });
      if (!same || several_threads_[r]) return false;
      for (std::size_t k = 0; k < theirs.size(); ++k) theirs[k].push_back(LengthBetween(step, r, marks, k));
    }
    for (std::size_t k = 0; k < theirs.size(); ++k) {
      const std::int64_t length = LengthBetween(step, rank, shared, k);
      if (length <= 0) continue;
      const double factor = static_cast<double>(typical_(std::move(theirs[k]))) / static_cast<double>(length);
      for (std::size_t piece = FirstOf(shared, k); piece < FirstOf(shared, k + 1, Cell(step, rank).size()); ++piece)
        for (const std::uint32_t i : Cell(step, rank)[piece])
          operations_[i].duration_ns = std::llround(static_cast<double>(as_it_was_[i]) * factor);
    }
    return true;
  }
  // The first piece behind the mark before the k-th stretch.
  static std::size_t FirstOf(const std::vector<Mark>& marks, std::size_t k, std::size_t all = 0) {
    return k == 0 ? 0 : k - 1 < marks.size() ? marks[k - 1].pieces : all;
  }
  std::int64_t LengthBetween(std::uint32_t step, std::uint32_t rank, const std::vector<Mark>& marks, std::size_t k) {
    const std::vector<Piece>& cell = Cell(step, rank);
    std::int64_t length = 0;
    for (std::size_t piece = FirstOf(marks, k); piece < FirstOf(marks, k + 1, cell.size()); ++piece)
      length += Length(cell[piece]);
    return length;
  }

  const RecordedRun& run_;
  const std::vector<bool> changed_, compared_;
  const TypicalFunction typical_;
  const Spread spread_;
  bool any_lone_ = false;
  std::vector<Operation>& operations_;
  std::vector<std::int64_t> as_it_was_;
  std::map<Alike, Group> groups_;             // Of one step.
  std::optional<std::int64_t> total_of_all_;  // What the ranks compared typically do in that step in all.
  const std::vector<JobOperation>& about_;
  std::vector<std::vector<Piece>> cells_;  // [step][rank]: its work of the role, in order.
  std::vector<bool> several_threads_;      // [rank]: whether its work of the role is not one thread's.
  std::vector<std::vector<Mark>> marks_;   // [step][rank]: to which collectives it comes, in order; of kWork.
  std::vector<std::uint64_t> kinds_;       // [step][rank]: a hash of its kernels, in order.
  std::vector<std::uint64_t> orders_;      // [step][rank]: one of what it communicates, in order.
};

}  // namespace

void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job) {
  std::vector<bool> slow(run.ranks.size(), false);
  for (const std::int32_t rank : ranks)
    if (const std::uint32_t r = run.PositionOf(rank); r != kNone) slow[r] = true;
  std::vector<bool> others = slow;
  others.flip();
  Equaliser(run, std::move(slow), std::move(others), MedianOf, Spread::kOverAll, job).DoAll();
}

bool EvenOutWork(const RecordedRun& run, Spread spread, Job& job) {
  std::vector<std::int64_t> work_ns(run.ranks.size(), 0);
  for (std::size_t i = 0; i < job.operations.size(); ++i)
    if (const JobOperation& about = job.operations[i]; IsOwnWork(about.role) && about.rank < work_ns.size())
      work_ns[about.rank] += job.graph.operations()[i].duration_ns;
  const std::int64_t middle_ns = work_ns.empty() ? 0 : LowerMedian(work_ns);
  std::vector<bool> alike;
  for (const std::int64_t ns : work_ns) alike.push_back(spread == Spread::kOverAll || 2 * ns >= middle_ns);
  const bool apart = std::any_of(work_ns.begin(), work_ns.end(), [&](std::int64_t ns) { return 2 * ns < middle_ns; });
  return Equaliser(run, alike, alike, MeanOf, spread, job).DoAll() || apart;
}

}  // namespace lockstep::replay
