#pragma once
// How a client and the server of rank 0's agent prove to each other that they belong to one run.

#include <cstdint>

#include "comms/clock/run_key.h"
#include "comms/clock/socket_util.h"

namespace lockstep::net {

enum class Meeting : std::uint8_t {
  kNobody,    // What answers, if anything does, is no server of this rank.
  kUnproven,  // It says that it is, and does not hold the key.
  kProven,
};

// The client's part, within `limit_ms` per answer. The messages of both sides are left for later proofs. A client tells
// a server without the key nothing but its own rank.
Meeting MeetServer(int socket, const clock::RunKey& key, std::int32_t rank, std::int32_t server_rank, int limit_ms,
                   Hello& hello, Hello& challenge);

}  // namespace lockstep::net
