#include "ingest/nsys/map/mpi.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "core/hash.h"
#include "core/mpi_ops.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/file/strings.h"

namespace lockstep::nsys {
namespace {

using schema::kNone;
using schema::kNoTime;

// "PMPI_Send", "MPI_Isend", Fortran's "mpi_isend_": by the name in any of its spellings.
const MpiOpInfo* FindCall(std::string_view name) {
  static const auto by_name = [] {
    std::map<std::string, const MpiOpInfo*> all;
    for (const MpiOpInfo& info : kMpiOps) {
      std::string lower(info.name);
      for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
      all.emplace(std::move(lower), &info);
    }
    return all;
  }();
  std::string lower(name.starts_with("PMPI_") ? name.substr(1) : name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  while (lower.ends_with('_')) lower.pop_back();
  if (lower.ends_with("_c")) lower.resize(lower.size() - 2);  // MPI 4's large counts.
  const auto at = by_name.find(lower);
  return at == by_name.end() ? nullptr : at->second;
}

std::int32_t Small(std::int64_t value) {  // Ranks and tags: negative ones are wildcards or none.
  return value >= 0 && value <= INT32_MAX ? static_cast<std::int32_t>(value) : -1;
}

// The S of definitions.md, computed from the bytes of the call's own side.
std::uint64_t WholeBytes(CollectiveKind kind, const MpiEvent& event, std::uint32_t members) {
  const std::uint64_t sent = Positive(event.bytes), received = Positive(event.received_bytes);
  const auto times = [&](std::uint64_t bytes) {
    std::uint64_t product = 0;
    return __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(members), &product) ? 0 : product;
  };
  switch (kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather:
      return sent > 0 && members > 0 ? times(sent) : received;
    case CollectiveKind::kReduceScatter:
      return std::max(sent, members > 0 ? times(received) : 0);
    case CollectiveKind::kScatter:
      return received > 0 && members > 0 ? times(received) : sent;
    case CollectiveKind::kBarrier:
      return 0;
    default:
      return sent > 0 ? sent : received;
  }
}
bool IsPost(MpiClass cls) {
  return cls == MpiClass::kCollectivePost || cls == MpiClass::kSendPost || cls == MpiClass::kRecvPost ||
         cls == MpiClass::kSendRecvPost;
}

}  // namespace

void MpiCalls::ReadTables() {
  const auto event = [&](const Rows& row, bool open) {
    MpiEvent e;
    if (!context_.Times(row.Int(1), row.Int(2), open, e.span)) return std::optional<MpiEvent>();
    e.thread = context_.Thread(row.Int(0), e.span);
    e.name = context_.Text(row.Int(3));
    return std::optional(e);
  };
  context_.ForRows(
      "MPI_P2P_EVENTS",
      {"globalTid", "start", "end", "textId", "commHandle", "commUid", "tag", "remoteRank", "size", "requestHandle"},
      [&](const Rows& row) {
        std::optional<MpiEvent> e = event(row, true);
        if (!e) return;
        e->communicator = row.Int(4), e->communicator_uid = row.Int(5), e->tag = row.Int(6);
        e->peer = row.Int(7), e->bytes = row.Int(8), e->request = row.Int(9);
        events_.push_back(*e);
      });
  context_.ForRows(
      "MPI_COLLECTIVES_EVENTS",
      {"globalTid", "start", "end", "textId", "commHandle", "commUid", "rootRank", "size", "recvSize", "requestHandle"},
      [&](const Rows& row) {
        std::optional<MpiEvent> e = event(row, true);
        if (!e) return;
        e->communicator = row.Int(4), e->communicator_uid = row.Int(5), e->peer = row.Int(6);
        e->bytes = row.Int(7), e->received_bytes = row.Int(8), e->request = row.Int(9);
        events_.push_back(*e);
      });
  context_.ForRows("MPI_START_WAIT_EVENTS", {"globalTid", "start", "end", "textId", "requestHandle"},
                   [&](const Rows& row) {
                     std::optional<MpiEvent> e = event(row, true);
                     if (!e) return;
                     e->request = row.Int(4);
                     events_.push_back(*e);
                   });
  context_.ForRows("MPI_OTHER_EVENTS", {"globalTid", "start", "end", "textId"}, [&](const Rows& row) {
    if (const std::optional<MpiEvent> e = event(row, true)) events_.push_back(*e);
  });
}

// Reads the arguments of the creating calls. Handles are this process's own; a number given to all members identifies
// communicators, and where there is none, the root's number together with the root does.
void MpiCalls::ReadCommunicators(std::int32_t rank) {
  Rows rows = context_.report().database().Select(
      "MPI_COMMUNICATORS",
      {"rank", "commHandle", "size", "localRank", "groupRoot", "groupRootUid", "commUid", "parentHandle"});
  while (rows.Next()) {
    if (rows.Int(0) != kAbsent && rank >= 0 && rows.Int(0) != rank) continue;
    if (rows.Int(1) == kAbsent) continue;
    Communicator& one = communicators_[rows.Int(1)];
    one.size = std::max(one.size, ingest::ToldSize(rows.Int(2)));
    if (rows.Int(3) >= 0) one.local_rank = ingest::ToldRank(rows.Int(3));
    Hash64 hash;
    if (rows.Int(6) != kAbsent && rows.Int(6) != 0) {
      hash.Add(std::string_view("mpi communicator"));
      hash.Add(static_cast<std::uint64_t>(rows.Int(6)));
      one.id = hash.value();
    } else if (rows.Int(4) >= 0 && rows.Int(5) != kAbsent) {
      hash.Add(std::string_view("mpi communicator of a root"));
      hash.Add(static_cast<std::uint64_t>(rows.Int(4)));
      hash.Add(static_cast<std::uint64_t>(rows.Int(5)));
      one.id = hash.value();
    }
    if (rows.Int(7) == 0 || rows.Int(7) == kAbsent) one.world = one.local_rank >= 0 && one.local_rank == rank;
  }
}

// The communicator of an operation. Handles of several processes cannot be compared: without other information the
// first one that a process uses is taken for MPI_COMM_WORLD, and others are not matched.
std::uint32_t MpiCalls::CommRow(const MpiEvent& event, std::vector<ingest::RankGroup>& groups,
                                std::int64_t world_size) {
  const bool by_uid = event.communicator_uid != kAbsent && event.communicator_uid != 0;
  const std::pair<int, std::int64_t> key =
      by_uid ? std::pair(1, event.communicator_uid) : std::pair(0, event.communicator);
  const auto at = rows_.find(key);
  if (at != rows_.end()) return at->second;
  const auto known = communicators_.find(event.communicator);
  ingest::RankGroup entry;
  entry.kind = schema::CommKind::kIntra;
  if (by_uid) {
    Hash64 hash;
    hash.Add(std::string_view("mpi communicator"));
    hash.Add(static_cast<std::uint64_t>(event.communicator_uid));
    entry.id = hash.value();
  } else if (known != communicators_.end()) {
    entry.id = known->second.id;
  }
  std::string name = "communicator " + std::to_string(rows_.size());
  if (known != communicators_.end()) {
    entry.group.size = static_cast<std::uint32_t>(known->second.size);
    entry.rank = static_cast<std::int32_t>(known->second.local_rank);
  }
  const bool whole = known != communicators_.end() && known->second.size > 0 && known->second.size == world_size;
  if (entry.id == 0 && !world_guessed_ && (known == communicators_.end() || whole)) {
    world_guessed_ = true;
    entry.guessed = true;
    entry.all_ranks = true;
    entry.stream = kNone;  // Not a stream of a GPU: kept apart from NCCL's guesses.
    ingest::SetWorld(entry.group, world_size);
    name = "MPI_COMM_WORLD (guessed)";
  } else if (whole) {
    // A communicator of all ranks: its ranks are taken for the ranks of the job as long as there is no other
    // information.
    if (known->second.world) ingest::SetWorld(entry.group, world_size), name = "MPI_COMM_WORLD";
  }
  const auto row = static_cast<std::uint32_t>(t_.comms.rows());
  schema::Comms::Row comm = ingest::CommOf(entry, row, entry.rank);
  comm.name = context_.Intern(name);
  t_.comms.Append(comm);
  groups.push_back(std::move(entry));
  rows_.emplace(key, row);
  return row;
}

void MpiCalls::Collective(const MpiEvent& event, const MpiOpInfo& info, std::uint32_t comm, std::uint32_t call,
                          std::uint32_t members) {
  const bool blocking = info.cls == MpiClass::kCollective;
  const std::int64_t end = event.span.open ? kNoTime : event.span.begin_ns + event.span.duration_ns;
  if (comm >= seq_.size()) seq_.resize(comm + 1, 0);
  const bool uneven =
      info.kind == CollectiveKind::kAllToAll && info.op != MpiOp::kAlltoall && info.op != MpiOp::kIalltoall;
  t_.collectives.Append(
      {.comm = comm,
       .seq = seq_[comm]++,
       .kind = static_cast<std::uint8_t>(info.kind),
       .mode = static_cast<std::uint8_t>(blocking ? CollectiveMode::kBlocking : CollectiveMode::kNonBlocking),
       .uneven = uneven,
       .thread = event.thread,
       .begin_ns = event.span.begin_ns,
       .post_end_ns = event.span.begin_ns + event.span.duration_ns,
       .last_incomplete_ns = kNoTime,
       .wait_begin_ns = blocking ? event.span.begin_ns : kNoTime,
       .end_ns = blocking ? end : kNoTime,
       .bytes = WholeBytes(info.kind, event, members),
       .root = Small(event.peer),
       .call = call,
       .kernel = kNone,
       .enqueue_begin_ns = kNoTime,
       .algorithm = kNone,
       .protocol = kNone});
}

// A call that had the request among its arguments. Waits and tests for several requests list all of them, so only the
// last one before the handle is reused is known to have completed it; the earlier ones did not.
void MpiCalls::Complete(const MpiEvent& event, const Post& post, bool last) {
  const std::int64_t end = event.span.begin_ns + event.span.duration_ns;
  const auto set = [&](auto& table) {
    if (!last) {
      table.last_incomplete_ns[post.row] = end;
      return;
    }
    table.wait_begin_ns[post.row] = event.span.begin_ns;
    table.end_ns[post.row] = event.span.open ? kNoTime : end;
    if constexpr (requires { table.outcome; }) table.outcome[post.row] = event.span.open ? 3 : 0;
  };
  if (post.collective)
    set(t_.collectives);
  else
    set(t_.p2p);
}

// The request is completed by the last call that waited for it or tested it.
void MpiCalls::Settle(std::int64_t request) {
  const auto post = open_.find(request);
  if (post == open_.end()) return;
  if (const auto last = last_asked_.find(request); last != last_asked_.end())
    Complete(last->second, post->second, true);
  else
    ++facts_.without_completion;
  open_.erase(post);
  last_asked_.erase(request);
}

void MpiCalls::Open(const MpiEvent& event, const Post& post) {
  if (event.request != kAbsent)
    open_[event.request] = post;
  else
    ++facts_.without_completion;
}

// Adds a row of mpi_calls, which becomes last_call_.
void MpiCalls::Call(const MpiEvent& event, const MpiOpInfo& info, std::uint32_t comm, std::uint64_t bytes,
                    bool of_request) {
  // A call with several requests has a row for each in the report, but is one call.
  if (of_request && last_call_ != kNone && t_.mpi_calls.begin_ns[last_call_] == event.span.begin_ns &&
      t_.mpi_calls.thread[last_call_] == event.thread &&
      t_.mpi_calls.op[last_call_] == static_cast<std::uint16_t>(info.op)) {
    ++t_.mpi_calls.bytes[last_call_];
    return;
  }
  t_.mpi_calls.Append({.begin_ns = event.span.begin_ns,
                       .duration_ns = event.span.duration_ns,
                       .thread = event.thread,
                       .op = static_cast<std::uint16_t>(info.op),
                       .comm = comm,
                       .bytes = bytes,
                       .peer = Small(event.peer),
                       .tag = Small(event.tag),
                       .count = 1});
  facts_.open_calls.push_back(event.span.open);
  last_call_ = static_cast<std::uint32_t>(t_.mpi_calls.rows() - 1);
}

void MpiCalls::Message(const MpiEvent& event, MpiClass cls, std::uint32_t comm, const ingest::RankGroup& group) {
  // For MPI_Sendrecv the report names one partner, and not which of the two it is; versions without tables name none.
  // The time counts as a message's all the same.
  const bool both = cls == MpiClass::kSendRecv || cls == MpiClass::kSendRecvPost;
  const bool partner = !both && (event.communicator != kAbsent || event.communicator_uid != kAbsent);
  facts_.without_partner += !partner;
  const bool receive = cls == MpiClass::kRecv || cls == MpiClass::kRecvPost;
  const bool blocking = !IsPost(cls), ended = blocking && !event.span.open;
  const std::int64_t end = event.span.begin_ns + event.span.duration_ns;
  const std::int32_t peer = partner ? Small(event.peer) : -1;
  if (!blocking && event.request != kAbsent) Settle(event.request);
  t_.p2p.Append({.comm = comm,
                 .direction = static_cast<std::uint8_t>(receive ? 1 : 0),
                 .mode = static_cast<std::uint8_t>(blocking ? 0 : 1),
                 .peer = peer,
                 .peer_world_rank = static_cast<std::int32_t>(group.group.WorldRank(peer)),
                 .tag = Small(event.tag),
                 .seq = messages_[{comm, receive ? 1 : 0, peer, Small(event.tag)}]++,
                 .thread = event.thread,
                 .begin_ns = event.span.begin_ns,
                 .post_end_ns = end,
                 .last_incomplete_ns = kNoTime,
                 .wait_begin_ns = blocking ? event.span.begin_ns : kNoTime,
                 .end_ns = ended ? end : kNoTime,
                 .bytes = Positive(event.bytes),
                 .outcome = static_cast<std::uint8_t>(ended ? 0 : 3),
                 .call = last_call_,
                 .kernel = kNone});
  if (!blocking) Open(event, {false, t_.p2p.rows() - 1});
}

MpiCalls::Facts MpiCalls::Emit(std::int32_t rank, std::int64_t world_size, std::vector<ingest::RankGroup>& groups) {
  if (events_.empty()) return {};
  ReadCommunicators(rank);
  std::stable_sort(events_.begin(), events_.end(), [](const MpiEvent& a, const MpiEvent& b) {
    return std::tuple(a.span.begin_ns, a.thread) < std::tuple(b.span.begin_ns, b.thread);
  });
  for (const MpiEvent& event : events_) {
    const MpiOpInfo* info = FindCall(lockstep::trace::TextOf(t_, event.name));
    if (info == nullptr) {
      ++facts_.unknown_calls;
      continue;
    }
    const MpiClass cls = info->cls;
    if (cls == MpiClass::kCollective || cls == MpiClass::kCollectivePost) {
      const std::uint32_t comm = CommRow(event, groups, world_size);
      const std::uint32_t members = groups[comm].group.size;
      facts_.without_communicator += groups[comm].guessed || t_.comms.unidentified[comm];
      Call(event, *info, comm, WholeBytes(info->kind, event, members), false);
      if (IsPost(cls) && event.request != kAbsent) Settle(event.request);
      Collective(event, *info, comm, last_call_, members);
      if (IsPost(cls)) Open(event, {true, t_.collectives.rows() - 1});
    } else if (IsPost(cls) || cls == MpiClass::kSend || cls == MpiClass::kRecv || cls == MpiClass::kSendRecv) {
      const std::uint32_t comm = CommRow(event, groups, world_size);
      Call(event, *info, comm, Positive(event.bytes), false);
      Message(event, cls, comm, groups[comm]);
    } else if ((cls == MpiClass::kWait || cls == MpiClass::kTest) && event.request != kAbsent) {
      Call(event, *info, kNone, 1, true);
      if (!open_.contains(event.request)) continue;
      if (const auto before = last_asked_.find(event.request); before != last_asked_.end())
        Complete(before->second, open_.at(event.request), false);
      last_asked_[event.request] = event;
    } else {
      Call(event, *info, kNone, Positive(event.bytes), false);
    }
  }
  while (!open_.empty()) Settle(open_.begin()->first);
  return std::move(facts_);
}

}  // namespace lockstep::nsys
