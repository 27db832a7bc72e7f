#include "ingest/recorded/progress.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ingest/recorded/messages.h"
#include "ingest/recorded/rank_view.h"
#include "merge/parallel.h"

namespace lockstep::recorded {
namespace {

using hang::kNotKnown;
using hang::Operation;
using hang::OperationState;
using hang::RankState;

// Launchers end the other ranks within a second or two of the first one's end. Who asks for shorter waits knows them.
constexpr std::int64_t kTogetherNs = 5'000'000'000, kLeastTogetherNs = 2'000'000'000;

// Agents write signs of life several times a second, and a file system between hosts may hold it back for some more.
constexpr std::int64_t kHeardWithinNs = 10'000'000'000;

bool Open(const Operation& call) { return call.state != OperationState::kCompleted && call.waited; }

// When the rank began what it has been waiting in for longest.
std::int64_t WaitsSince(const RankView& view) {
  std::int64_t since = kNotKnown;
  const auto take = [&](const Operation& call) {
    if (Open(call) && call.created_ns != kNotKnown && (since == kNotKnown || call.created_ns < since))
      since = call.created_ns;
  };
  for (const auto& [id, comm] : view.comms) {
    for (const Operation& call : comm.calls) take(call);
    if (!comm.creation.kind.empty()) take(comm.creation);
  }
  for (const OpenMessage& message : view.open) take(message.call);
  for (const Operation& call : view.elsewhere) take(call);
  return since;
}

class Composer {
 public:
  Composer(std::vector<RankView> views, std::int32_t world_size, std::int64_t least_wait_ns,
           std::vector<std::string>& notes)
      : views_(std::move(views)), world_size_(world_size), least_wait_ns_(least_wait_ns), notes_(notes) {
    for (RankView& view : views_) by_rank_[view.facts.rank] = &view;
  }

  hang::Progress Compose() {
    progress_.source = hang::Source::kRankFile;
    messages_ = MatchMessages(views_);
    for (const RankView& view : views_) waits_since_.push_back(WaitsSince(view));
    anybody_waits_ =
        std::any_of(waits_since_.begin(), waits_since_.end(), [](std::int64_t ns) { return ns != kNotKnown; });
    for (std::size_t i = 0; i < views_.size(); ++i)
      if (!anybody_waits_ && views_[i].inside_finalize) waits_since_[i] = views_[i].finalize_ns;
    for (std::size_t i = 0; i < views_.size(); ++i) DecideState(i);
    AgeFacts();
    AddRanks();
    AddComms();
    AddFinalize();
    for (const RankView& view : views_) AddElsewhere(view);
    Remark();
    return std::move(progress_);
  }

 private:
  // What became of a process tells why it did not come only if it happened before the others waited, or if they went on
  // waiting after it. Of one that was inside a call itself, the latter, unless it had waited there for long.
  void DecideState(std::size_t i) {
    RankView& view = views_[i];
    if (view.facts.state == RankState::kStopped) return;
    const bool waits = waits_since_[i] != kNotKnown;
    if (!waits && view.left_mpi && anybody_waits_) {
      view.facts.state = RankState::kExited;
      if (view.inside_finalize && view.facts.doing.empty()) view.facts.doing = "in MPI_Finalize";
      return;
    }
    if (view.ended_ns == kNotKnown) return;
    if (view.facts.without_finalize) {
      view.facts.state = RankState::kExited;
      return;
    }
    std::int64_t others_wait_ns = kNotKnown, others_seen_ns = kNotKnown;
    for (std::size_t other = 0; other < views_.size(); ++other) {
      if (other == i || waits_since_[other] == kNotKnown) continue;
      others_seen_ns = std::max(others_seen_ns, views_[other].facts.seen_ns);
      if (others_wait_ns == kNotKnown || waits_since_[other] < others_wait_ns) others_wait_ns = waits_since_[other];
    }
    const bool waited_before = others_wait_ns != kNotKnown && view.ended_ns > others_wait_ns + least_wait_ns_;
    const bool waited_after = others_seen_ns != kNotKnown && others_seen_ns > view.ended_ns + together_ns_;
    if ((waited_before || waits) && !waited_after) return;
    if (waits && view.ended_ns > waits_since_[i] + least_wait_ns_) return;
    view.facts.state = view.ended_by_signal ? RankState::kKilled : RankState::kExited;
  }

