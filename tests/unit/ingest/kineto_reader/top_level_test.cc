// What of a trace outside its events is kept, wherever it stands?

#include "collect.h"

namespace lockstep::kineto {
namespace {

using Others = std::vector<std::pair<std::string, std::string>>;

TEST(KinetoTopLevel, FactsAreFoundBeforeAndBehindTheEvents) {
  const std::string events = "\"traceEvents\": [" + Named("a") + "]";
  const std::vector<std::string> facts = {R"("distributedInfo": {"backend": "nccl", "rank": 1, "x": "}"})",
                                          R"("deviceProperties": [{"id": 0, "name": "a \" ]"}, []])",
                                          R"("traceName": "/tmp/\u0041 \"x\".json")",
                                          R"("baseTimeNanoseconds": 1711964646000000000)",
                                          R"("schemaVersion": 1)",
                                          R"("displayTimeUnit": "ms")",
                                          R"("otherData": {"version": "\\", "list": [1, {"traceEvents": []}]})",
                                          R"("INFO": ["Processed \"traceEvents\": [ things", "x"])"};
  for (std::size_t before = 0; before <= facts.size(); ++before) {
    for (const std::string& separator : {std::string(","), std::string(" ,\n\t")}) {
      std::string json = "{ ";
      for (std::size_t i = 0; i < facts.size(); ++i)
        json += (i == before ? events + separator : "") + facts[i] + (i + 1 < facts.size() ? separator : "");
      if (before == facts.size()) json += separator + events;
      json += " }\n";
      for (const std::size_t batch_bytes : {std::size_t{1}, std::size_t{40}, std::size_t{1} << 20}) {
        const Outcome outcome = ReadText(json, {.jobs = 1, .batch_bytes = batch_bytes});
        EXPECT_EQ(outcome.Names(), std::vector<std::string>{"a"}) << json;
        EXPECT_EQ(outcome.Defects(), "") << json;
        EXPECT_EQ(outcome.result.facts.distributed_info, R"({"backend": "nccl", "rank": 1, "x": "}"})");
        EXPECT_EQ(outcome.result.facts.device_properties, R"([{"id": 0, "name": "a \" ]"}, []])");
        EXPECT_EQ(outcome.result.facts.trace_name, "/tmp/A \"x\".json");
        EXPECT_EQ(outcome.result.facts.base_time_ns, 1711964646000000000);
        EXPECT_EQ(outcome.result.facts.others, (Others{{"schemaVersion", "1"}, {"displayTimeUnit", "\"ms\""}}));
      }
    }
  }
}

TEST(KinetoTopLevel, AnEmptyArrayIsATrace) {
  for (const char* json : {R"({"traceEvents": []})", R"({"traceEvents":[ ] , "a": 1})", "[]", "[ ]"}) {
    const Outcome outcome = ReadText(json);
    EXPECT_EQ(outcome.result.events, 0u);
    EXPECT_EQ(outcome.Defects(), "") << json;
  }
}

TEST(KinetoTopLevel, ASecondArrayIsSaid) {
  const Outcome outcome = ReadText(R"({"traceEvents": [)" + Named("a") + R"(], "traceEvents": [)" + Named("b") + "]}");
  EXPECT_EQ(outcome.Names(), std::vector<std::string>{"a"});
  EXPECT_EQ(outcome.Defects(), "ImportGarbage 1");
}

TEST(KinetoTopLevel, BytesBehindTheEndAreSaid) {
  for (const std::string& garbage :
       {std::string("x"), std::string("{}"), SmallTrace(), std::string(10, '\0'), std::string("]")}) {
    const Outcome outcome = ReadText(Trace(Named("a")) + "\n" + garbage);
    EXPECT_EQ(outcome.Names(), std::vector<std::string>{"a"}) << garbage;
    EXPECT_EQ(outcome.Defects(), "ImportGarbage 1") << garbage;
  }
  EXPECT_EQ(ReadText(Trace(Named("a")) + " \n\t\r\n").Defects(), "");
}

TEST(KinetoTopLevel, OddBaseTimesAreNone) {
  for (const char* base : {"-5", "null", "NaN", "99999999999999999999", "\"x\"", "[1]"}) {
    const Outcome outcome = ReadText(R"({"baseTimeNanoseconds": )" + std::string(base) + R"(, "traceEvents": []})");
    EXPECT_EQ(outcome.result.facts.base_time_ns, 0) << base;
    EXPECT_EQ(outcome.Defects(), "") << base;
  }
  EXPECT_EQ(ReadText(R"({"baseTimeNanoseconds": "1700000000000000001", "traceEvents": []})").result.facts.base_time_ns,
            1700000000000000001);
}

TEST(KinetoTopLevel, FactsAreUtf8WhateverTheFileHolds) {
  const Outcome outcome = ReadText(
      "{\"distributedInfo\": {\"rank\": 3, \"host\": \"\xFF\"}, \"k\xFE\": \"\xC3\", \"e\": \"\xC3\xA9\","
      " \"traceName\": \"\xE2\x82\", \"traceEvents\": []}");
  EXPECT_EQ(outcome.result.facts.distributed_info, R"({"rank": 3, "host": "?"})");
  EXPECT_EQ(outcome.result.facts.trace_name, "??");
  EXPECT_EQ(outcome.result.facts.others, (Others{{"k?", "\"?\""}, {"e", "\"\xC3\xA9\""}}));
}

TEST(KinetoTopLevel, WhatIsNoTraceIsOneError) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "the trace is empty"},
      {"   ", "the trace ends before its events begin"},
      {"hello", "this is no Chrome-trace JSON"},
      {"\"traceEvents\"", "this is no Chrome-trace JSON"},
      {"PK\x03\x04 and so on", "the trace is packed in another way than gzip"},
      {"\x28\xB5\x2F\xFD and so on", "the trace is packed in another way than gzip"},
      {"{}", "there is no traceEvents in it"},
      {R"({"traceEvents": null})", "there is no traceEvents in it"},
      {R"({"traceEvents": {"a": []}})", "there is no traceEvents in it"},
      {R"({"a": {"traceEvents": []}})", "there is no traceEvents in it"},
      {R"({"a" 5, "b": [1]})", "there is no traceEvents in it"},
      {R"({"schemaVersion": 1, "devi)", "the trace ends before its events begin"},
      {std::string("{\0\"\0", 4), "the trace is UTF-16 or UTF-32 text"},
      {std::string("\xFF\xFE{\0", 4), "the trace is UTF-16 or UTF-32 text"},
      {std::string("\xFE\xFF\0{", 4), "the trace is UTF-16 or UTF-32 text"},
  };
  for (const auto& [json, what] : cases) {
    for (const std::size_t batch_bytes : {std::size_t{1}, std::size_t{1} << 20}) {
      Collector collector;
      const auto read = ReadTraceText(json, {.jobs = 1, .batch_bytes = batch_bytes}, collector);
      ASSERT_FALSE(read.ok()) << json;
      EXPECT_EQ(read.error().what, what) << json;
      EXPECT_EQ(read.error().code, ErrorCode::kMalformed);
      EXPECT_FALSE(read.error().hint.empty());
    }
  }
}

}  // namespace
}  // namespace lockstep::kineto
