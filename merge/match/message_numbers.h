#pragma once
// Messages of ranks that recorded in parts. Each rank numbers the messages that it recorded, so that windows that began
// at different messages give one message two numbers. Here receives get the numbers of their sends.

#include <cstdint>
#include <vector>

#include "core/schema.h"
#include "merge/match/collectives.h"

namespace lockstep::merge {

// Of receives of which no send was recorded.
inline constexpr std::uint64_t kUnrecordedSend = UINT64_MAX;

// One rank's sends or receives of one communicator, partner and tag, in the order of their numbers.
struct MessagesOfChannel {
  const MatchRank& rank;
  const std::vector<std::uint32_t>& rows;  // Of its p2p.
};

// Consecutive receives, and the number of the first one's send.
struct NumberedReceives {
  std::uint64_t first, count, send;
};

// Empty: the numbers are right as they are. Otherwise all receives that are in none of them have no recorded send.
//
// Of the numbers that let no receive end before its send began, those are taken that make the sends latest: a channel
// in which nothing is under way at some time has no others. They are left as they are where that cannot be told: with
// windows that begin with the same step, and where the channel was empty less than twice. If both ranks recorded to
// their ends, the last receive belongs to the last send.
std::vector<NumberedReceives> NumberReceives(const MessagesOfChannel& sends, const MessagesOfChannel& receives);

// The number of the send of the receive with this number.
std::uint64_t SendOf(const std::vector<NumberedReceives>& numbered, std::uint64_t receive);

// Gives the rank's receives their sends' numbers, which are the timeline's.
void ApplyMessageNumbers(const schema::TlMessageNumbers& numbers, std::int32_t rank, schema::RankTables& tables);

}  // namespace lockstep::merge
