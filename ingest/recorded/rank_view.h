#pragma once
// What one rank's tables say about where it was at its last sign of life: its calls per communicator, its messages, its
// process. Times are nanoseconds since the epoch, so that those of several ranks can be compared.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "hang/progress.h"
#include "ingest/rank_files/host_names.h"
#include "ingest/recorded/progress.h"

namespace lockstep::recorded {

// One communicator, as this rank knows it.
struct CommView {
  std::uint64_t global_id = 0;
  std::string name;
  std::vector<std::int32_t> members;   // World ranks by rank in it; empty: not known.
  bool made = false;                   // Of another communicator; the world is not.
  bool is_mpi = true;                  // Else one of PyTorch's groups.
  bool moves_in_calls = false;         // As hang::Member has it.
  std::int64_t entered = 0;            // Collectives called so far; from 1.
  std::vector<hang::Operation> calls;  // The latest, ascending.
  std::int64_t creations = 0;          // Communicators that it was made into.
  hang::Operation creation;            // That it is inside of; `kind` "" none.
};

// Messages of one communicator between two ranks with one tag.
struct MessageKey {
  std::uint64_t comm = 0;
  std::int32_t from = -1, to = -1;  // World ranks.
  std::int32_t tag = -1;
  std::int64_t partitioned = 0;  // Which partitioned message of these it is, from 1; 0: another kind.
  friend auto operator<=>(const MessageKey&, const MessageKey&) = default;
};

struct OpenMessage {
  MessageKey key;  // A receive: from -1 from anybody, tag -1 with any tag.
  bool sends = false;
  std::int64_t number = 0;  // Of the key, from 1; 0: not known.
  hang::Operation call;
  bool one_of_many = false;  // Waited for together with others, each of which may have ended.
};

struct RankView {
  hang::RankFacts facts;
  bool inside_finalize = false, left_mpi = false;
  std::int64_t finalize_ns = hang::kNotKnown;
  std::int64_t ended_ns = hang::kNotKnown;  // kNotKnown: it is not known to have ended.
  bool ended_by_signal = false;
  std::int32_t end_code = 0;
  // Every call since its begin was recorded and nothing is lost: what is not here did not happen.
  bool whole = false;
  bool moves_messages = false;  // One of its threads is inside an MPI call that hands on what the rank has sent.
  bool recorded_to_the_end = false;
  std::map<std::uint64_t, CommView> comms;  // By global_id; unidentified ones are not here.
  struct Sent {
    std::int64_t sends = 0, receives = 0;  // Begun so far.
  };
  std::map<MessageKey, Sent> messages;
  std::vector<OpenMessage> open;
  std::vector<hang::Operation> elsewhere;  // Calls in which it waits for somebody who is not known.
  std::vector<std::string> damaged;
};

// `hosts`: of all ranks, which says what facts.host is.
RankView ViewOf(const RecordedRank& rank, const ingest::HostNames& hosts);

}  // namespace lockstep::recorded
