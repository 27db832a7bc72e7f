// Is everything that is lost or doubtful counted, and is progress told?

#include <algorithm>

#include "collect.h"

namespace lockstep::kineto {
namespace {

TEST(KinetoDefects, EachIsCountedInOneTrace) {
  const std::string python = R"({"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 1})";
  const std::string json =
      Trace(python + "," + Named("a") + "," + python + R"(, {"ph": "B", "name": "b", "ts": 1}, {"ph": "E", "ts": 2})" +
            "," + Named("n", "\"dur\": -1") + "," + Named("t", "\"ts\": NaN") + "," + Named("t", "\"dur\": null") +
            ", {\"ph\": \"X\"}, oops, " + Named("z")) +
      "garbage";
  const Outcome outcome = ReadText(json);
  EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"a", "n", "z"}));
  EXPECT_EQ(outcome.Defects(),
            "ImportGarbage 1, ImportEventUnreadable 2, ImportTimeInvalid 2, ImportNegativeDuration 1, "
            "ImportPythonSkipped 2, ImportCategorySkipped 2");
  EXPECT_EQ(outcome.result.events, 11u);
  EXPECT_EQ(outcome.Detail(Loss::kImportTimeInvalid),
            "first at byte " + std::to_string(json.find(Named("t", "\"ts\": NaN"))));
  EXPECT_EQ(outcome.Detail(Loss::kImportPythonSkipped), "python_function");
}

TEST(KinetoDefects, PythonFunctionsAreDeliveredWhenAskedFor) {
  const std::string json = Trace(R"({"ph": "X", "cat": "python_function", "name": "f", "ts": 1, "dur": 1})");
  const Outcome outcome = ReadText(json, {.jobs = 1, .python_functions = true});
  ASSERT_EQ(outcome.events.size(), 1u);
  EXPECT_EQ(outcome.events[0].event.category, Category::kPythonFunction);
  EXPECT_EQ(outcome.Defects(), "");
}

TEST(KinetoDefects, ProgressEndsAtTheWholeFile) {
  const std::string json = SmallTrace();
  std::vector<std::uint64_t> done;
  ReadOptions options{.jobs = 2, .batch_bytes = 300};
  options.progress = [&](std::uint64_t bytes, std::uint64_t whole) {
    EXPECT_EQ(whole, json.size());
    done.push_back(bytes);
  };
  ReadText(json, options);
  EXPECT_GT(done.size(), 5u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), json.size());
}

}  // namespace
}  // namespace lockstep::kineto
