#include "ingest/map/groups.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/hex.h"
#include "ingest/map/args.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {

using schema::kNone;
using schema::kNoTime;

namespace {

std::string TextIn(const nlohmann::json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end()) return "";
  return at->is_string() ? at->get<std::string>() : at->is_number() ? at->dump() : "";
}

}  // namespace

std::int64_t Group::WorldRank(std::int64_t rank) const {
  if (rank < 0 || rank >= size) return -1;
  if (stride > 0) return first + rank * stride;
  return static_cast<std::size_t>(rank) < members.size() ? members[static_cast<std::size_t>(rank)] : -1;
}

std::int32_t Group::RankOf(std::int64_t world_rank) const {
  if (world_rank < 0) return -1;
  if (stride > 0) {
    const std::int64_t at = world_rank - first;
    return at >= 0 && at % stride == 0 && at / stride < size ? static_cast<std::int32_t>(at / stride) : -1;
  }
  const auto at = std::find(members.begin(), members.end(), world_rank);
  return at == members.end() ? -1 : static_cast<std::int32_t>(at - members.begin());
}

bool Group::SameMembers(const Group& other) const {
  return size == other.size && first == other.first && stride == other.stride && members == other.members;
}

std::uint64_t Group::Id(std::string_view name_or_number) const {
  Hash64 hash;
  hash.Add(std::string_view("process group"));
  hash.Add(name_or_number);
  hash.Add(std::string_view(description));
  hash.Add(static_cast<std::uint64_t>(size));
  hash.Add(static_cast<std::uint64_t>(first));
  hash.Add(static_cast<std::uint64_t>(stride));
  for (const std::int64_t member : members) hash.Add(static_cast<std::uint64_t>(member));
  return hash.value();
}

Groups::Groups(const MappedTrace& trace, std::string_view distributed_info, std::int64_t world_size)
    : trace_(trace), world_size_(world_size) {
  const auto info = nlohmann::json::parse(distributed_info, nullptr, false);
  if (!info.is_object()) return;
  const auto list = info.find("pg_config");
  if (list == info.end() || !list->is_array()) return;
  for (const auto& item : *list) {
    if (!item.is_object()) continue;
    Group group;
    group.name = TextIn(item, "pg_name");
    group.description = TextIn(item, "pg_desc");
    std::vector<std::int64_t> ranks;
    if (const auto at = item.find("ranks"); at != item.end() && at->is_array())
      for (const auto& rank : *at)
        if (rank.is_number_integer()) ranks.push_back(rank.get<std::int64_t>());
    if (const auto at = item.find("pg_size"); at != item.end() && at->is_number_integer())
      group.size = static_cast<std::uint32_t>(ToldSize(at->get<std::int64_t>()));
    if (ranks.size() == group.size || group.size == 0) SetMembers(group, std::move(ranks));
    if (!group.name.empty()) listed_.emplace(group.name, std::move(group));
  }
}

void Groups::SetMembers(Group& group, std::vector<std::int64_t> ranks) const {
  if (ranks.empty()) return;
  group.size = static_cast<std::uint32_t>(ranks.size());
  // Numbers of a file may be so far apart that their difference overflows.
  std::int64_t stride = 1, step = 0;
  bool even = ranks.size() < 2 || !__builtin_sub_overflow(ranks[1], ranks[0], &stride);
  even = even && stride > 0 && ranks.front() >= 0 && ranks.back() < kMostRanks;
  for (std::size_t i = 1; i < ranks.size() && even; ++i)
    even = !__builtin_sub_overflow(ranks[i], ranks[i - 1], &step) && step == stride;
  if (even) {
    group.first = ranks[0];
    group.stride = stride;
  } else {
    group.members = std::move(ranks);
  }
}

std::uint32_t Groups::Add(RankGroup entry) {
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    const RankGroup& other = entries_[i];
    if (other.id != entry.id || other.guessed != entry.guessed || other.stream != entry.stream ||
        other.group.name != entry.group.name || !other.group.SameMembers(entry.group) ||
        other.group.description != entry.group.description)
      continue;
    return i;
  }
  entries_.push_back(std::move(entry));
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

