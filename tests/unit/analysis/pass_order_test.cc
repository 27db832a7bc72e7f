// What passes say that they read and write is true, and their order follows from it.

#include "analysis/pass_order.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "tests/unit/analysis/synthetic_job.h"

namespace lockstep::analysis {
namespace {

using enum Section;

bool Always(const Context&) { return true; }
void Nothing(const Context&, Analysis&) {}

Pass Named(std::string_view name, Sections reads, Sections writes, std::array<std::string_view, 2> after = {}) {
  return {name, "", Always, Nothing, reads, writes, after};
}

std::string ProblemOf(const std::vector<Pass>& passes) {
  std::string problem;
  const std::vector<std::size_t> order = OrderOf(passes, problem);
  EXPECT_EQ(order.empty(), !problem.empty());
  return problem;
}

TEST(PassOrder, TheListIsInTheOrderThatFollows) {
  std::string problem;
  const std::vector<std::size_t> order = OrderOf(Passes(), problem);
  EXPECT_EQ(problem, "");
  std::vector<std::size_t> listed(Passes().size());
  std::iota(listed.begin(), listed.end(), std::size_t{0});
  EXPECT_EQ(order, listed);
}

TEST(PassOrder, ReadersComeAfterWriters) {
  std::string problem;
  const std::vector<Pass> passes = {Named("last", {ranks, summary}, {verdict}), Named("free", {}, {steps}),
                                    Named("second", {summary}, {ranks}), Named("first", {}, {summary})};
  EXPECT_EQ(OrderOf(passes, problem), (std::vector<std::size_t>{1, 3, 2, 0})) << problem;
}

TEST(PassOrder, WrongListsAreRefused) {
  EXPECT_EQ(ProblemOf({Named("a", {ranks}, {}), Named("b", {}, {steps})}), "a reads ranks, which no other pass writes");
  EXPECT_EQ(ProblemOf({Named("a", {ranks}, {ranks})}), "a reads ranks, which no other pass writes");
  EXPECT_EQ(ProblemOf({Named("a", {}, {findings}), Named("b", {}, {findings})}),
            "a and b both write findings, and neither comes after the other");
  EXPECT_EQ(ProblemOf({Named("a", {}, {findings}), Named("b", {}, {findings}, {"a"})}), "");
  EXPECT_EQ(ProblemOf({Named("a", {ranks}, {steps}), Named("b", {steps}, {ranks})}), "a has to come after itself");
  EXPECT_EQ(ProblemOf({Named("a", {}, {ranks}, {"c"})}), "a comes after c, which is no pass");
}

// Calls f(part, member) for each member of an Analysis that is a part.
template <typename F>
void ForEachPart(Analysis& analysis, F&& f) {
  VisitFields(analysis, [&](const std::string_view key, const model::Form&, const auto& value, const char*) {
    const auto at = std::find(kSectionNames.begin(), kSectionNames.end(), key);
    if constexpr (!std::is_same_v<std::decay_t<decltype(value)>, std::nullptr_t>)
      if (at != kSectionNames.end())
        f(static_cast<Section>(at - kSectionNames.begin()), const_cast<std::decay_t<decltype(value)>&>(value));
  });
}

// The parts in which two results differ; what is added to stragglers later does not count as a part of its own.
std::vector<std::string> Differences(Analysis a, Analysis b) {
  std::map<Section, std::function<bool(void*)>> same;
  ForEachPart(a, [&](Section part, auto& value) {
    same[part] = [&value](void* other) { return value == *static_cast<std::decay_t<decltype(value)>*>(other); };
  });
  std::vector<std::string> differ;
  ForEachPart(b, [&](Section part, auto& value) {
    if (!same[part](&value)) differ.emplace_back(kSectionNames[static_cast<std::size_t>(part)]);
  });
  return differ;
}

bool Writes(const Pass& pass, Section part) {
  return pass.writes.Has(part) || (part == stragglers && pass.writes.Has(stragglers_replayed));
}

void ExpectTrueDeclarations(const test::Job& job) {
  const AnalyzeOptions options = job.Options();
  const Context context(job.timeline, options);
  Analysis analysis;
  for (const Pass& pass : Passes()) {
    if (!pass.applies(context)) continue;
    const Analysis before = analysis;
    pass.run(context, analysis);
    for (const std::string& part : Differences(before, analysis))
      EXPECT_TRUE(Writes(pass, static_cast<Section>(std::find(kSectionNames.begin(), kSectionNames.end(), part) -
                                                    kSectionNames.begin())))
          << pass.name << " writes " << part;
    // Without what it does not read it gives the same.
    Analysis reduced = before;
    Analysis expected = analysis;
    const auto clear = [&](Section part, auto& value) {
      if (!pass.reads.Has(part) && !Writes(pass, part)) value = {};
    };
    ForEachPart(reduced, clear);
    ForEachPart(expected, clear);
    pass.run(context, reduced);
    EXPECT_EQ(Differences(expected, reduced), std::vector<std::string>()) << pass.name << " reads more than it says";
  }
}

TEST(PassOrder, DeclarationsAreTrue) {
  test::JobSpec spec;
  spec.compute = [](int, int rank) { return rank == 2 ? 52'000'000 : 40'000'000; };
  spec.input_ns = 4'000'000;
  ExpectTrueDeclarations(test::Simulate(spec));
  spec.moves = test::Moves::kOnlyInWait;
  spec.offcpu_share = [](int) { return 0.3; };
  spec.compute = [](int step, int rank) { return (step + rank) % 4 == 0 ? 60'000'000 : 40'000'000; };
  ExpectTrueDeclarations(test::Simulate(spec));
}

}  // namespace
}  // namespace lockstep::analysis
