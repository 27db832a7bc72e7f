#include "trace/decode/identity.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <tuple>

#include "core/schema_enums.h"

namespace lockstep::trace {
namespace {

std::int32_t ToldNumber(const std::map<std::string, std::string>& meta, const char* key) {
  const auto at = meta.find(key);
  std::int32_t value = -1;
  if (at != meta.end()) std::from_chars(at->second.data(), at->second.data() + at->second.size(), value);
  return value;
}

std::string Place(std::int32_t rank, std::int32_t size) {
  return "rank " + std::to_string(rank) + (size > 0 ? " of " + std::to_string(size) : "");
}

std::string_view Speaker(RankProof proof) {
  return proof == RankProof::kMpi           ? "by MPI"
         : proof == RankProof::kGroup       ? "by init_process_group"
         : proof == RankProof::kEnvironment ? "by RANK and WORLD_SIZE of its environment"
                                            : "by what launched it";
}

// A process that is a rank by itself, and the proof for it.
struct Member {
  std::size_t process;
  RankProof proof;
  std::int32_t rank, size;
  std::uint64_t begin, end, at;  // When it asked and was admitted, and the meeting point; 0 unknown.
};

// The members of one world, and the times at which all of them asked.
struct World {
  std::vector<Member> members;
  std::uint64_t begin = 0, end = UINT64_MAX;

  bool Takes(const Member& member) const {
    const Member& first = members[0];
    if (member.proof != first.proof || member.size != first.size) return false;
    const bool timed = member.end != 0 && first.end != 0;
    if (timed && std::max(begin, member.begin) > std::min(end, member.end)) return false;
    for (const Member& other : members)
      if (other.rank == member.rank) return false;
    // The meeting point may have different names on different ranks, so it is only compared for a doubled rank.
    return true;
  }
  void Add(const Member& member) {
    if (member.end != 0) begin = std::max(begin, member.begin), end = std::min(end, member.end);
    members.push_back(member);
  }
  bool MeetsAt(std::uint64_t at) const {
    return at != 0 && std::any_of(members.begin(), members.end(), [&](const Member& m) { return m.at == at; });
  }
};

std::vector<World> WorldsOf(std::vector<Member> members) {
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.begin, a.rank) < std::tie(b.begin, b.rank);
  });
  std::vector<World> worlds;
  for (const Member& member : members) {
    World* best = nullptr;
    for (World& world : worlds)
      if (world.Takes(member) && (best == nullptr || world.MeetsAt(member.at))) best = &world;
    if (best == nullptr) best = &worlds.emplace_back();
    best->Add(member);
  }
  return worlds;
}

// The strongest proof that the process itself provides; kNone if there is none.
Member Strongest(const ProcessState& state, std::size_t process, const std::map<std::string, std::string>& meta) {
  if (state.world_rank >= 0 && state.rank_source == schema::RankSource::kMpi && state.world_size != 1)
    return {process, RankProof::kMpi, state.world_rank, state.world_size, state.begin_ticks, 0, 0};
  if (state.joined_size > 1)
    return {process,           RankProof::kGroup,        state.joined_rank,
            state.joined_size, state.joined_begin_ticks, state.joined_end_ticks,
            state.joined_at};
  const auto agents = meta.find("rank_variable");
  if (state.world_rank >= 0 && state.rank_source == schema::RankSource::kEnvironment && agents != meta.end() &&
      std::to_string(state.world_rank) != agents->second)
    return {process, RankProof::kEnvironment, state.world_rank, state.world_size, state.begin_ticks, 0, 0};
  return {process, RankProof::kNone, -1, -1, 0, 0, 0};
}

// Describes the rank that other sources give the process, if that differs.
std::string Contradicted(const ProcessState& state, const Member& chosen,
                         const std::map<std::string, std::string>& meta) {
  std::string text;
  const auto add = [&](RankProof proof, std::int32_t rank, std::int32_t size) {
    if (rank < 0 || size <= 1 || proof >= chosen.proof || (rank == chosen.rank && size == chosen.size)) return;
    text += (text.empty() ? "" : "; ") + Place(rank, size) + " " + std::string(Speaker(proof));
  };
  add(RankProof::kGroup, state.joined_size > 1 ? state.joined_rank : -1, state.joined_size);
  if (state.rank_source == schema::RankSource::kEnvironment)
    add(RankProof::kEnvironment, state.world_rank, state.world_size);
  const auto source = meta.find("rank_source");
  if (text.empty() && source != meta.end() && source->second == "env")
    add(RankProof::kSlot, ToldNumber(meta, "rank"), ToldNumber(meta, "world_size"));
  return text;
}

}  // namespace

std::string_view NameOf(RankProof proof) {
  switch (proof) {
    case RankProof::kMpi:
      return "mpi";
    case RankProof::kGroup:
      return "group";
    case RankProof::kEnvironment:
      return "env";
    case RankProof::kSlot:
      return "slot";
    case RankProof::kNone:
      break;
  }
  return "";
}

std::vector<ProcessIdentity> IdentifyProcesses(const std::vector<const ProcessState*>& processes,
                                               const std::map<std::string, std::string>& meta) {
  std::vector<ProcessIdentity> identities(processes.size());
  std::vector<Member> members;
  for (std::size_t i = 0; i < processes.size(); ++i)
    if (const Member member = Strongest(*processes[i], i, meta); member.proof != RankProof::kNone)
      members.push_back(member);
  if (members.empty()) {
    for (ProcessIdentity& identity : identities)
      identity = {RankProof::kSlot, ToldNumber(meta, "rank"), ToldNumber(meta, "world_size"), "", false};
    return identities;
  }
  // A process that communicates is preferred to one that only has a rank in its environment: a worker that ended before
  // it joined the others keeps that rank only if no other process has it.
  std::vector<World> worlds = WorldsOf(std::move(members));
  const auto last = std::max_element(worlds.begin(), worlds.end(), [](const World& a, const World& b) {
    if (a.members[0].proof != b.members[0].proof) return a.members[0].proof < b.members[0].proof;
    // A process that has the variables and joined no world may be a helper that inherited them from the rank before it.
    const bool met = a.members[0].proof >= RankProof::kGroup;
    return met ? a.members.back().begin < b.members.back().begin : a.members[0].begin > b.members[0].begin;
  });
  std::set<std::int32_t> taken;
  const auto before = [&](const Member& member) {
    if (member.proof < RankProof::kGroup) return;  // It has a rank's variables, as the helpers of that rank do.
    identities[member.process].world_size = member.size;
    identities[member.process].earlier = true;
  };
  const auto give = [&](const Member& member) {
    if (!taken.insert(member.rank).second) return before(member);
    identities[member.process] = {member.proof, member.rank, member.size,
                                  Contradicted(*processes[member.process], member, meta), false};
  };
  for (const Member& member : last->members) give(member);
  for (const World& world : worlds) {
    if (&world == &*last) continue;
    const bool same =
        world.members[0].size == last->members[0].size && world.members[0].proof == RankProof::kEnvironment;
    for (const Member& member : world.members) {
      if (same)
        give(member);
      else
        before(member);
    }
  }
  return identities;
}

}  // namespace lockstep::trace
