// Which times do events get, and which are refused?

#include "collect.h"

namespace lockstep::kineto {
namespace {

Outcome One(const std::string& fields, const std::string& category = "kernel") {
  return ReadText(
      Trace(R"({"ph": "X", "cat": ")" + category + R"(", "name": "k", "pid": 1, "tid": 2, )" + fields + "}"));
}

TEST(KinetoTimes, AreExactWhateverTheNotation) {
  for (const char* ts :
       {"1669783687464181.125", "\"1669783687464181.125\"", "1.669783687464181125e15", "1669783687464181.1259"}) {
    const Outcome outcome = One(R"("dur": 0.001, "ts": )" + std::string(ts));
    ASSERT_EQ(outcome.events.size(), 1u) << ts;
    EXPECT_EQ(outcome.events[0].event.begin_ns, 1'669'783'687'464'181'125) << ts;
    EXPECT_EQ(outcome.events[0].event.duration_ns, 1) << ts;
    EXPECT_EQ(outcome.Defects(), "") << ts;
  }
}

TEST(KinetoTimes, ThatAreNotFiniteCostOneEventAndAreCounted) {
  for (const char* value : {"NaN", "nan", "-nan", "-nan(ind)", "Infinity", "-Infinity", "inf", "null", "true", "\"\"",
                            "\"soon\"", "1e300", "[1]", "{}", "99999999999999999999"}) {
    for (const bool duration : {false, true}) {
      const std::string bad =
          duration ? Named("bad", R"("dur": )" + std::string(value)) : Named("bad", R"("ts": )" + std::string(value));
      const Outcome outcome = ReadText(Trace(Named("a") + "," + bad + "," + Named("b")));
      EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"a", "b"})) << value;
      EXPECT_EQ(outcome.Defects(), "ImportTimeInvalid 1") << value;
      EXPECT_EQ(outcome.result.events, 3u);
    }
  }
}

TEST(KinetoTimes, ThatAreMissingCostOneEventAndAreCounted) {
  const Outcome outcome = ReadText(Trace(
      R"({"ph": "X", "name": "no begin", "dur": 1}, {"ph": "X", "name": "no end", "ts": 1},)"
      R"({"ph": "i", "name": "no time"}, {"ph": "i", "name": "instant", "ts": 1}, {"ph": "M", "name": "process_name"})"));
  EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"instant", "process_name"}));
  EXPECT_EQ(outcome.Defects(), "ImportEventUnreadable 3");
  EXPECT_EQ(outcome.events[1].event.begin_ns, kAbsent);
}

TEST(KinetoTimes, NegativeDurationsBecomeZeroAndAreCounted) {
  const Outcome outcome = One(R"("ts": 5, "dur": -0.001)");
  ASSERT_EQ(outcome.events.size(), 1u);
  EXPECT_EQ(outcome.events[0].event.duration_ns, 0);
  EXPECT_EQ(outcome.Defects(), "ImportNegativeDuration 1");
  EXPECT_EQ(One(R"("ts": 5, "dur": 0)").Defects(), "");
}

TEST(KinetoTimes, BeforeTheirOriginAreTimesToo) {
  EXPECT_EQ(One(R"("ts": -5.25, "dur": 1)").events.at(0).event.begin_ns, -5'250);
}

// What is delivered can be added up and have baseTimeNanoseconds added.
TEST(KinetoTimes, NeverComeNearTheEndOfTheirRange) {
  EXPECT_EQ(One(R"("ts": 9223372036854775, "dur": 1)").Defects(), "ImportTimeInvalid 1");
  EXPECT_EQ(One(R"("ts": -9223372036854775, "dur": 1)").Defects(), "ImportTimeInvalid 1");
  EXPECT_EQ(One(R"("ts": 4000000000000000, "dur": 4000000000000000)").Defects(), "ImportTimeInvalid 1");
  EXPECT_EQ(One(R"("ts": 4000000000000000, "dur": 1)").Defects(), "");
}

}  // namespace
}  // namespace lockstep::kineto
