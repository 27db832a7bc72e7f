#pragma once
// MPI's calls of a report -> mpi_calls, collectives, p2p and their communicators.

#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/mpi_ops.h"
#include "ingest/map/groups.h"
#include "ingest/nsys/map/context.h"

namespace lockstep::nsys {

// One call, from any table. kAbsent: the version does not contain it.
struct MpiEvent {
  Span span;
  std::uint32_t thread = schema::kNone;
  std::uint32_t name = schema::kNone;
  std::int64_t communicator = kAbsent, communicator_uid = kAbsent;
  std::int64_t tag = kAbsent, peer = kAbsent, bytes = kAbsent, received_bytes = kAbsent, request = kAbsent;
};

class MpiCalls {
 public:
  explicit MpiCalls(Context& context) : context_(context), t_(context.tables()) {}

  // Reads the MPI tables. A version without them has ranges, which are passed one by one.
  void ReadTables();
  bool any() const { return !events_.empty(); }
  void Add(const MpiEvent& event) { events_.push_back(event); }

  struct Facts {
    std::uint64_t without_communicator = 0;  // Operations whose communicator was guessed.
    std::uint64_t without_completion = 0;    // Non-blocking ones whose completing call is not known.
    std::uint64_t unknown_calls = 0;         // Names that are not known MPI functions.
    std::vector<std::uint8_t> open_calls;    // Per row of mpi_calls: it never returned.
    std::uint64_t without_partner = 0;       // Point-to-point calls of which only one partner is known (MPI_Sendrecv).
  };
  // Appends rows; communicators come behind those that `groups` has, and are added to it.
  Facts Emit(std::int32_t rank, std::int64_t world_size, std::vector<ingest::RankGroup>& groups);

 private:
  struct Post {
    bool collective;
    std::size_t row;
  };
  void ReadCommunicators(std::int32_t rank);
  std::uint32_t CommRow(const MpiEvent& event, std::vector<ingest::RankGroup>& groups, std::int64_t world_size);
  void Complete(const MpiEvent& event, const Post& post, bool last);
  void Settle(std::int64_t request);
  void Open(const MpiEvent& event, const Post& post);
  void Call(const MpiEvent& event, const MpiOpInfo& info, std::uint32_t comm, std::uint64_t bytes, bool of_request);
  void Message(const MpiEvent& event, MpiClass cls, std::uint32_t comm, const ingest::RankGroup& group);
  void Collective(const MpiEvent& event, const MpiOpInfo& info, std::uint32_t comm, std::uint32_t call,
                  std::uint32_t members);

  struct Communicator {
    std::int64_t size = 0, local_rank = -1;
    std::uint64_t id = 0;  // 0: it cannot be distinguished from handles of other processes.
    bool world = false;
  };

  Context& context_;
  schema::RankTables& t_;
  std::vector<MpiEvent> events_;
  std::map<std::int64_t, Communicator> communicators_;  // By handle.
  std::map<std::pair<int, std::int64_t>, std::uint32_t> rows_;
  std::vector<std::uint64_t> seq_;  // Per row of comms: next collective.
  bool world_guessed_ = false;
  Facts facts_;
  // Messages so far by communicator, direction, peer and tag.
  std::map<std::tuple<std::uint32_t, int, std::int64_t, std::int64_t>, std::uint64_t> messages_;
  std::map<std::int64_t, Post> open_;            // By request handle: not completed yet.
  std::map<std::int64_t, MpiEvent> last_asked_;  // The last wait or test of an open request.
  std::uint32_t last_call_ = schema::kNone;      // Row of mpi_calls.
};

}  // namespace lockstep::nsys
