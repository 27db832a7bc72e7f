#include "merge/timeline/charges.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/uneven.h"

namespace lockstep::test {
namespace {

// One collective of ranks 0, 1, ... that came at these times and wait for the last.
struct Instance {
  explicit Instance(std::vector<std::int64_t> arrivals, std::int64_t error_ns = 0) {
    const std::int64_t last = *std::max_element(arrivals.begin(), arrivals.end());
    const auto n = static_cast<std::uint32_t>(arrivals.size());
    tables.collectives.Append({.expected = n, .seen = n, .error_ns = error_ns});
    for (std::uint32_t i = 0; i < n; ++i)
      tables.collective_ranks.Append({.collective = 0,
                                      .rank = static_cast<std::int32_t>(i),
                                      .arrival_ns = arrivals[i],
                                      .end_high_ns = last + 10,
                                      .wait_ns = last - arrivals[i]});
  }
  void Make() {
    timeline = merge::MakeTimeline("", tables);
    charges.emplace(timeline, 1);
  }
  std::map<std::int32_t, double> Of(std::size_t member) const {
    std::map<std::int32_t, double> found;
    charges->EachOf(member, [&](std::int32_t rank, double ns) { found[rank] += ns; });
    return found;
  }
  std::map<std::int32_t, double> OfAll() const {
    std::map<std::int32_t, double> found;
    charges->EachOfAll(0, [&](std::int32_t rank, double ns) { found[rank] += ns; });
    return found;
  }

  schema::TimelineTables tables;
  merge::Timeline timeline;
  std::optional<merge::Charges> charges;
};
using Shares = std::map<std::int32_t, double>;

TEST(Charges, EachStretchIsSharedByWhoHadNotArrived) {
  Instance one({0, 100, 300});
  one.Make();
  EXPECT_EQ(one.Of(0), (Shares{{1, 50}, {2, 250}}));
  EXPECT_EQ(one.Of(1), (Shares{{2, 200}}));
  EXPECT_EQ(one.Of(2), Shares());
  EXPECT_EQ(one.OfAll(), (Shares{{1, 50}, {2, 450}}));
  EXPECT_EQ(one.charges->Of(0, 1), 50);
  EXPECT_EQ(one.charges->Of(1, 0), 0);
}

TEST(Charges, BelowTheClocksErrorNobodyIs) {
  Instance one({0, 100, 130}, 20);  // Two ranks' times are told apart from 40 ns on.
  one.Make();
  EXPECT_EQ(one.Of(0), (Shares{{1, 50}, {2, 80}}));
  EXPECT_EQ(one.Of(1), (Shares{{merge::kClocks, 30}}));
}

TEST(Charges, OfARootEverybodyIsWaitedForByNobodyElse) {
  Instance one({0, 50, 200});
  for (const std::size_t m : {std::size_t{0}, std::size_t{1}}) one.tables.collective_ranks.exempt[m] = kAwaitedByNobody;
  one.Make();
  EXPECT_EQ(one.Of(0), (Shares{{2, 200}}));
  EXPECT_EQ(one.Of(1), (Shares{{2, 150}}));
}

TEST(Charges, WhoLeavesWhenOneCameWaitedForThatOne) {
  Instance one({0, 50, 200});
  one.tables.collective_ranks.wait_ns[0] = 50;
  one.Make();
  EXPECT_EQ(one.Of(0), (Shares{{1, 50}}));
  EXPECT_EQ(one.charges->Of(0, 1), 50);
  EXPECT_EQ(one.charges->Of(0, 2), 0);
  EXPECT_EQ(one.OfAll(), (Shares{{1, 50}, {2, 150}}));
}

TEST(Charges, MembersWithoutAFileMayHaveComeLater) {
  Instance one({0, 50});
  one.tables.collectives.expected[0] = 3;
  one.Make();
  EXPECT_EQ(one.Of(0), (Shares{{merge::kNotRecorded, 50}}));
  EXPECT_EQ(one.OfAll(), (Shares{{merge::kNotRecorded, 50}}));
}

// Every nanosecond on its own.
TEST(Charges, SumToTheWaitingOfRandomCollectives) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::int64_t> arrivals(2 + random() % 7);
    for (std::int64_t& arrival : arrivals) arrival = static_cast<std::int64_t>(random() % 60);
    Instance one(arrivals, static_cast<std::int64_t>(random() % 8));
    auto& members = one.tables.collective_ranks;
    for (std::size_t m = 0; m < arrivals.size(); ++m) {
      if (random() % 4 == 0) members.exempt[m] = kAwaitedByNobody;
      // A clock's error may cut a wait short.
      if (random() % 8 == 0 && members.wait_ns[m] > 0) {
        members.wait_ns[m] /= 2;
        members.end_high_ns[m] = arrivals[m] + members.wait_ns[m];
      }
    }
    one.Make();
    const std::int64_t resolution = 2 * one.tables.collectives.error_ns[0];
    Shares all;
    for (std::size_t m = 0; m < arrivals.size(); ++m) {
      Shares expected;
      bool any = false;
      for (std::int64_t t = arrivals[m]; t < arrivals[m] + members.wait_ns[m]; ++t) {
        std::vector<std::size_t> missing;
        for (std::size_t k = 0; k < arrivals.size(); ++k)
          if (arrivals[k] > t && (members.exempt[k] & kAwaitedByNobody) == 0) missing.push_back(k);
        for (const std::size_t k : missing)
          expected[arrivals[k] - arrivals[m] > resolution ? static_cast<std::int32_t>(k) : merge::kClocks] +=
              1.0 / static_cast<double>(missing.size());
        any |= !missing.empty();
        if (missing.empty()) expected[merge::kClocks] += 1;
      }
      if (!any && members.wait_ns[m] > 0) expected = {{merge::kNobodyKnown, static_cast<double>(members.wait_ns[m])}};
      // Who left early when somebody came waited for that one: an instance of its own above.
      const Shares found = one.Of(m);
      double sum = 0;
      for (const auto& [rank, ns] : found) sum += ns, all[rank] += ns;
      EXPECT_NEAR(sum, static_cast<double>(members.wait_ns[m]), 1e-6) << "round " << round;
      for (const auto& [rank, ns] : expected)
        EXPECT_NEAR(found.contains(rank) ? found.at(rank) : 0, ns, 1e-6) << "round " << round << " rank " << rank;
      for (const auto& [rank, ns] : found)
        if (rank >= 0) EXPECT_NEAR(one.charges->Of(m, static_cast<std::size_t>(rank)), ns, 1e-9);
    }
    const Shares together = one.OfAll();
    for (const auto& [rank, ns] : all)
      EXPECT_NEAR(together.contains(rank) ? together.at(rank) : 0, ns, 1e-6) << "round " << round << " rank " << rank;
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::test
