#include "analysis/replay/questions/equal_work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>

#include "analysis/core/statistics.h"
#include "analysis/replay/questions/like_work.h"
#include "analysis/rules/replay.h"
#include "core/rules/common.h"

namespace lockstep::replay {
namespace {

std::int64_t MeanOf(std::vector<std::int64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::int64_t{0}) / static_cast<std::int64_t>(values.size());
}

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
    between_.assign(cells_.size(), {});
    std::vector<bool> cut_by_call(run_.ranks.size(), false);
    std::vector<std::uint64_t> before(run_.ranks.size(), 0);
    std::vector<bool> open(run_.ranks.size(), false);            // The last piece's end is still to come.
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
      std::vector<Piece>& cell = Cell(about.step, about.rank);
      std::vector<std::uint64_t>& between = between_[At(about.step, about.rank)];
      if (about.role != role) {
        if (about.role == Role::kOther) continue;
        const bool call = about.role == Role::kCall || about.only_sends;
        cut_by_call[about.rank] = call;
        if (call || about.role == Role::kExit) continue;
        if (!run_.whole_window) continue;
        before[about.rank] = IdentityOf(about);
        if (open[about.rank] && !between.empty()) between.back() = Hash(between.back(), before[about.rank]);
        open[about.rank] = false;
        continue;
      }
      if (cell.empty() || !cut_by_call[about.rank]) {
        cell.emplace_back();
        between.push_back(before[about.rank]);
        open[about.rank] = true;
      }
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

  static std::uint64_t Hash(std::uint64_t hash, std::uint64_t value) { return (hash ^ value) * 1'099'511'628'211u; }
  // Of what a piece of work comes before or after.
  std::uint64_t IdentityOf(const JobOperation& about) const {
    std::uint64_t hash = Hash(static_cast<std::uint64_t>(about.role) + 1, about.likeness);
    return about.collective == kNone ? hash : Hash(hash, IdentityOf(about.collective));
  }
  std::uint64_t IdentityOf(std::uint32_t collective) const {
    const RunCollective& c = run_.collectives[collective];
    return Hash(Hash(static_cast<std::uint64_t>(c.kind) + 1, c.comm), c.bytes);
  }

  // A point on a rank's thread at which it comes to a collective: it hands it over, posts it, or is in it.
  struct Mark {
    std::uint32_t collective;
    std::size_t pieces;  // Of its work of the step before that.
  };

  // The first piece behind the mark before the k-th stretch.
  static std::size_t FirstOf(const std::vector<Mark>& marks, std::size_t k, std::size_t all = 0) {
    return k == 0 ? 0 : k - 1 < marks.size() ? marks[k - 1].pieces : all;
  }
  // To collectives of all ranks.
  std::vector<Mark> MarksOfAll(std::uint32_t step, std::uint32_t rank) const {
    std::vector<Mark> marks = marks_[At(step, rank)];
    std::erase_if(marks,
                  [&](const Mark& mark) { return run_.collectives[mark.collective].members != run_.ranks.size(); });
    return marks;
  }
  // Which of so many pieces, or stretches of pieces_in(k), are compared at once. With steps each by itself.
  using Sets = std::vector<std::vector<std::size_t>>;
  template <typename IdentityOfPiece, typename PiecesIn>
  Sets SetsOf(std::size_t count, IdentityOfPiece&& identity, PiecesIn&& pieces_in) const {
    struct Open {
      std::size_t set, pieces;
    };
    Sets sets;
    std::unordered_map<std::uint64_t, Open> open;  // The set that is not full yet.
    for (std::size_t k = 0; k < count; ++k) {
      if (!run_.whole_window) {
        sets.push_back({k});
        continue;
      }
      const auto [at, fresh] = open.try_emplace(identity(k), Open{sets.size(), 0});
      if (!fresh && at->second.pieces >= rules::kEqualWorkComparedAtOnce) at->second = {sets.size(), 0};
      if (at->second.set == sets.size()) sets.emplace_back();
      sets[at->second.set].push_back(k);
      at->second.pieces += pieces_in(k);
    }
    return sets;
  }
  // Of stretches between marks, of which the last follows the last mark.
  Sets SetsOfStretches(const std::vector<Mark>& marks, std::size_t all_pieces) const {
    const auto mark_at = [&](std::size_t k) { return k < marks.size() ? IdentityOf(marks[k].collective) : 0; };
    return SetsOf(
        marks.size() + 1, [&](std::size_t k) { return Hash(k == 0 ? 1 : mark_at(k - 1), mark_at(k)); },
        [&](std::size_t k) { return FirstOf(marks, k + 1, all_pieces) - FirstOf(marks, k); });
  }
  // Of a rank's pieces in all that was recorded: those of like stretches between collectives of all ranks, if there
  // are.
  Sets SetsOfPieces(std::uint32_t step, std::uint32_t rank) const {
    const std::size_t all = cells_[At(step, rank)].size();
    const std::vector<Mark> marks = run_.whole_window ? MarksOfAll(step, rank) : std::vector<Mark>();
    if (marks.empty()) {
      const std::vector<std::uint64_t>& between = between_[At(step, rank)];
      return SetsOf(
          all, [&](std::size_t k) { return between[k]; }, [](std::size_t) { return 1; });
    }
    Sets sets;
    for (const std::vector<std::size_t>& stretches : SetsOfStretches(marks, all)) {
      std::vector<std::size_t> pieces;
      for (const std::size_t k : stretches)
        for (std::size_t piece = FirstOf(marks, k); piece < FirstOf(marks, k + 1, all); ++piece)
          pieces.push_back(piece);
      if (!pieces.empty()) sets.push_back(std::move(pieces));
    }
    return sets;
  }

