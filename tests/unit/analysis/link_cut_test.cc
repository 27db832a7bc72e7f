// A network that is cut for seconds is named, with its time and the hosts that it can be; long work is not.

#include <gtest/gtest.h>

#include <regex>
#include <string>

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

TEST(LinkCut, OfOneHostThereIsNone) {
  JobSpec spec = FourHosts(true, Moves::kAtOnce);
  spec.ranks_per_node = 64;
  spec.more_transfer_ns = [](int step, int) { return step == 42 ? 5 * kSecond : 0; };
  EXPECT_EQ(CutIn(Analyzed(Simulate(spec))), nullptr);
}

}  // namespace
}  // namespace lockstep::test
