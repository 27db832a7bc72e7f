// Which settings are tried where, and when a run's results count as changed.

#include "analysis/tune/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "analysis/tune/losses.h"

namespace lockstep::tune {
namespace {

std::set<std::string> Names(const Facts& facts) {
  std::set<std::string> names;
  for (const Candidate& candidate : CandidatesOf(facts, 0.01)) names.emplace(candidate.setting->name);
  return names;
}

Facts Ddp() {
  Facts facts;
  facts.ranks = facts.ranks_per_node = 2;
  facts.nodes = 1;
  facts.cores_per_node = 2;
  facts.torch = true;
  facts.threads = 1;
  facts.ddp = Facts::Ddp{.bytes = 80 << 20};
  facts.step_ns = 1e8;
  return facts;
}

TEST(Settings, AreWellFormed) {
  std::set<std::string_view> names;
  for (const Setting& setting : Settings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_NE(setting.permanent.find("{}"), std::string_view::npos) << setting.name;
    EXPECT_EQ(setting.variables.empty(), setting.reach == Reach::kTorch) << setting.name;
    if (setting.reach != Reach::kTorch) {
      EXPECT_NE(setting.variables.find("{}"), std::string_view::npos) << setting.name;
    }
    EXPECT_EQ(FindSetting(setting.name), &setting);
  }
  EXPECT_EQ(FindSetting("ddp.x"), nullptr);
  EXPECT_EQ(WithValue("a={},b={}", "5"), "a=5,b=5");
}

TEST(Settings, NothingIsKnownNothingIsTried) { EXPECT_TRUE(CandidatesOf({}, 0.01).empty()); }

TEST(Settings, OfDdp) {
  Facts facts = Ddp();
  EXPECT_EQ(Names(facts), (std::set<std::string>{"ddp.bucket_cap_mb", "ddp.first_bucket_mb",
                                                 "ddp.gradient_as_bucket_view", "ddp.static_graph", "threads.omp"}));
  for (const Candidate& candidate : CandidatesOf(facts, 0.01)) {
    EXPECT_FALSE(candidate.setting->name == "ddp.bucket_cap_mb" && candidate.value == "25");
    EXPECT_NE(candidate.value, candidate.setting->name == "threads.omp" ? "1" : "");
  }
  facts.ddp->find_unused = true;
  facts.ddp->static_graph = facts.ddp->bucket_view = true;
  facts.ddp->default_cap = false;
  facts.ddp->bucket_cap_mb = 1;
  EXPECT_EQ(Names(facts), (std::set<std::string>{"ddp.bucket_cap_mb", "ddp.find_unused_parameters", "threads.omp"}));
  // A model whose gradients are one bucket whatever the cap.
  facts.ddp = Facts::Ddp{.bytes = 1000};
  EXPECT_FALSE(Names(facts).contains("ddp.bucket_cap_mb"));
  // One rank reduces nothing.
  facts = Ddp();
  facts.ranks = 1;
  EXPECT_FALSE(Names(facts).contains("ddp.bucket_cap_mb"));
}

TEST(Settings, AnAlgorithmThatIsForcedMayBeLeftToTheLibrary) {
  Facts facts;
  facts.ranks = 4;
  facts.mpi = "openmpi";
  facts.step_ns = 1e8;
  facts.blocking_ns["all_reduce"] = 4e7;
  const auto values = [&] {
    std::set<std::string> found;
    for (const Candidate& candidate : CandidatesOf(facts, 0.01))
      if (candidate.setting->name == "openmpi.all_reduce") found.insert(candidate.value);
    return found;
  };
  EXPECT_EQ(values(), (std::set<std::string>{"3", "4", "6"}));
  facts.variables["OMPI_MCA_coll_tuned_allreduce_algorithm"] = "4";
  EXPECT_EQ(values(), (std::set<std::string>{"0", "3", "6"}));
  facts.blocking_ns["all_reduce"] = 1e5;  // A thousandth of the step.
  EXPECT_TRUE(values().empty());
}

TEST(Settings, WhatCannotGainIsDropped) {
  Facts facts = Ddp();
  facts.loader = Facts::Loader{};
  facts.input_ns = 1e5;
  for (const Candidate& candidate : CandidatesOf(facts, 0.01))
    EXPECT_EQ(candidate.dropped.empty(), candidate.setting->name != "loader.num_workers") << candidate.label();
  facts.input_ns = 5e7;
  for (const Candidate& candidate : CandidatesOf(facts, 0.01)) {
    EXPECT_TRUE(candidate.dropped.empty());
    if (candidate.setting->name == "loader.num_workers") {
      EXPECT_DOUBLE_EQ(candidate.promise->high, 0.5);
    }
  }
  facts.loader->iterable = true;
  EXPECT_FALSE(Names(facts).contains("loader.num_workers"));
}

TEST(Settings, PromisesOrderAndDrop) {
  std::vector<Candidate> candidates;
  const Setting* cap = FindSetting("ddp.bucket_cap_mb");
  for (const double gain : {-0.2, 0.01, 0.1, 0.02, 0.03, 0.04})
    candidates.push_back({cap, "v", Promise{.gain = gain, .low = gain - 0.02, .high = gain + 0.02}, ""});
  candidates.push_back({FindSetting("ddp.static_graph"), "True", std::nullopt, ""});
  OrderByPromise(candidates, 0.01);
  EXPECT_DOUBLE_EQ(candidates[0].promise->gain, 0.1);
  EXPECT_FALSE(candidates.back().dropped.empty());  // A loss of 18 % at least.
  EXPECT_NE(candidates.back().dropped.find("loss"), std::string::npos);
  EXPECT_EQ(std::count_if(candidates.begin(), candidates.end(),
                          [&](const Candidate& c) { return c.setting == cap && c.dropped.empty(); }),
            4);
}

TEST(Losses, AreCompared) {
  LossGuard guard(1e-5);
  EXPECT_FALSE(guard.checks());
  EXPECT_EQ(guard.Differs({1}, true), "");  // Nothing to compare with: said by why_not, not refused.
  guard.Reference({2.0, 1.0});
  guard.Reference({2.0, 1.0});
  EXPECT_TRUE(guard.checks());
  EXPECT_EQ(guard.Differs({2.0, 1.0}, true), "");
  EXPECT_NE(guard.Differs({2.0, 1.000001}, true), "");
  EXPECT_EQ(guard.Differs({2.0, 1.000001}, false), "");
  EXPECT_EQ(guard.Differs({2.0, 1.1}, false), "loss 2 is 1.1 instead of 1 (0.09 apart, 1e-05 allowed)");
  EXPECT_NE(guard.Differs({2.0, std::nan("")}, false), "");
  EXPECT_EQ(guard.Differs({2.0}, true), "");  // Shorter, and the same as far as it goes.
  EXPECT_EQ(guard.Differs({}, true), "no loss was seen");
}

TEST(Losses, AJobThatDoesNotRepeatItselfCannotBeChecked) {
  LossGuard guard(1e-5);
  guard.Reference({2.0, 1.0});
  guard.Reference({2.0, 1.2});
  EXPECT_FALSE(guard.checks());
  EXPECT_NE(guard.why_not().find("seed"), std::string::npos);
  LossGuard nearly(1e-5);
  nearly.Reference({2.0, 1.0});
  nearly.Reference({2.0, 1.0001});
  EXPECT_TRUE(nearly.checks());
  EXPECT_EQ(nearly.Differs({2.0, 1.0003}, true), "");
  EXPECT_NE(nearly.Differs({2.0, 1.01}, true), "");
}

TEST(Losses, NotANumberEverywhereIsTheSame) {
  LossGuard guard(1e-5);
  guard.Reference({std::nan(""), 0});
  guard.Reference({std::nan(""), 0});
  EXPECT_EQ(guard.Differs({std::nan(""), 0}, true), "");
  EXPECT_NE(guard.Differs({1, 0}, false), "");
}

}  // namespace
}  // namespace lockstep::tune
