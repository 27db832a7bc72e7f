// Does one broken event cost no other?

#include <algorithm>

#include "collect.h"

namespace lockstep::kineto {
namespace {

// Between sound events; `later` events follow so that small batches are cut around it.
std::string Around(const std::string& bad, int later = 3) {
  std::string events = Named("before") + ",\n" + bad;
  for (int i = 0; i < later; ++i) events += ",\n" + Named("after " + std::to_string(i));
  return Trace(events);
}

const std::vector<std::string> kSurvivors = {"before", "after 0", "after 1", "after 2"};

struct Bad {
  const char* what;
  std::string event;
};

std::vector<Bad> BadEvents() {
  return {
      {"an unknown escape in the name", Named("C:\\Users\\x")},
      {"an incomplete \\u", Named("a\\u12")},
      {"one quote in the name", Named("a\" b")},
      {"two quotes in the name", Named("a\"b\"c")},
      {"a backslash before the closing quote", Named("C:\\")},
      {"a name that is no text", R"({"ph": "X", "name": 5, "ts": 1, "dur": 1})"},
      {"no name", R"({"ph": "X", "ts": 1, "dur": 1})"},
      {"no phase", R"({"name": "a", "ts": 1, "dur": 1})"},
      {"a phase that is none", R"({"ph": "XX", "name": "a", "ts": 1, "dur": 1})"},
      {"a missing comma", R"({"ph": "X" "name": "a", "ts": 1, "dur": 1})"},
      {"a missing colon", R"({"ph" "X", "name": "a", "ts": 1, "dur": 1})"},
      {"no value of the name", R"({"ph": "X", "name": , "ts": 1, "dur": 1})"},
      {"no value in a list", R"({"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": {"x": [1, , 2]}})"},
      {"a key without quotes", R"({"ph": "X", name: "a", "ts": 1, "dur": 1})"},
      {"a comma too many", R"({"ph": "X", "name": "a", "ts": 1, "dur": 1,})"},
      {"a bracket that another kind closes", R"({"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": {"grid": [1, 2}})"},
      {"args without their end", R"({"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": {"x": 1)"},
      {"an array without its end", R"({"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": {"x": [1})"},
      {"metadata with a broken name", "{\"name\": \"process\"name\", \"ph\": \"M\", \"args\": {\"name\": \"python\"}}"},
      {"cut in the middle", R"({"ph": "X", "cat": "ker)"},
      {"overwritten with zeros", "{\"ph\": \"X\", " + std::string(100, '\0') + "\"dur\": 1}"},
      {"a bare word", "oops"},
      {"null", "null"},
      {"a number", "17"},
      {"a text", "\"event\""},
      {"an array", "[1, [2, {}]]"},
      {"nothing", ""},
      {"too deep", Named("a", "\"args\": {\"x\": " + std::string(2000, '[') + std::string(2000, ']') + "}")},
      {"far too deep", R"({"ph": "X", "args": )" + std::string(100'000, '[')},
  };
}

TEST(KinetoDamage, CostsTheEventItIsInAndNoOther) {
  for (const Bad& bad : BadEvents()) {
    for (const bool minified : {false, true}) {
      std::string json = Around(bad.event);
      if (minified) json.erase(std::remove(json.begin(), json.end(), '\n'), json.end());
      if (minified && std::string(bad.what) == "a raw line break in the name") continue;
      const std::size_t place =
          json.find('[', json.find("traceEvents")) + 1 + Named("before").size() + (minified ? 1 : 2);
      for (const std::size_t batch_bytes :
           {std::size_t{1}, std::size_t{64}, std::size_t{100}, std::size_t{333}, std::size_t{1} << 20}) {
        const Outcome outcome = ReadText(json, {.jobs = 1, .batch_bytes = batch_bytes});
        EXPECT_EQ(outcome.Names(), kSurvivors) << bad.what << " " << batch_bytes;
        EXPECT_EQ(outcome.Defects(), "ImportEventUnreadable 1") << bad.what << " " << batch_bytes;
        EXPECT_EQ(outcome.Detail(Loss::kImportEventUnreadable), "first at byte " + std::to_string(place))
            << bad.what << " " << batch_bytes;
        EXPECT_EQ(outcome.result.facts.trace_name, "t.json") << bad.what;
      }
    }
  }
}

// What Kineto itself wrote: names with bytes of memory that was freed, and descriptions of groups that are empty.
TEST(KinetoDamage, OfATextCostsThatTextAndNotTheEvent) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string> kEvents[] = {
      {Named("a\nb"), "a\nb"},
      {R"({"ph": "X", "name": "a)"s + '\0' + R"(b", "ts": 1, "dur": 1})", "a\uFFFDb"},
      {Named("a\\\x01 b"), "a\\u0001 b"},
      {Named("\xFD\xFFgemm"), "\uFFFD\uFFFDgemm"},
      {Named("a\xE2\x82"), "a\uFFFD\uFFFD"},
      {Named("a\xC0\xAF"), "a\uFFFD\uFFFD"},
      {Named("a", "\"args\": {\"x\": \"\xFF\"}"), "a"},
  };
  for (const auto& [event, name] : kEvents)
    for (const std::size_t batch_bytes : {std::size_t{1}, std::size_t{100}, std::size_t{1} << 20}) {
      const Outcome outcome = ReadText(Around(event), {.jobs = 1, .batch_bytes = batch_bytes});
      EXPECT_EQ(outcome.Names()[1], name);
      EXPECT_EQ(outcome.Names().size(), kSurvivors.size() + 1);
      EXPECT_EQ(outcome.Defects(), "ImportTextReplaced 1") << name;
    }
  // What is left out is not said to be kept.
  EXPECT_EQ(ReadText(Around("{\"ph\": \"X\", \"name\": \"\xFF\"}")).Defects(), "ImportEventUnreadable 1");
  for (const char* args : {R"({"x": , "y": 1})", R"({"y": 1, "x": })", R"({"y": {"x": , "z": [{"x":}]}})"})
    for (const bool damaged_beside : {false, true}) {  // Then byte by byte.
      const std::string event = Named("a", "\"args\": "s + args);
      const Outcome outcome = ReadText(Trace(event + (damaged_beside ? "," + Named("\xFF") : "")));
      EXPECT_EQ(outcome.Names()[0], "a") << args;
      EXPECT_EQ(outcome.Defects(), damaged_beside ? "ImportTextReplaced 1" : "") << args;
    }
}

TEST(KinetoDamage, InTheLastEventKeepsWhatFollowsTheEvents) {
  for (const Bad& bad : BadEvents()) {
    if (bad.event.empty()) continue;  // Then it is only a comma before the array's end.
    const Outcome outcome = ReadText(Around(bad.event, 0));
    EXPECT_EQ(outcome.Names(), std::vector<std::string>{"before"}) << bad.what;
    EXPECT_EQ(outcome.Defects(), "ImportEventUnreadable 1") << bad.what;
    EXPECT_EQ(outcome.result.facts.trace_name, "t.json") << bad.what;
  }
}

TEST(KinetoDamage, BetweenEventsIsSaid) {
  const Outcome outcome = ReadText(Trace(Named("a") + Named("b") + "," + Named("c") + "xx," + Named("d")));
  EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(outcome.Defects(), "ImportGarbage 1");
}

TEST(KinetoDamage, AnArrayInArgumentsWithoutEndDoesNotTakeTheRest) {
  std::string events = R"({"ph": "X", "name": "bad", "ts": 1, "dur": 1, "args": {"list": [1, )";
  for (int i = 0; i < 100; ++i) events += (i > 0 ? "," : "") + Named(std::to_string(i));
  const Outcome outcome = ReadText(Trace(events));
  EXPECT_EQ(outcome.events.size(), 100u);
  EXPECT_EQ(outcome.Count(Loss::kImportEventUnreadable), 1u);
}

TEST(KinetoDamage, ABracketTooManyDoesNotEndTheEvents) {
  const Outcome outcome = ReadText(Trace(Named("a") + "]," + Named("b") + "," + Named("c")));
  EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(outcome.Defects(), "ImportGarbage 1");
  EXPECT_EQ(outcome.result.facts.trace_name, "t.json");
}

// While threads already take what follows for no events.
TEST(KinetoDamage, ABracketTooManyDoesNotEndTheEventsOnSeveralThreads) {
  std::string events = Named("a") + "]";
  std::vector<std::string> names = {"a"};
  for (int i = 0; i < 2'000; ++i) {
    names.push_back(std::to_string(i));
    events += "," + Named(names.back()) + (i % 50 == 0 ? "]" : "");
  }
  for (int i = 0; i < 10; ++i) {
    const Outcome outcome = ReadText(Trace(events), {.jobs = 2, .batch_bytes = 150});
    ASSERT_EQ(outcome.Names(), names);
    ASSERT_EQ(outcome.Defects(), "ImportGarbage 1");
  }
}

TEST(KinetoDamage, InTheHeadCostsFactsButNoEvents) {
  const Outcome outcome = ReadText(
      R"({"deviceProperties": [{"id": 0, "name": "GPU"}], "x": ?, "distributedInfo": {"rank": 1}, "traceEvents": [)" +
      Named("a") + "," + Named("b") + R"(], "traceName": "n"})");
  EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(outcome.Defects(), "ImportGarbage 1");
  EXPECT_EQ(outcome.result.facts.device_properties, R"([{"id": 0, "name": "GPU"}])");
  EXPECT_EQ(outcome.result.facts.trace_name, "n");
}

}  // namespace
}  // namespace lockstep::kineto