  // What a rank did when it was last heard of is not what it does now.
  void AgeFacts() {
    std::int64_t latest_ns = kNotKnown;
    for (const RankView& view : views_) latest_ns = std::max(latest_ns, view.facts.seen_ns);
    for (RankView& view : views_) {
      const std::int64_t age_ns = latest_ns - view.facts.seen_ns;
      if (view.ended_ns != kNotKnown || view.left_mpi || view.facts.seen_ns == kNotKnown || age_ns < kHeardWithinNs)
        continue;
      std::string& doing = view.facts.doing;
      doing = "not heard of for " + std::to_string(age_ns / 1'000'000'000) + " s, its host or network may be gone" +
              (doing.empty() ? "" : "; before that it was " + doing);
    }
  }

  void AddRanks() {
    for (const RankView& view : views_) {
      progress_.ranks.push_back(view.facts);
      progress_.ranks.back().blind = !view.left_mpi && !view.recorded_to_the_end;
    }
    for (std::int32_t rank = 0; rank < world_size_; ++rank)
      if (!by_rank_.contains(rank)) progress_.ranks.push_back({.rank = rank, .state = RankState::kMissing});
    progress_.whole = world_size_ > 0 && progress_.ranks.size() == views_.size() &&
                      std::all_of(views_.begin(), views_.end(),
                                  [](const RankView& view) { return view.left_mpi || view.recorded_to_the_end; });
    std::sort(progress_.ranks.begin(), progress_.ranks.end(),
              [](const hang::RankFacts& a, const hang::RankFacts& b) { return a.rank < b.rank; });
  }

  struct Joined {
    std::string name;
    std::vector<std::int32_t> members;  // Ascending.
    bool complete = false, world = false, torch = false;
  };

  std::map<std::uint64_t, Joined> JoinComms() const {
    std::map<std::uint64_t, Joined> all;
    for (const RankView& view : views_) {
      for (const auto& [id, comm] : view.comms) {
        Joined& joined = all[id];
        if (joined.name.empty()) joined.name = comm.name;
        joined.world |= !comm.made && comm.members.size() == static_cast<std::size_t>(world_size_);
        joined.torch |= !comm.is_mpi;
        if (joined.complete) continue;
        joined.complete = !comm.members.empty();
        if (joined.complete)
          joined.members = comm.members;
        else
          joined.members.push_back(view.facts.rank);
      }
    }
    for (auto& [id, joined] : all) {
      std::sort(joined.members.begin(), joined.members.end());
      joined.members.erase(std::unique(joined.members.begin(), joined.members.end()), joined.members.end());
    }
    return all;
  }

  hang::Member MemberOf(std::uint64_t id, std::int32_t rank) {
    hang::Member member{.rank = rank};
    const auto at = by_rank_.find(rank);
    if (at == by_rank_.end()) return member;
    const RankView& view = *at->second;
    member.known = view.recorded_to_the_end;
    if (const auto messages = messages_.find({id, rank}); messages != messages_.end())
      member.messages = std::move(messages->second);
    const auto comm = view.comms.find(id);
    if (comm == view.comms.end()) {
      // It is announced with its first use.
      member.known = view.whole;
      member.entered = member.completed = 0;
      return member;
    }
    member.calls = comm->second.calls;
    member.entered = member.completed = comm->second.entered;
    for (const Operation& call : member.calls)
      if (call.state != OperationState::kCompleted) member.completed = std::min(member.completed, call.sequence - 1);
    member.moves_in_calls = comm->second.moves_in_calls;
    return member;
  }

  // Without a name, communicators are told apart by numbers.
  std::string LabelOf(const Joined& joined) {
    if (joined.name.empty() && joined.world) return joined.torch ? "of all ranks" : "MPI_COMM_WORLD";
    return !joined.name.empty() ? joined.name : "without a name, no. " + std::to_string(++unnamed_);
  }

  void AddComms() {
    for (const auto& [id, joined] : JoinComms()) {
      if (joined.members.size() < 2) continue;
      hang::Group group{
          .name = std::to_string(id), .label = LabelOf(joined), .complete = joined.complete, .on_host = true};
      for (const std::int32_t rank : joined.members) group.members.push_back(MemberOf(id, rank));
      const std::string label = group.label;
      progress_.groups.push_back(std::move(group));
      AddCreations(id, joined, label);
    }
  }

  void AddCreations(std::uint64_t id, const Joined& joined, const std::string& label) {
    hang::Group group{.name = std::to_string(id) + " creations", .label = label, .complete = joined.complete};
    bool any = false;
    for (const std::int32_t rank : joined.members) {
      hang::Member member{.rank = rank};
      const auto view = by_rank_.find(rank);
      if (view != by_rank_.end()) {
        const auto comm = view->second->comms.find(id);
        const bool here = comm != view->second->comms.end();
        const bool inside = here && !comm->second.creation.kind.empty();
        any |= inside;
        member.known = inside || view->second->whole;
        member.completed = inside ? comm->second.creation.sequence - 1 : here ? comm->second.creations : 0;
        member.entered = member.completed + (inside ? 1 : 0);
        if (inside) member.calls = {comm->second.creation};
      }
      group.members.push_back(std::move(member));
    }
    if (any) progress_.groups.push_back(std::move(group));
  }

  // All ranks wait for one another in MPI_Finalize, as long as nobody waits in something else: then who is there has
  // left too early.
  void AddFinalize() {
    const bool any =
        std::any_of(views_.begin(), views_.end(), [](const RankView& view) { return view.inside_finalize; });
    if (!any || anybody_waits_) return;
    hang::Group group{.name = "MPI_Finalize", .label = "MPI_COMM_WORLD"};
    for (const hang::RankFacts& facts : progress_.ranks) {
      hang::Member member{.rank = facts.rank};
      if (const auto at = by_rank_.find(facts.rank); at != by_rank_.end()) {
        const RankView& view = *at->second;
        member.known = view.left_mpi || view.recorded_to_the_end;
        member.entered = view.left_mpi ? 1 : 0;
        member.completed = view.left_mpi && !view.inside_finalize ? 1 : 0;
        if (view.inside_finalize)
          member.calls.push_back({.sequence = 1, .kind = "finalize", .created_ns = view.finalize_ns});
      }
      group.members.push_back(std::move(member));
    }
    progress_.groups.push_back(std::move(group));
  }

  // Whom such a call waits for is not known, but that its rank waits is.
  void AddElsewhere(const RankView& view) {
    for (std::size_t i = 0; i < view.elsewhere.size(); ++i) {
      hang::Group group{.name = "of rank " + std::to_string(view.facts.rank) + "'s call " + std::to_string(i + 1),
                        .label = "that is not known",
                        .complete = false};
      hang::Member member{.rank = view.facts.rank, .known = true, .entered = 1, .completed = 0};
      member.calls.push_back(view.elsewhere[i]);
      member.calls.back().sequence = 1;
      group.members.push_back(std::move(member));
      progress_.groups.push_back(std::move(group));
    }
  }

  void Remark() {
    std::size_t blind = 0;
    for (const RankView& view : views_) {
      for (const std::string& line : view.damaged)
        notes_.push_back("rank " + std::to_string(view.facts.rank) + ": " + line);
      blind += !view.recorded_to_the_end;
    }
    if (blind != 0)
      notes_.push_back("recording had ended before " + std::to_string(blind) + (blind == 1 ? " rank" : " ranks") +
                       " did: what these waited for at their end is not known");
  }

  std::vector<RankView> views_;
  std::int32_t world_size_;
  std::int64_t least_wait_ns_;
  std::int64_t together_ns_ = std::clamp(least_wait_ns_, kLeastTogetherNs, kTogetherNs);
  std::vector<std::string>& notes_;
  std::map<std::int32_t, RankView*> by_rank_;
  std::vector<std::int64_t> waits_since_;  // By view.
  bool anybody_waits_ = false;
  int unnamed_ = 0;
  Messages messages_;
  hang::Progress progress_;
};

}  // namespace

ingest::ReadProgress ProgressOf(const std::vector<RecordedRank>& ranks, std::int32_t world_size,
                                std::int64_t least_wait_ns, unsigned jobs) {
  std::map<std::int32_t, const schema::RankTables*> heads;
  for (const RecordedRank& each : ranks) heads.emplace(each.rank, each.head);
  std::vector<const schema::RankTables*> by_rank;
  for (const auto& [rank, head] : heads) by_rank.push_back(head);
  const ingest::HostNames hosts(by_rank);
  std::vector<RankView> views(ranks.size());
  merge::ParallelFor(jobs, ranks.size(), [&](std::size_t i) { views[i] = ViewOf(ranks[i], hosts); });
  ingest::ReadProgress read;
  read.used = views.size();
  read.progress = Composer(std::move(views), world_size, least_wait_ns, read.notes).Compose();
  return read;
}

}  // namespace lockstep::recorded
