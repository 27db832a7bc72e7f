// What is left of a trace that was cut, at any byte?

#include <algorithm>

#include "collect.h"

namespace lockstep::kineto {
namespace {

// Where each element ends, told in the plainest way.
std::vector<std::size_t> EventEnds(std::string_view json) {
  std::vector<std::size_t> ends;
  int depth = 0;
  bool inside = false;
  for (std::size_t i = json.find("traceEvents"); i < json.size(); ++i) {
    if (inside) {
      if (json[i] == '\\') ++i;
      inside = i >= json.size() || json[i] != '"';
      continue;
    }
    inside = json[i] == '"' && depth > 0;
    if (json[i] == '{' || json[i] == '[') ++depth;
    if (json[i] == '}' || json[i] == ']') --depth;
    if (json[i] == '}' && depth == 1) ends.push_back(i + 1);
    if (json[i] == ']' && depth == 0) break;
  }
  return ends;
}

void CutEverywhere(const std::string& json, std::size_t batch_bytes) {
  const ReadOptions options{.jobs = 1, .batch_bytes = batch_bytes};
  const std::vector<std::string> whole = ReadText(json, options).Lines();
  const std::vector<std::size_t> ends = EventEnds(json);
  ASSERT_EQ(whole.size(), ends.size());
  const std::size_t begin = json.find('[', json.find("traceEvents")) + 1, end = json.rfind('}') + 1;
  for (std::size_t cut = 0; cut <= json.size(); ++cut) {
    if (cut < begin) {
      Collector collector;
      const auto read = ReadTraceText(std::string_view(json).substr(0, cut), options, collector);
      ASSERT_FALSE(read.ok()) << cut;
      EXPECT_EQ(read.error().code, ErrorCode::kMalformed);
      continue;
    }
    const Outcome outcome = ReadText(std::string_view(json).substr(0, cut), options);
    const auto complete = static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), cut) - ends.begin());
    ASSERT_EQ(outcome.Lines(),
              std::vector<std::string>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(complete)))
        << cut;
    ASSERT_EQ(outcome.Defects(), cut < end ? "ImportCutShort 1" : "") << cut;
    if (cut < end) {
      ASSERT_NE(outcome.Detail(Loss::kImportCutShort).find("ends at byte " + std::to_string(cut)), std::string::npos);
    }
  }
}

TEST(KinetoCut, AnywhereKeepsEveryEventThatIsWhole) { CutEverywhere(SmallTrace(), 1 << 20); }
TEST(KinetoCut, AnywhereWhenMinified) { CutEverywhere(Minified(SmallTrace()), 1 << 20); }
TEST(KinetoCut, AnywhereInSmallBatches) {
  CutEverywhere(Minified(SmallTrace()), 1);
  CutEverywhere(SmallTrace(), 100);
}

TEST(KinetoCut, SaysWhereItWas) {
  EXPECT_EQ(ReadText(R"({"traceEvents": [{"ph")").Detail(Loss::kImportCutShort),
            "the JSON ends at byte 22, inside an event");
  EXPECT_EQ(ReadText(R"({"traceEvents": [{}, )").Detail(Loss::kImportCutShort),
            "the JSON ends at byte 21, between two events");
  EXPECT_EQ(ReadText(R"({"traceEvents": [], "traceName)").Detail(Loss::kImportCutShort),
            "the JSON ends at byte 30, behind the events");
}

// The Trace Event Format allows a bare array without its end.
TEST(KinetoCut, ABareArrayNeedsNoEnd) {
  for (const std::string end : {"", ",", " \n", "]", ",]", "]\n"}) {
    const Outcome outcome = ReadText("[" + Named("a") + "," + Named("b") + end);
    EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"a", "b"})) << end;
    EXPECT_EQ(outcome.Defects(), "") << end;
  }
  EXPECT_EQ(ReadText("[" + Named("a") + R"(,{"ph": "X")").Defects(), "ImportCutShort 1");
}

}  // namespace
}  // namespace lockstep::kineto
