// Communicator management: each new communicator gets the identity that all its
// members compute alike, without a message (comm_table.cc). The number of a
// creation is taken before the call, whether or not it gives this rank a
// communicator, because every member of the parent counts it.

#include <algorithm>

#include "comms/pmpi/traced.h"
#include "core/hash.h"
#include "core/own_file.h"

namespace lockstep::pmpi {
namespace {

// A call that sets `*created`. The record names the parent. `counts_started`: the record's bytes are the number of
// processes that it started.
template <typename Call>
int Create(MpiOp op, const Origin& origin, MPI_Comm* created, Call&& call, bool counts_started = false) {
  Blocking blocking(op, ring::Recording() ? NumberOf(origin.parent) : kNoComm, origin.nth, Shape{});
  const int result = call();
  const std::uint64_t end = blocking.End();
  const bool good = result == MPI_SUCCESS && created != nullptr;
  if (good) CommCreated(*created, origin);
  Shape shape;
  if (Comm* comm = good && counts_started ? KnownComm(*created) : nullptr)
    shape.bytes = static_cast<std::uint64_t>(comm->remote_size);
  if (ring::Recording()) WriteOperation(op, result, 0, blocking.begin(), end, 0, NumberOf(origin.parent), 0, shape);
  return result;
}

template <typename Call>
int CreateFrom(MpiOp op, MPI_Comm parent, MPI_Comm* created, Call&& call) {
  return Active() ? Create(op, NextCreation(parent), created, call) : call();
}

// Spawn, accept and join: both sides have nothing in common from which an identity could be made.
template <typename Call>
int CreateUnidentified(MpiOp op, MPI_Comm parent, MPI_Comm* created, Call&& call, bool counts_started = false) {
  if (!Active()) return call();
  Origin origin;
  origin.parent = FindComm(parent);
  origin.unidentified = true;
  return Create(op, origin, created, call, counts_started);
}

// Whether the processes that this rank, as the root of a spawn, starts will be without an agent. Only the root's
// command counts.
bool StartsUnrecorded(const char* command, int root, MPI_Comm parent) {
  int rank = -1;
  if (!Active() || Pmpi().Comm_rank(parent, &rank) != MPI_SUCCESS || rank != root || command == nullptr) return false;
  return BaseName(command) != "lockstep";
}

template <typename Call>
int Free(MpiOp op, MPI_Comm* handle, Call&& call) {
  if (!Active()) return call();
  const PmpiTable& mpi = Pmpi();
  Comm* comm = *handle != mpi.comm_world && *handle != mpi.comm_self ? ForgetComm(*handle) : nullptr;
  Blocking blocking(op);
  const int result = call();
  const std::uint64_t end = blocking.End();
  WriteCall(op, result, blocking.begin(), end, comm);
  CommFreed(comm);
  return result;
}

// MPI_Comm_create_group is collective over the group only, so the parent's count
// would differ between members and others: it counts per (parent, group, tag).
Origin GroupCreation(MPI_Comm parent, MPI_Group group, int tag) {
  Origin origin;
  origin.parent = KnownComm(parent);
  Hash64 hash;
  hash.Add(origin.parent != nullptr ? origin.parent->global_id : 0);
  hash.Add(GroupHash(group));
  hash.Add(static_cast<std::uint64_t>(tag));
  origin.key = hash.value();
  origin.nth = NextOfKey(origin.key);
  return origin;
}

// A communicator of groups and a text, made without a parent: creations are counted per group and text. `groups` is a
// hash of the group, or of both of an inter-communicator; `lowest` the lowest rank in them, -1 if one has none that is
// known.
Origin CreationWithoutParent(const char* kind, std::uint64_t groups, std::int32_t lowest, const char* tag) {
  Hash64 hash;
  hash.Add(std::string_view(kind));
  hash.Add(WorldId());
  hash.Add(groups);
  hash.Add(std::string_view(tag != nullptr ? tag : ""));
  Origin origin;
  origin.key = hash.value();
  origin.nth = NextOfKey(origin.key);
  origin.unidentified = lowest < 0 || WorldId() == 0;
  return origin;
}

template <typename Call>
int Duplicate(MpiOp op, MPI_Comm comm, MPI_Comm* created, MPI_Request* request, Call&& call) {
  if (!Active()) return call();
  const Origin origin = NextCreation(comm);
  const std::uint64_t begin = ring::Ticks();
  const int result = call();
  const std::uint64_t end = ring::Ticks();
  // Open MPI (4.1.4) and MPICH (4.0.2) return the handle with the post; the communicator must not be used before
  // completion.
  if (result == MPI_SUCCESS) CommDuplicating(*created, origin);
  return WriteCall(op, result, begin, end, origin.parent, HandleOf(*request));
}

}  // namespace

#define LS_CREATE(name, parent, parameters, arguments)                                                 \
  LS_EXPORT int MPI_##name parameters {                                                                \
    return CreateFrom(MpiOp::k##name, parent, created, [&] { return LS_PMPI_CALL(name, arguments); }); \
  }
#define LS_PMPI_CALL(name, arguments) LS_PMPI_EXPAND(name, LS_STRIP arguments)
#define LS_PMPI_EXPAND(...) LS_PMPI(__VA_ARGS__)
#define LS_STRIP(...) __VA_ARGS__

LS_CREATE(Comm_dup, comm, (MPI_Comm comm, MPI_Comm* created), (comm, created))
LS_CREATE(Comm_dup_with_info, comm, (MPI_Comm comm, MPI_Info info, MPI_Comm* created), (comm, info, created))
LS_CREATE(Comm_split, comm, (MPI_Comm comm, int color, int key, MPI_Comm* created), (comm, color, key, created))
LS_CREATE(Comm_split_type, comm, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* created),
          (comm, type, key, info, created))
