// Which process of a slot is which rank: every source by itself, and every two of them that contradict each other.

#include "trace/decode/identity.h"

#include <gtest/gtest.h>

namespace lockstep::trace {
namespace {

using Meta = std::map<std::string, std::string>;
const Meta kAlone = {{"rank", "0"}, {"world_size", "1"}, {"rank_source", "slot"}, {"rank_variable", ""}};
Meta Told(int rank, int size) {
  return {{"rank", std::to_string(rank)},
          {"world_size", std::to_string(size)},
          {"rank_source", "env"},
          {"rank_variable", std::to_string(rank)}};
}

ProcessState Plain() { return {}; }
ProcessState Group(int rank, int size, std::uint64_t begin, std::uint64_t end, std::uint64_t at = 0) {
  ProcessState state;
  state.joined_rank = rank, state.joined_size = size;
  state.joined_begin_ticks = begin, state.joined_end_ticks = end, state.joined_at = at;
  return state;
}
ProcessState Rank(std::uint8_t source, int rank, int size, std::uint64_t begin = 1) {
  ProcessState state;
  state.rank_source = source, state.world_rank = rank, state.world_size = size, state.begin_ticks = begin;
  return state;
}
ProcessState Mpi(int rank, int size) { return Rank(1, rank, size); }
ProcessState Env(int rank, int size, std::uint64_t begin = 1) { return Rank(2, rank, size, begin); }
ProcessState Both(ProcessState a, const ProcessState& group) {
  a.joined_rank = group.joined_rank, a.joined_size = group.joined_size;
  a.joined_begin_ticks = group.joined_begin_ticks, a.joined_end_ticks = group.joined_end_ticks;
  return a;
}

std::vector<ProcessIdentity> Identify(const std::vector<ProcessState>& states, const Meta& meta) {
  std::vector<const ProcessState*> pointers;
  for (const ProcessState& state : states) pointers.push_back(&state);
  return IdentifyProcesses(pointers, meta);
}

// "0/2 group, -": a rank of a world and by what, - no rank, old one of an earlier world.
std::string Text(const std::vector<ProcessState>& states, const Meta& meta) {
  std::string text;
  for (const ProcessIdentity& who : Identify(states, meta)) {
    text += text.empty() ? "" : ", ";
    if (who.rank < 0)
      text += who.earlier ? "old" : "-";
    else
      text += std::to_string(who.rank) + "/" + std::to_string(who.world_size) + " " + std::string(NameOf(who.proof));
  }
  return text;
}

TEST(Identity, WithoutAWordOfItsOwnAProcessIsItsSlot) {
  EXPECT_EQ(Text({}, kAlone), "");
  EXPECT_EQ(Text({Plain()}, kAlone), "0/1 slot");
  EXPECT_EQ(Text({Plain(), Plain()}, Told(3, 8)), "3/8 slot, 3/8 slot");
  EXPECT_EQ(Text({Env(3, 8)}, Told(3, 8)), "3/8 slot") << "the agent's own variable says nothing new";
}

TEST(Identity, AWorldOfOneSpeaksForNothing) {
  EXPECT_EQ(Text({Mpi(0, 1)}, Told(3, 8)), "3/8 slot");
  EXPECT_EQ(Text({Group(0, 1, 5, 6)}, Told(3, 8)), "3/8 slot");
  EXPECT_EQ(Text({Both(Mpi(0, 1), Group(2, 4, 5, 6))}, kAlone), "2/4 group");
}

TEST(Identity, ProcessesOfOneAgentAreRanksAndItsOthersAreHelpers) {
  EXPECT_EQ(Text({Plain(), Group(1, 2, 5, 9), Group(0, 2, 6, 9), Plain()}, kAlone), "-, 1/2 group, 0/2 group, -");
  EXPECT_EQ(Text({Plain(), Env(0, 2), Env(1, 2), Env(1, 2, 3)}, kAlone), "-, 0/2 env, 1/2 env, -");
  EXPECT_EQ(Text({Plain(), Mpi(1, 2), Mpi(0, 2)}, kAlone), "-, 1/2 mpi, 0/2 mpi");
}

TEST(Identity, WhatCommunicationUsesWins) {
  EXPECT_EQ(Text({Both(Env(3, 8), Group(0, 2, 5, 6))}, Told(3, 8)), "0/2 group");
  EXPECT_EQ(Text({Both(Mpi(1, 2), Group(0, 2, 5, 6))}, Told(0, 2)), "1/2 mpi");
  const auto who = Identify({Both(Env(3, 8), Group(0, 2, 5, 6))}, Told(3, 8));
  EXPECT_EQ(who[0].instead_of, "rank 3 of 8 by RANK and WORLD_SIZE of its environment");
  EXPECT_EQ(Identify({Group(0, 2, 5, 6)}, Told(1, 2))[0].instead_of, "rank 1 of 2 by what launched it");
  EXPECT_EQ(Identify({Group(1, 2, 5, 6)}, Told(1, 2))[0].instead_of, "");
}

TEST(Identity, OfWorldsOneAfterTheOtherTheLastCounts) {
  // A restart, the second time with fewer ranks: none of the first is mixed in.
  EXPECT_EQ(
      Text({Group(0, 3, 1, 4), Group(1, 3, 2, 4), Group(2, 3, 3, 4), Group(1, 2, 8, 9), Group(0, 2, 7, 9)}, kAlone),
      "old, old, old, 1/2 group, 0/2 group");
  // The same size: times of asking tell them apart.
  EXPECT_EQ(Text({Group(0, 2, 1, 4), Group(1, 2, 2, 4), Group(0, 2, 7, 9), Group(1, 2, 8, 9)}, kAlone),
            "old, old, 0/2 group, 1/2 group");
}

TEST(Identity, WorldsAtOnceAreToldApartByTheirPlace) {
  const auto who = Identify(
      {Group(0, 2, 1, 9, 100), Group(0, 2, 2, 9, 200), Group(1, 2, 3, 9, 100), Group(1, 2, 4, 9, 200)}, kAlone);
  EXPECT_EQ(who[0].earlier, who[2].earlier);
  EXPECT_EQ(who[1].earlier, who[3].earlier);
  EXPECT_NE(who[0].earlier, who[1].earlier);
}

TEST(Identity, AWorkerThatEndedBeforeItJoinedKeepsItsVariables) {
  EXPECT_EQ(
      Text({Both(Env(0, 3), Group(0, 3, 5, 9)), Env(1, 3), Both(Env(2, 3), Group(2, 3, 5, 9)), Env(2, 3, 4)}, kAlone),
      "0/3 group, 1/3 env, 2/3 group, -");
}

}  // namespace
}  // namespace lockstep::trace