  // Ranks that are compared and alike in a step, ascending, and, if somebody asked, which of their pieces are compared
  // at once and what those of each set typically take.
  struct Group {
    std::vector<std::uint32_t> ranks;
    Sets sets;
    std::vector<TypicalWork> typical;
  };
  // What they have in common: the number of pieces, and perhaps the kernels, and the order in which they communicate.
  using Alike = std::tuple<std::size_t, std::optional<std::uint64_t>, std::optional<std::uint64_t>>;
  Alike AlikeOf(std::uint32_t step, std::uint32_t rank, bool kernels, bool order) {
    Alike alike{Cell(step, rank).size(), std::nullopt, std::nullopt};
    // In all that was recorded as many before each collective of all ranks, too: as many in all may be chance.
    if (run_.whole_window)
      for (const Mark& mark : MarksOfAll(step, rank))
        std::get<0>(alike) = Hash(Hash(std::get<0>(alike), mark.collective), mark.pieces);
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

  // In a step each piece is a set of its own. Between collectives as many pieces need not be the same ones: of two
  // ranks that exchange messages one may receive twice before its work and the other once.
  bool AtSamePlaces(const Group& peers, const std::vector<Piece>& own) const {
    std::vector<std::int64_t> own_ns, theirs_ns;
    for (std::size_t k = 0; k < own.size(); ++k) {
      own_ns.push_back(Length(own[k]));
      theirs_ns.push_back(peers.typical[k].middle_ns.front());
    }
    return LieAtSamePlaces(own_ns, theirs_ns);
  }

  void Change(std::uint32_t step, std::uint32_t rank) {
    const std::vector<Piece>& own = Cell(step, rank);
    if (Group* peers = PeersOf(step, rank)) {
      const auto of = [&](std::uint32_t r, const std::vector<std::size_t>& set) {
        std::vector<std::int64_t> lengths;
        for (const std::size_t k : set) lengths.push_back(Length(Cell(step, r)[k]));
        return lengths;
      };
      if (peers->sets.empty()) {
        peers->sets = SetsOfPieces(step, peers->ranks.front());
        for (const std::vector<std::size_t>& set : peers->sets) {
          std::vector<std::vector<std::int64_t>> theirs;
          for (const std::uint32_t r : peers->ranks) theirs.push_back(of(r, set));
          peers->typical.push_back(TypicalOf(
              theirs, [&](std::size_t i) { return between_[At(step, peers->ranks.front())][set[i]]; }, typical_));
        }
      }
      if (!run_.whole_window && own.size() > marks_[At(step, rank)].size() + 1 && !AtSamePlaces(*peers, own)) {
        std::vector<std::size_t> all(own.size());
        std::iota(all.begin(), all.end(), std::size_t{0});
        std::int64_t typical_ns = 0;
        for (const TypicalWork& typical : peers->typical) typical_ns += typical.by_place_ns.front();
        if (const std::int64_t own_ns = Total(step, rank); own_ns > 0) Scale(step, rank, all, typical_ns, own_ns);
        return;
      }
      for (std::size_t s = 0; s < peers->sets.size(); ++s) {
        const std::vector<std::size_t>& set = peers->sets[s];
        const std::vector<std::int64_t> own_ns = of(rank, set), like_ns = LikeTheirs(peers->typical[s], own_ns);
        for (std::size_t i = 0; i < set.size(); ++i) Lengthen(own[set[i]], own_ns[i], like_ns[i]);
      }
      return;
    }
    // The mean over all keeps the sum only where all are compared between the same marks.
    if ((!compared_[rank] || run_.whole_window) && ChangeBetweenMarks(step, rank)) return;
    const std::int64_t total = Total(step, rank);
    if (total <= 0 || std::find(compared_.begin(), compared_.end(), true) == compared_.end()) return;
    any_lone_ = true;
    if (spread_ == Spread::kOverAlike) return;
    std::vector<std::size_t> all(own.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    Scale(step, rank, all, TypicalTotal(step), total);
  }

  void Scale(std::uint32_t step, std::uint32_t rank, const std::vector<std::size_t>& pieces, std::int64_t to_ns,
             std::int64_t from_ns) {
    const double factor = static_cast<double>(to_ns) / static_cast<double>(from_ns);
    for (const std::size_t piece : pieces)
      for (const std::uint32_t i : Cell(step, rank)[piece])
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

  // Ranks that divide a step differently still come to the same collectives: between two of those to which all come in
  // one order, this rank's work takes as long as the others'. What it does too much stays where it does it, which a
  // factor for the whole step would spread over all of it. False: there are no such collectives.
  bool ChangeBetweenMarks(std::uint32_t step, std::uint32_t rank) {
    std::vector<std::uint32_t> others;
    for (std::uint32_t r = 0; r < run_.ranks.size(); ++r)
      if (compared_[r] && (r != rank || compared_[rank]) && !Cell(step, r).empty()) others.push_back(r);
    if (others.size() > rules::kEqualWorkMostCompared) {
      for (std::size_t i = 0; i < rules::kEqualWorkMostCompared; ++i)
        others[i] = others[i * others.size() / rules::kEqualWorkMostCompared];
      others.resize(rules::kEqualWorkMostCompared);
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
    const Sets sets = SetsOfStretches(shared, Cell(step, rank).size());
    std::vector<std::vector<Mark>> marks;
    std::vector<std::vector<std::int64_t>> each(others.size());  // [other rank][stretch]
    for (std::size_t o = 0; o < others.size(); ++o) {
      marks.push_back(of_all(others[o]));
      const bool same = std::equal(marks[o].begin(), marks[o].end(), shared.begin(), shared.end(),
                                   [](const Mark& a, const Mark& b) { return a.collective == b.collective; });
      if (!same || several_threads_[others[o]]) return false;
      for (std::size_t k = 0; k <= shared.size(); ++k) each[o].push_back(LengthBetween(step, others[o], marks[o], k));
    }
    for (const std::vector<std::size_t>& set : sets) {
      std::vector<std::vector<std::int64_t>> theirs(others.size());
      std::vector<std::int64_t> own_ns;
      for (const std::size_t k : set) {
        own_ns.push_back(LengthBetween(step, rank, shared, k));
        for (std::size_t o = 0; o < others.size(); ++o) theirs[o].push_back(each[o][k]);
      }
      const std::vector<std::int64_t> like_ns =
          LikeTheirs(TypicalOf(
                         theirs, [](std::size_t) { return std::uint64_t{0}; }, typical_),
                     own_ns);
      for (std::size_t i = 0; i < set.size(); ++i) {
        std::vector<std::size_t> pieces;
        for (std::size_t piece = FirstOf(shared, set[i]); piece < FirstOf(shared, set[i] + 1, Cell(step, rank).size());
             ++piece)
          pieces.push_back(piece);
        if (own_ns[i] > 0) Scale(step, rank, pieces, like_ns[i], own_ns[i]);
      }
    }
    return true;
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
  std::vector<std::vector<std::uint64_t>>
      between_;                           // Likewise; by piece, a hash of the operations around it, without steps.
  std::vector<std::vector<Mark>> marks_;  // [step][rank]: to which collectives it comes, in order; of kWork.
  std::vector<std::uint64_t> kinds_;      // [step][rank]: a hash of its kernels, in order.
  std::vector<std::uint64_t> orders_;     // [step][rank]: one of what it communicates, in order.
};

}  // namespace

void EqualiseWork(const RecordedRun& run, const std::vector<std::int32_t>& ranks, Job& job) {
  std::vector<bool> slow(run.ranks.size(), false);
  for (const std::int32_t rank : ranks)
    if (const std::uint32_t r = run.PositionOf(rank); r != kNone) slow[r] = true;
  std::vector<bool> others = slow;
  others.flip();
  Equaliser(run, std::move(slow), std::move(others), LowerMedianOf, Spread::kOverAll, job).DoAll();
}

bool EvenOutWork(const RecordedRun& run, Spread spread, Job& job) {
  std::vector<std::int64_t> work_ns(run.ranks.size(), 0);
  for (std::size_t i = 0; i < job.operations.size(); ++i)
    if (const JobOperation& about = job.operations[i]; IsOwnWork(about.role) && about.rank < work_ns.size())
      work_ns[about.rank] += job.graph.operations()[i].duration_ns;
  const std::int64_t middle_ns = work_ns.empty() ? 0 : LowerMedian(work_ns);
  std::vector<bool> alike;
  for (const std::int64_t ns : work_ns) alike.push_back(spread == Spread::kOverAll || HalfOf(ns, middle_ns));
  const bool apart =
      std::any_of(work_ns.begin(), work_ns.end(), [&](std::int64_t ns) { return !HalfOf(ns, middle_ns); });
  return Equaliser(run, alike, alike, MeanOf, spread, job).DoAll() || apart;
}

}  // namespace lockstep::replay
