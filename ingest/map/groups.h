#pragma once
// Process groups as traces describe them -> rows of comms that mean the same on every
// member rank.
//
// What names a group: its name, its description and its member ranks together.
// A name alone does not: groups made by splitting repeat it ([0, 1] and [2, 3] are
// both "3"). Nor do the ranks: FSDP and tensor parallelism may both have a group of all
// ranks. Names may even differ between members of one group, where ranks made
// different numbers of groups before; that only shows when all ranks are
// together, see GroupNames.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/schema.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// Members are first + i * stride, or listed, or (size only) unknown.
struct Group {
  std::string name, description;
  std::uint32_t size = 0;
  std::int64_t first = -1, stride = 0;
  std::vector<std::int64_t> members;

  bool members_known() const { return stride > 0 || !members.empty(); }
  std::int64_t WorldRank(std::int64_t rank) const;     // -1 unknown.
  std::int32_t RankOf(std::int64_t world_rank) const;  // -1 no member, or unknown.
  bool SameMembers(const Group& other) const;
  std::uint64_t Id(std::string_view name_or_number) const;  // comms.global_id.
};

// A group as one rank file has it: the source of its row in comms, now or again when all ranks are known.
struct RankGroup {
  Group group;
  bool guessed = false;
  std::uint32_t stream = 0;  // Guessed: which communication stream of the process.
  bool all_ranks = false;    // Guessed, and its number of ranks is not known either.
  bool counted = false;      // Every operation carried its own sequence number.
  std::string as;            // Replaces the name in the identity if it is not empty.
  // Set if the trace itself contains an identity that is the same on all members and on no other rank; 0: none.
  std::uint64_t id = 0;
  std::uint8_t kind = schema::CommKind::kTorchGroup;  // As comms.kind.
  std::int32_t rank = -1;                             // This process's rank in it, if the trace contains it.
};
schema::Comms::Row CommOf(const RankGroup& group, std::uint32_t number, std::int32_t rank);
// The unnamed group of all ranks.
void SetWorld(Group& group, std::int64_t world_size);

// One rank's groups, in order of appearance.
class Groups {
 public:
  // `distributed_info`: the trace's own list of groups, JSON.
  Groups(const MappedTrace& trace, std::string_view distributed_info, std::int64_t world_size);

  // The number of the group that these arguments name; kNone if they name none.
  std::uint32_t Named(const CommArgs& args);
  // A group without a name: the n-th communication stream of the process. `size` 0: all ranks.
  std::uint32_t Guessed(std::uint32_t stream_number, std::int64_t size);

  const Group& group(std::uint32_t number) const { return entries_[number].group; }
  const RankGroup& entry(std::uint32_t number) const { return entries_[number]; }
  bool guessed(std::uint32_t number) const { return entries_[number].guessed; }
  std::uint32_t count() const { return static_cast<std::uint32_t>(entries_.size()); }

  // Row of comms for each group, numbers as above. `rank`: this process's, -1 unknown.
  // `counted[i]`: every operation of group i carried its own sequence number.
  void Emit(MappedTrace& trace, std::int32_t rank, const std::vector<bool>& counted);

 private:
  std::uint32_t Communicator(const CommArgs& args);
  std::uint32_t Add(RankGroup entry);
  void SetMembers(Group& group, std::vector<std::int64_t> ranks) const;

  const MappedTrace& trace_;
  const std::int64_t world_size_;
  std::map<std::string, Group, std::less<>> listed_;  // By name; of the trace's own list.
  // The group that one combination of texts and numbers gave.
  std::map<std::vector<std::int64_t>, std::uint32_t> known_;
  std::vector<RankGroup> entries_;
};

}  // namespace lockstep::ingest