std::uint32_t Groups::Named(const CommArgs& args) {
  if (args.communicator != 0) return Communicator(args);
  if (args.group == kNone && args.ranks == kNone) return kNone;
  const std::vector<std::int64_t> key{args.group,      args.description, args.ranks,
                                      args.group_size, args.rank_start,  args.rank_stride};
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  RankGroup entry;
  Group& group = entry.group;
  group.name = lockstep::trace::TextOf(trace_.tables, args.group);
  group.description = lockstep::trace::TextOf(trace_.tables, args.description);
  if (args.group_size > 0 && args.group_size <= kMostRanks) group.size = static_cast<std::uint32_t>(args.group_size);
  bool cut = false;
  std::vector<std::int64_t> ranks;
  if (args.ranks != kNone) ranks = IntsOf(lockstep::trace::TextOf(trace_.tables, args.ranks), &cut);
  if (!cut && !ranks.empty() && (group.size == 0 || ranks.size() == group.size)) {
    SetMembers(group, std::move(ranks));
  } else if (args.rank_start >= 0 && args.rank_start < kMostRanks && args.rank_stride > 0 &&
             args.rank_stride < kMostRanks && group.size > 0) {
    group.first = args.rank_start;
    group.stride = group.size > 1 ? args.rank_stride : 1;
  } else if (const auto at = listed_.find(group.name);
             at != listed_.end() && at->second.members_known() && (group.size == 0 || at->second.size == group.size)) {
    group.size = at->second.size;
    group.first = at->second.first, group.stride = at->second.stride, group.members = at->second.members;
  } else if (group.size > 0 && group.size == world_size_) {
    // In some versions the default group's list is empty: it contains all ranks.
    group.first = 0, group.stride = 1;
  }
  // The operation has less information than the list, so the list is preferred.
  if (group.description.empty())
    if (const auto at = listed_.find(group.name); at != listed_.end()) group.description = at->second.description;
  const std::uint32_t number = Add(std::move(entry));
  known_.emplace(key, number);
  return number;
}

// NCCL's number identifies the members' common group, but not the members.
std::uint32_t Groups::Communicator(const CommArgs& args) {
  RankGroup entry;
  Hash64 hash;
  hash.Add(std::string_view("nccl communicator"));
  hash.Add(args.communicator);
  entry.id = hash.value();
  entry.kind = schema::CommKind::kNccl;
  for (std::uint32_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].id == entry.id) {
      if (args.group_size > 0) entries_[i].group.size = static_cast<std::uint32_t>(ToldSize(args.group_size));
      return i;
    }
  if (args.group_size > 0) entry.group.size = static_cast<std::uint32_t>(ToldSize(args.group_size));
  entry.group.name = Hex(args.communicator);
  entries_.push_back(std::move(entry));
  return static_cast<std::uint32_t>(entries_.size() - 1);
}

std::uint32_t Groups::Guessed(std::uint32_t stream_number, std::int64_t size) {
  RankGroup entry;
  entry.guessed = true;
  entry.stream = stream_number;
  entry.all_ranks = size <= 0 || size == world_size_;
  if (entry.all_ranks)
    SetWorld(entry.group, world_size_);
  else
    entry.group.size = static_cast<std::uint32_t>(std::min(size, kMostRanks));
  return Add(std::move(entry));
}

void SetWorld(Group& group, std::int64_t world_size) {
  group.size = static_cast<std::uint32_t>(std::clamp<std::int64_t>(world_size, 0, kMostRanks));
  group.first = 0, group.stride = 1;
}

schema::Comms::Row CommOf(const RankGroup& entry, std::uint32_t number, std::int32_t rank) {
  const Group& group = entry.group;
  schema::Comms::Row row;
  row.comm = number;
  row.parent_id = 0;
  row.size = group.size;
  row.rank = entry.rank >= 0 ? entry.rank : group.RankOf(rank);
  row.kind = entry.kind;
  row.begin_ns = row.end_ns = kNoTime;
  row.name = kNone;
  row.first_world_rank = ToldRank(group.WorldRank(0));
  row.stride = static_cast<std::int32_t>(group.stride);
  // Without members the name is ambiguous: other groups of this size may have it too.
  row.unidentified = !group.members_known() && entry.id == 0;
  row.identity = entry.guessed ? 2 : entry.counted ? 0 : 1;
  if (entry.id != 0)
    row.global_id = entry.id;
  else if (!row.unidentified)
    row.global_id = group.Id(!entry.as.empty() ? entry.as
                             : entry.guessed   ? "guessed " + std::to_string(entry.stream)
                                               : group.name);
  return row;
}

void Groups::Emit(MappedTrace& trace, std::int32_t rank, const std::vector<bool>& counted) {
  schema::RankTables& t = trace.tables;
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    RankGroup& entry = entries_[i];
    const Group& group = entry.group;
    entry.counted = counted[i];
    schema::Comms::Row row = CommOf(entry, i, rank);
    std::string name = group.name;
    if (entry.guessed)
      name = "communication stream " + std::to_string(entry.stream + 1);
    else if (!group.description.empty() && group.description != "undefined")
      name = group.description + (name.empty() ? "" : " (" + name + ")");
    if (!name.empty()) row.name = trace.strings->Intern(name);
    t.comms.Append(row);
    for (std::size_t m = 0; m < group.members.size(); ++m)
      t.comm_members.Append({.comm = i,
                             .comm_rank = static_cast<std::uint32_t>(m),
                             .world_rank = static_cast<std::int32_t>(group.members[m])});
  }
}

}  // namespace lockstep::ingest
