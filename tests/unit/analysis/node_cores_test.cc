#include "merge/timeline/node_cores.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::test {
namespace {

TEST(CoresOfNodes, AreCountedOncePerNodeAndUnknownWithoutMasks) {
  JobSpec spec;
  spec.ranks_per_node = 2;
  Job job = Simulate(spec);
  schema::TimelineTables& t = job.timeline.tables;
  const auto with = [&](const std::vector<std::string>& masks) {
    for (std::size_t i = 0; i < masks.size(); ++i)
      t.ranks.allowed_cpus[i] = masks[i].empty() ? schema::kNone : Intern(t, masks[i]);
    return merge::LeastCoresOfRank(job.timeline);
  };
  EXPECT_EQ(with({"0-3", "0-3", "0-7", "4,6"}), 2);
  EXPECT_EQ(with({"0", "1", "0-63", "0-63"}), 1) << "bound to a core each";
  EXPECT_EQ(with({"0", "0", "0-63", "0-63"}), 0.5);
  EXPECT_EQ(with({"0-3", "0-3", "0-7", ""}), 0);
  const auto nodes = merge::CoresOfNodes(job.timeline);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes.at("node0").cores, 4u);
  EXPECT_TRUE(nodes.at("node0").known);
  EXPECT_EQ(nodes.at("node1").ranks, 2);
  EXPECT_EQ(nodes.at("node1").cores, spec.allowed_cores);
  EXPECT_FALSE(nodes.at("node1").known);
}

}  // namespace
}  // namespace lockstep::test
