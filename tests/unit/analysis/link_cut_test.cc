// A network that is cut for seconds is named, with its time and the hosts that it can be; long work is not.

#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "core/interval.h"
#include "core/schema_enums.h"
#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

const analysis::Finding* CutIn(const analysis::Analysis& analysis) {
  for (const analysis::Finding& finding : analysis.findings)
    if (finding.id == analysis::FindingId::kLinkCut) return &finding;
  return nullptr;
}

JobSpec FourHosts(bool blocking, Moves moves) {
  JobSpec spec;
  spec.ranks = 8;
  spec.ranks_per_node = 2;
  spec.blocking = blocking;
  spec.moves = moves;
  return spec;
}

struct Way {
  bool blocking;
  Moves moves;
};
class LinkCut : public testing::TestWithParam<Way> {
 protected:
  JobSpec Spec() const { return FourHosts(GetParam().blocking, GetParam().moves); }
};

analysis::Analysis Analyzed(const Job& job) { return job.Analyze(false); }

TEST_P(LinkCut, IsNamedOnceWithItsTime) {
  JobSpec spec = Spec();
  spec.more_transfer_ns = [](int step, int bucket) { return step == 42 && bucket == 2 ? 5 * kSecond : 0; };
  const analysis::Analysis analysis = Analyzed(Simulate(spec));
  const analysis::Finding* cut = CutIn(analysis);
  ASSERT_NE(cut, nullptr) << analysis.verdict;
  EXPECT_EQ(cut, &analysis.findings[0]);
  EXPECT_TRUE(std::regex_search(cut->headline, std::regex("^Nothing moved between hosts for (49|50).. ms in step 42 ")))
      << cut->headline;
  EXPECT_NE(cut->headline.find("node0, node1, node2 or node3"), std::string::npos) << cut->headline;
  EXPECT_TRUE(cut->one_of_hosts);
  EXPECT_EQ(cut->hosts.size(), 4u);
  EXPECT_FALSE(cut->saves_ns_per_step);
  EXPECT_TRUE(analysis.stragglers.empty());
}

// Whoever works long comes late to the call, or waits late for what was posted; and then nothing is cut.
TEST_P(LinkCut, LongWorkIsNone) {
  for (const int who : {-1, 3}) {
    JobSpec spec = Spec();
    spec.compute = [=](int step, int rank) {
      return 40'000'000 + (step % 20 == 7 && (who < 0 || rank == who) ? 5 * kSecond : 0);
    };
    const analysis::Analysis analysis = Analyzed(Simulate(spec));
    EXPECT_EQ(CutIn(analysis), nullptr) << CutIn(analysis)->headline;
    for (const std::string& remark : analysis.remarks) EXPECT_EQ(remark.find("Nothing moved"), std::string::npos);
  }
}