LS_CREATE(Comm_create, comm, (MPI_Comm comm, MPI_Group group, MPI_Comm* created), (comm, group, created))
LS_CREATE(Cart_create, comm,
          (MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder, MPI_Comm* created),
          (comm, ndims, dims, periods, reorder, created))
LS_CREATE(Cart_sub, comm, (MPI_Comm comm, const int remain[], MPI_Comm* created), (comm, remain, created))
LS_CREATE(Graph_create, comm,
          (MPI_Comm comm, int nodes, const int index[], const int edges[], int reorder, MPI_Comm* created),
          (comm, nodes, index, edges, reorder, created))
LS_CREATE(Dist_graph_create, comm,
          (MPI_Comm comm, int n, const int sources[], const int degrees[], const int destinations[],
           const int weights[], MPI_Info info, int reorder, MPI_Comm* created),
          (comm, n, sources, degrees, destinations, weights, info, reorder, created))
LS_CREATE(Dist_graph_create_adjacent, comm,
          (MPI_Comm comm, int indegree, const int sources[], const int sourceweights[], int outdegree,
           const int destinations[], const int destweights[], MPI_Info info, int reorder, MPI_Comm* created),
          (comm, indegree, sources, sourceweights, outdegree, destinations, destweights, info, reorder, created))
LS_CREATE(Intercomm_merge, comm, (MPI_Comm comm, int high, MPI_Comm* created), (comm, high, created))

LS_EXPORT int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* created) {
  if (!Active()) return LS_PMPI(Comm_create_group, comm, group, tag, created);
  return Create(MpiOp::kComm_create_group, GroupCreation(comm, group, tag), created,
                [&] { return LS_PMPI(Comm_create_group, comm, group, tag, created); });
}

LS_EXPORT int MPI_Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler errhandler,
                                         MPI_Comm* created) {
  const auto call = [&] { return LS_PMPI(Comm_create_from_group, group, tag, info, errhandler, created); };
  if (!Active()) return call();
  return Create(MpiOp::kComm_create_from_group,
                CreationWithoutParent("from group", GroupHash(group), LowestWorldRank(group), tag), created, call);
}

LS_EXPORT int MPI_Intercomm_create_from_groups(MPI_Group local, int local_leader, MPI_Group remote, int remote_leader,
                                               const char* tag, MPI_Info info, MPI_Errhandler errhandler,
                                               MPI_Comm* created) {
  const auto call = [&] {
    return LS_PMPI(Intercomm_create_from_groups, local, local_leader, remote, remote_leader, tag, info, errhandler,
                   created);
  };
  if (!Active()) return call();
  // Alike on both sides. They have no member in common, so the sum tells them apart.
  const std::uint64_t groups = GroupHash(local) + GroupHash(remote);
  const std::int32_t lowest = std::min(LowestWorldRank(local), LowestWorldRank(remote));
  return Create(MpiOp::kIntercomm_create_from_groups, CreationWithoutParent("from groups", groups, lowest, tag),
                created, call);
}

LS_EXPORT int MPI_Intercomm_create(MPI_Comm local, int local_leader, MPI_Comm bridge, int remote_leader, int tag,
                                   MPI_Comm* created) {
  if (!Active()) return LS_PMPI(Intercomm_create, local, local_leader, bridge, remote_leader, tag, created);
  Blocking blocking(MpiOp::kIntercomm_create);
  const int result = LS_PMPI(Intercomm_create, local, local_leader, bridge, remote_leader, tag, created);
  const std::uint64_t end = blocking.End();
  Comm* parent = KnownComm(local);
  if (result == MPI_SUCCESS) {
    // The other side is known only now. Both groups and the tag are the same on both sides. Of the groups all members
    // count: of those with the same lowest ranks, a rank that is in only some would count other creations than the
    // others. Two groups have no member in common, so the sum tells them apart.
    const PmpiTable& mpi = Pmpi();
    std::int64_t lowest[2] = {-1, -1};
    std::uint64_t groups = 0;
    MPI_Group group{};
    if (mpi.Comm_group(*created, &group) == MPI_SUCCESS) {
      lowest[0] = LowestWorldRank(group);
      groups += GroupHash(group);
      mpi.Group_free(&group);
    }
    if (mpi.Comm_remote_group(*created, &group) == MPI_SUCCESS) {
      lowest[1] = LowestWorldRank(group);
      groups += GroupHash(group);
      mpi.Group_free(&group);
    }
    Hash64 hash;
    hash.Add(std::string_view("intercomm"));
    hash.Add(groups);
    hash.Add(static_cast<std::uint64_t>(tag));
    Origin origin;
    origin.parent = parent;
    origin.key = hash.value();
    origin.nth = NextOfKey(origin.key);
    origin.unidentified = lowest[0] < 0 || lowest[1] < 0;
    CommCreated(*created, origin);
  }
  return WriteCall(MpiOp::kIntercomm_create, result, blocking.begin(), end, parent);
}

