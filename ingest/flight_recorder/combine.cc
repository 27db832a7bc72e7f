#include "ingest/flight_recorder/combine.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "ingest/flight_recorder/member.h"

namespace lockstep::flight_recorder {
namespace {

using hang::kNotKnown;

constexpr std::int64_t kSecond = 1'000'000'000;

// When the dump was written, from the time of its file, as far as that can be true: a copy has another one.
std::int64_t SeenAt(const RankDump& dump) {
  std::int64_t oldest = kNotKnown, timeout_ns = 0;
  for (const Entry& entry : dump.dump.entries) {
    timeout_ns = std::max(timeout_ns, entry.timeout_ns);
    if (entry.call.state == hang::OperationState::kCompleted || entry.call.created_ns == kNotKnown) continue;
    if (oldest == kNotKnown || entry.call.created_ns < oldest) oldest = entry.call.created_ns;
  }
  if (dump.modified_ns <= 0 || oldest == kNotKnown || dump.modified_ns < dump.dump.latest_ns - kSecond)
    return kNotKnown;
  // The watchdog writes when the timeout is over; whoever asks for a dump does so within a time like it.
  const std::int64_t longest =
      2 * std::min(timeout_ns > 0 ? timeout_ns : 1800 * kSecond, 86400 * kSecond) + 600 * kSecond;
  return dump.modified_ns - oldest <= longest ? std::max(dump.modified_ns, dump.dump.latest_ns) : kNotKnown;
}

std::string LibraryOf(const std::string& backend) {
  return backend == "nccl" ? "NCCL" : backend == "xccl" ? "XCCL" : backend;
}

bool IsDefault(const DumpGroup& group) { return group.name == "0" || group.label == "default_pg"; }

// A group over all dumps: one name and one set of ranks.
struct Joined {
  std::string name, label;
  std::vector<std::int32_t> order;             // Empty: no dump says who belongs to it.
  std::map<std::size_t, std::size_t> of_dump;  // Index of the dump -> of its group.
};

class Combiner {
 public:
  Combiner(const std::vector<RankDump>& dumps, std::vector<std::string>& notes) : dumps_(dumps), notes_(notes) {}

  hang::Progress Combine() {
    for (std::size_t d = 0; d < dumps_.size(); ++d) Join(d);
    for (std::size_t d = 0; d < dumps_.size(); ++d) JoinUnsaid(d);
    AddRanks();
    for (const Joined& joined : joined_) AddGroup(joined);
    return std::move(progress_);
  }

 private:
  void Join(std::size_t d) {
    for (std::size_t g = 0; g < dumps_[d].dump.groups.size(); ++g) {
      const DumpGroup& group = dumps_[d].dump.groups[g];
      if (group.ranks.empty()) continue;
      std::vector<std::int32_t> sorted = group.ranks;
      std::sort(sorted.begin(), sorted.end());
      const auto [at, fresh] = by_key_.try_emplace({group.name, std::move(sorted)}, joined_.size());
      if (fresh) {
        joined_.push_back({group.name, group.label, group.ranks, {}});
        named_[group.name].push_back(at->second);
      }
      joined_[at->second].of_dump[d] = g;
    }
  }

  // A dump that does not say who belongs to a group: another's word for it, if that contains this rank.
  void JoinUnsaid(std::size_t d) {
    for (std::size_t g = 0; g < dumps_[d].dump.groups.size(); ++g) {
      const DumpGroup& group = dumps_[d].dump.groups[g];
      if (!group.ranks.empty()) continue;
      std::size_t into = joined_.size();
      for (const std::size_t candidate : named_[group.name]) {
        const std::vector<std::int32_t>& order = joined_[candidate].order;
        if (order.empty() || std::find(order.begin(), order.end(), dumps_[d].rank) != order.end()) into = candidate;
      }
      if (into == joined_.size()) {
        joined_.push_back({group.name, group.label, {}, {}});
        named_[group.name].push_back(into);
      }
      joined_[into].of_dump[d] = g;
      if (joined_[into].label.empty()) joined_[into].label = group.label;
    }
  }