TEST_P(LinkCut, HealthyAndSlowNetworksAreNone) {
  EXPECT_EQ(CutIn(Analyzed(Simulate(Spec()))), nullptr);
  JobSpec slow = Spec();
  slow.transfer_ns = 2 * kSecond;
  EXPECT_EQ(CutIn(Analyzed(Simulate(slow))), nullptr);
  // The first of all makes connections.
  JobSpec first = Spec();
  first.more_transfer_ns = [](int step, int bucket) { return step == 0 && bucket == 0 ? 5 * kSecond : 0; };
  if (first.blocking || first.moves == Moves::kAtOnce) EXPECT_EQ(CutIn(Analyzed(Simulate(first))), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, LinkCut,
                         testing::Values(Way{true, Moves::kAtOnce}, Way{false, Moves::kAtOnce},
                                         Way{false, Moves::kOnlyInWait}));

JobSpec CutInStep42() {
  JobSpec spec = FourHosts(true, Moves::kAtOnce);
  spec.more_transfer_ns = [](int step, int bucket) { return step == 42 && bucket == 2 ? 5 * kSecond : 0; };
  return spec;
}

// Too many hosts to name are counted, whatever the finding's own number.
TEST(LinkCutSummary, CountsManyHosts) {
  JobSpec spec = CutInStep42();
  spec.ranks = 20;
  const analysis::Analysis analysis = Analyzed(Simulate(spec));
  const analysis::Finding* cut = CutIn(analysis);
  ASSERT_NE(cut, nullptr) << analysis.verdict;
  EXPECT_NE(cut->headline.find("one of 10 hosts"), std::string::npos) << cut->headline;
  EXPECT_NE(cut->action.find("one of 10 hosts"), std::string::npos) << cut->action;
}

// When the longest collective begins and ends.
Interval StallOf(const Job& job) {
  const schema::TlCollectives& t = job.timeline.tables.collectives;
  Interval longest{0, 0};
  for (std::size_t c = 0; c < t.rows(); ++c)
    if (t.end_ns[c] - t.last_arrival_ns[c] > longest.end - longest.begin) longest = {t.last_arrival_ns[c], t.end_ns[c]};
  return longest;
}

void AddMessage(Job& job, int from, int to, std::int64_t begin_ns, std::int64_t end_ns) {
  for (const int rank : {from, to}) {
    schema::RankTables& tables = job.ranks[static_cast<std::size_t>(rank)];
    tables.comms.Append({.comm = 7,
                         .global_id = 77,
                         .size = 8,
                         .rank = rank,
                         .first_world_rank = 0,
                         .stride = 1,
                         .name = schema::kNone,
                         .end_ns = schema::kNoTime});
    tables.p2p.Append(
        {.comm = 7,
         .direction = static_cast<std::uint8_t>(rank == from ? schema::Direction::kSend : schema::Direction::kReceive),
         .peer = rank == from ? to : from,
         .peer_world_rank = rank == from ? to : from,
         .tag = 5,
         .seq = 0,
         .begin_ns = begin_ns,
         .post_end_ns = begin_ns,
         .last_incomplete_ns = schema::kNoTime,
         .wait_begin_ns = begin_ns,
         .end_ns = end_ns,
         .bytes = 8,
         .call = schema::kNone,
         .kernel = schema::kNone});
  }
  job.timeline.tables.p2p_pairs.Append(
      {.source_rank = from, .destination_rank = to, .messages = 1, .bytes = 8, .matched = 1});
}

// Threads of two hosts exchanged a message while the others waited.
TEST(LinkCut, WhoExchangedAMessageIsNotNamed) {
  Job job = Simulate(CutInStep42());
  const Interval stall = StallOf(job);
  AddMessage(job, 0, 2, stall.begin + kSecond, stall.begin + 2 * kSecond);
  const analysis::Analysis analysis = Analyzed(job);
  const analysis::Finding* cut = CutIn(analysis);
  ASSERT_NE(cut, nullptr) << analysis.verdict;
  EXPECT_EQ(cut->hosts, (std::vector<std::string>{"node2", "node3"}));
  EXPECT_NE(cut->headline.find("the network of node2 or node3 was cut"), std::string::npos) << cut->headline;
  EXPECT_TRUE(cut->headline.starts_with("Collectives of all hosts stood still for ")) << cut->headline;
}

// One that was sent before, or arrived afterwards, or stayed on its host, says nothing of the time between.
TEST(LinkCut, OtherMessagesNarrowNothing) {
  for (const int which : {0, 1, 2}) {
    Job job = Simulate(CutInStep42());
    const Interval stall = StallOf(job);
    AddMessage(job, 0, which == 2 ? 1 : 2, which == 0 ? stall.begin - 1000 : stall.begin + kSecond,
               which == 1 ? stall.end + 1000 : stall.begin + 2 * kSecond);
    const analysis::Analysis analysis = Analyzed(job);
    const analysis::Finding* cut = CutIn(analysis);
    ASSERT_NE(cut, nullptr) << analysis.verdict;
    EXPECT_EQ(cut->hosts.size(), 4u) << which;
    EXPECT_TRUE(cut->headline.starts_with("Nothing moved between hosts for ")) << cut->headline;
  }
}

// The collectives are those of three hosts, and of the fourth nothing is said.
TEST(LinkCut, OnlyThoseThatTookPartAreSpokenOf) {
  Job job = Simulate(CutInStep42());
  schema::TimelineTables tables = std::move(job.timeline.tables);
  const schema::TlCollectiveRanks all = std::move(tables.collective_ranks);
  tables.collective_ranks = {};
  for (std::size_t m = 0; m < all.rows(); ++m)
    if (all.rank[m] < 6) tables.collective_ranks.Append(all.Get(m));
  for (std::size_t c = 0; c < tables.collectives.rows(); ++c)
    tables.collectives.expected[c] = tables.collectives.seen[c] = 6;
  job.timeline = merge::MakeTimeline("run", std::move(tables));
  const analysis::Analysis analysis = Analyzed(job);
  const analysis::Finding* cut = CutIn(analysis);
  ASSERT_NE(cut, nullptr) << analysis.verdict;
  EXPECT_EQ(cut->hosts, (std::vector<std::string>{"node0", "node1", "node2"}));
  EXPECT_TRUE(cut->headline.starts_with("Nothing moved between node0, node1 and node2 for ")) << cut->headline;
}

TEST(LinkCut, OfOneHostThereIsNone) {
  JobSpec spec = FourHosts(true, Moves::kAtOnce);
  spec.ranks_per_node = 64;
  spec.more_transfer_ns = [](int step, int) { return step == 42 ? 5 * kSecond : 0; };
  EXPECT_EQ(CutIn(Analyzed(Simulate(spec))), nullptr);
}

}  // namespace
}  // namespace lockstep::test