LS_EXPORT int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* created, MPI_Request* request) {
  return Duplicate(MpiOp::kComm_idup, comm, created, request,
                   [&] { return LS_PMPI(Comm_idup, comm, created, request); });
}
LS_EXPORT int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* created, MPI_Request* request) {
  return Duplicate(MpiOp::kComm_idup_with_info, comm, created, request,
                   [&] { return LS_PMPI(Comm_idup_with_info, comm, info, created, request); });
}

LS_EXPORT int MPI_Comm_free(MPI_Comm* comm) {
  return Free(MpiOp::kComm_free, comm, [&] { return LS_PMPI(Comm_free, comm); });
}
LS_EXPORT int MPI_Comm_disconnect(MPI_Comm* comm) {
  return Free(MpiOp::kComm_disconnect, comm, [&] { return LS_PMPI(Comm_disconnect, comm); });
}

LS_EXPORT int MPI_Comm_set_name(MPI_Comm comm, const char* name) {
  if (!Active()) return LS_PMPI(Comm_set_name, comm, name);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Comm_set_name, comm, name);
  const std::uint64_t end = ring::Ticks();
  Comm* known = KnownComm(comm);
  if (result == MPI_SUCCESS) CommRenamed(known, name);
  return WriteCall(MpiOp::kComm_set_name, result, begin, end, known);
}

LS_EXPORT int MPI_Comm_set_info(MPI_Comm comm, MPI_Info info) {
  if (!Active()) return LS_PMPI(Comm_set_info, comm, info);
  Comm* known = KnownComm(comm);
  Blocking blocking(MpiOp::kComm_set_info);
  const int result = LS_PMPI(Comm_set_info, comm, info);
  const std::uint64_t end = blocking.End();
  return WriteCall(MpiOp::kComm_set_info, result, blocking.begin(), end, known);
}

LS_EXPORT int MPI_Comm_spawn(const char* command, char* argv[], int maxprocs, MPI_Info info, int root, MPI_Comm comm,
                             MPI_Comm* created, int errcodes[]) {
  return CreateUnidentified(
      MpiOp::kComm_spawn, comm, created,
      [&] { return LS_PMPI(Comm_spawn, command, argv, maxprocs, info, root, comm, created, errcodes); },
      StartsUnrecorded(command, root, comm));
}
LS_EXPORT int MPI_Comm_spawn_multiple(int count, char* commands[], char** argvs[], const int maxprocs[],
                                      const MPI_Info infos[], int root, MPI_Comm comm, MPI_Comm* created,
                                      int errcodes[]) {
  return CreateUnidentified(
      MpiOp::kComm_spawn_multiple, comm, created,
      [&] {
        return LS_PMPI(Comm_spawn_multiple, count, commands, argvs, maxprocs, infos, root, comm, created, errcodes);
      },
      StartsUnrecorded(count > 0 && commands != nullptr ? commands[0] : nullptr, root, comm));
}
LS_EXPORT int MPI_Comm_accept(const char* port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm* created) {
  return CreateUnidentified(MpiOp::kComm_accept, comm, created,
                            [&] { return LS_PMPI(Comm_accept, port, info, root, comm, created); });
}
LS_EXPORT int MPI_Comm_connect(const char* port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm* created) {
  return CreateUnidentified(MpiOp::kComm_connect, comm, created,
                            [&] { return LS_PMPI(Comm_connect, port, info, root, comm, created); });
}
LS_EXPORT int MPI_Comm_join(int fd, MPI_Comm* created) {
  return CreateUnidentified(MpiOp::kComm_join, MPI_Comm{}, created, [&] { return LS_PMPI(Comm_join, fd, created); });
}
LS_EXPORT int MPI_Comm_get_parent(MPI_Comm* parent) {
  if (!Active()) return LS_PMPI(Comm_get_parent, parent);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_PMPI(Comm_get_parent, parent);
  const std::uint64_t end = ring::Ticks();
  if (result == MPI_SUCCESS) KnownComm(*parent);
  return WriteCall(MpiOp::kComm_get_parent, result, begin, end, nullptr);
}

}  // namespace lockstep::pmpi