  void AddRanks() {
    std::vector<std::int32_t> empty;
    std::set<std::string> shown;
    for (const RankDump& dump : dumps_)
      for (const Entry& entry : dump.dump.entries)
        if (!entry.backend.empty()) shown.insert(LibraryOf(entry.backend));
    if (shown.empty()) shown.insert("PyTorch's process groups");
    for (const RankDump& dump : dumps_) {
      hang::RankFacts facts{.rank = dump.rank};
      facts.seen_ns = SeenAt(dump);
      if (dump.dump.anything) facts.shows.assign(shown.begin(), shown.end());
      for (const Entry& entry : dump.dump.entries) {
        if (entry.backend != "gloo") continue;
        facts.hides_messages = true;
        facts.makes_messages |= entry.collective != kNotKnown && entry.operation > entry.collective;
      }
      // An empty dump is what a recorder that was off writes, as well as a rank that never called.
      if (!dump.dump.anything) facts.state = hang::RankState::kMissing, empty.push_back(dump.rank);
      world_ = std::max(world_, dump.rank);
      progress_.ranks.push_back(std::move(facts));
    }
    for (const Joined& joined : joined_)
      for (const std::int32_t rank : joined.order) world_ = std::max(world_, rank);
    if (!empty.empty())
      notes_.push_back("the dump of rank " + std::to_string(empty.front()) +
                       (empty.size() > 1 ? " (and of " + std::to_string(empty.size() - 1) + " more)" : "") +
                       " is empty: it made no call, or its recorder was off (TORCH_FR_BUFFER_SIZE)");
  }

  // Every rank of the job is in the default group, and ranks have no gaps.
  std::vector<std::int32_t> MembersOf(const Joined& joined) {
    std::set<std::int32_t> ranks(joined.order.begin(), joined.order.end());
    bool is_default = false;
    for (const auto& [d, g] : joined.of_dump) {
      ranks.insert(dumps_[d].rank);
      is_default |= IsDefault(dumps_[d].dump.groups[g]);
    }
    if (joined.order.empty() && is_default && !world_is_told_) {
      for (std::int32_t rank = 0; rank <= world_; ++rank) ranks.insert(rank);
      world_is_told_ = true;
    }
    return {ranks.begin(), ranks.end()};
  }

  void AddGroup(const Joined& joined) {
    hang::Group group{.name = joined.name, .label = joined.label};
    std::vector<std::int32_t> ranks = MembersOf(joined);
    bool is_default = false;
    std::map<std::int32_t, MemberSource> sources;
    for (const auto& [d, g] : joined.of_dump) {
      MemberSource source{.dump = &dumps_[d].dump, .group = &dumps_[d].dump.groups[g], .rank = dumps_[d].rank};
      is_default |= IsDefault(*source.group);
      for (const Entry& entry : source.dump->entries)
        if (entry.group == static_cast<std::int64_t>(g)) source.entries.push_back(&entry);
      sources.emplace(dumps_[d].rank, std::move(source));
    }
    group.complete = !joined.order.empty() || is_default;
    if (ranks.size() > members_left_) {
      // No job is as large: what a file says about ranks without a dump is not believed any more.
      ranks.clear();
      for (const auto& [rank, source] : sources) ranks.push_back(rank);
      group.complete = false;
    }
    members_left_ -= std::min(members_left_, ranks.size());
    // Peers are places in the group; in the default group these are the ranks.
    const std::vector<std::int32_t> order = !joined.order.empty() ? joined.order
                                            : is_default          ? ranks
                                                                  : std::vector<std::int32_t>();
    std::vector<const MemberSource*> all;
    for (const auto& [rank, source] : sources) all.push_back(&source);
    const Trust trust = TrustOf(all, ranks.size());
    for (const std::int32_t rank : ranks) {
      const auto at = sources.find(rank);
      group.members.push_back(at == sources.end() ? Absent(rank) : MemberOf(at->second, trust, order));
    }
    progress_.groups.push_back(std::move(group));
  }

  // A member whose dump, if there is one, does not name the group: in dumps without lists of groups a group appears
  // with its first call.
  hang::Member Absent(std::int32_t rank) const {
    hang::Member member{.rank = rank};
    const auto at = std::lower_bound(dumps_.begin(), dumps_.end(), rank,
                                     [](const RankDump& dump, std::int32_t wanted) { return dump.rank < wanted; });
    if (at == dumps_.end() || at->rank != rank) return member;
    const bool from_the_start = !at->dump.entries.empty() && at->dump.entries.front().record == 0;
    if ((from_the_start || at->dump.status_is_whole) && at->dump.anything) {
      member.known = true;
      member.entered = member.completed = 0;
    }
    return member;
  }

  const std::vector<RankDump>& dumps_;
  std::vector<std::string>& notes_;
  hang::Progress progress_;
  std::vector<Joined> joined_;
  std::map<std::pair<std::string, std::vector<std::int32_t>>, std::size_t> by_key_;
  std::map<std::string, std::vector<std::size_t>> named_;
  std::int32_t world_ = -1;
  bool world_is_told_ = false;  // There is one default group.
  std::size_t members_left_ = std::size_t{1} << 20;
};

}  // namespace

hang::Progress Combine(const std::vector<RankDump>& dumps, std::vector<std::string>& notes) {
  return Combiner(dumps, notes).Combine();
}

}  // namespace lockstep::flight_recorder
