// Is JSON that is unusual but sound read as it is meant?

#include "collect.h"

namespace lockstep::kineto {
namespace {

Event Only(const std::string& fields) {
  const Outcome outcome = ReadText(Trace(Named("e", fields)));
  EXPECT_EQ(outcome.events.size(), 1u) << fields;
  EXPECT_EQ(outcome.Defects(), "") << fields;
  return outcome.events.empty() ? Event{} : outcome.events[0].event;
}

std::string NameOf(const std::string& raw) {
  const Outcome outcome = ReadText(Trace(Named(raw)));
  EXPECT_EQ(outcome.Defects(), "") << raw;
  return outcome.events.empty() ? "" : outcome.events[0].name;
}

TEST(KinetoOddText, EscapesAreResolved) {
  EXPECT_EQ(NameOf(R"(a\"b\\c\/d\b\f\n\r\t)"), "a\"b\\c/d\b\f\n\r\t");
  EXPECT_EQ(NameOf(R"(\u0041\u00e9\u20AC)"), "A\xC3\xA9\xE2\x82\xAC");
  EXPECT_EQ(NameOf(R"(\ud83d\ude00!)"), "\xF0\x9F\x98\x80!");
  // Python writes and reads half a pair; nothing else can print it.
  EXPECT_EQ(NameOf(R"(\ud83d!)"), "\xEF\xBF\xBD!");
  EXPECT_EQ(NameOf(R"(\ude00\u0000)"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(NameOf("\xC3\xA9\xF0\x9F\x98\x80\x7F"), "\xC3\xA9\xF0\x9F\x98\x80\x7F");
  EXPECT_EQ(NameOf(R"(ends with \\)"), "ends with \\");
  EXPECT_EQ(NameOf(""), "");
  const std::string kernel = "void f<{lambda(int)#1}>[clone]::g(int*, }],{\\\"ph\\\":)";
  EXPECT_EQ(NameOf(kernel), "void f<{lambda(int)#1}>[clone]::g(int*, }],{\"ph\":)");
}

TEST(KinetoOddText, ArgumentsMayHoldWhatNobodyNeeds) {
  for (const char* value : {"NaN", "Infinity", "-Infinity", "nan", "-inf", "-nan(ind)", "1.#QNAN", "null", "true", "[]",
                            "{}", "[NaN, [[]], {\"a\": {}}]", "\"C:\\Users\"", "1e999",
                            "123456789012345678901234567890", "\"]}\"", "\"\\\"\"", "\"\""}) {
    const std::string args = "{\"x\": " + std::string(value) + ", \"correlation\": 5}";
    const Outcome outcome = ReadText(Trace(Named("e", "\"args\": " + args)));
    ASSERT_EQ(outcome.events.size(), 1u) << value;
    EXPECT_EQ(outcome.events[0].event.correlation, 5) << value;
    EXPECT_EQ(outcome.events[0].args, args);
    EXPECT_EQ(outcome.Defects(), "") << value;
  }
}

TEST(KinetoOddText, ArgumentsMayBeEmptyOrNone) {
  EXPECT_EQ(ReadText(Trace(Named("e", "\"args\": {}"))).events.at(0).args, "{}");
  for (const char* args : {"null", "[]", "[1, {\"correlation\": 1}]", "\"x\"", "5"}) {
    const Outcome outcome = ReadText(Trace(Named("e", "\"args\": " + std::string(args))));
    EXPECT_EQ(outcome.events.at(0).args, "");
    EXPECT_EQ(outcome.events.at(0).event.correlation, kAbsent);
  }
}

TEST(KinetoOddText, NumbersOfArguments) {
  const Event event = Only(
      R"("args": {"External id": 18446744073709551615, "correlation": "17", "device": 4, "context": -1, "stream": 7.0,)"
      R"( "bytes": 9007199254740993, "Sequence number": 3})");
  EXPECT_EQ(event.external_id, -1);
  EXPECT_EQ(event.correlation, 17);
  EXPECT_EQ(event.device, 4);
  EXPECT_EQ(event.context, -1);
  EXPECT_EQ(event.stream, 7);
  EXPECT_EQ(event.bytes, 9007199254740993);
  EXPECT_EQ(event.sequence_number, 3);
  const Event odd = Only(
      R"("args": {"External id": 99999999999999999999, "correlation": null, "device": [4], "stream": "default", "Bytes": -5, "Device Id": 3})");
  EXPECT_EQ(odd.external_id, kAbsent);
  EXPECT_EQ(odd.correlation, kAbsent);
  EXPECT_EQ(odd.device, 3);
  EXPECT_EQ(odd.stream, kAbsent);
  EXPECT_EQ(odd.bytes, -5);
  // Not as a whole or only in part.
  const Event similar = Only(
      R"("args": {"Correlation": 1, "correlation ": 1, "correlatio": 1, "streams": 1, "External idx": 1, "x": {"correlation": 1}})");
  EXPECT_EQ(similar.correlation, kAbsent);
  EXPECT_EQ(similar.stream, kAbsent);
  EXPECT_EQ(similar.external_id, kAbsent);
}

TEST(KinetoOddText, TheLastOfTwoKeysCounts) {
  const Event event =
      Only(R"("ts": 77, "args": {"correlation": 1, "stream": 2}, "args": {"correlation": 3, "correlation": 4})");
  EXPECT_EQ(event.begin_ns, 77'000);
  EXPECT_EQ(event.correlation, 4);
  EXPECT_EQ(event.stream, kAbsent);
}

TEST(KinetoOddText, ProcessesAndThreadsMayBeTexts) {
  const Outcome outcome =
      ReadText(Trace(Named("e", R"("pid": "Spans", "tid": "stream 7\n")") + "," +
                     Named("f", R"("pid": "12", "tid": -3)") + "," + Named("g", R"("pid": null, "tid": "")")));
  ASSERT_EQ(outcome.events.size(), 3u);
  EXPECT_EQ(outcome.events[0].pid_text, "Spans");
  EXPECT_EQ(outcome.events[0].tid_text, "stream 7\n");
  EXPECT_EQ(outcome.events[0].event.pid, kAbsent);
  EXPECT_EQ(outcome.events[1].event.pid, 12);
  EXPECT_EQ(outcome.events[1].event.tid, -3);
  EXPECT_EQ(outcome.events[2].event.pid, kAbsent);
}

TEST(KinetoOddText, DepthIsNoMatter) {
  const Outcome outcome = ReadText(Trace(
      Named("deep", "\"args\": {\"x\": " + std::string(1000, '[') + std::string(1000, ']') + "}") + "," + Named("b")));
  EXPECT_EQ(outcome.Names(), (std::vector<std::string>{"deep", "b"}));
}

TEST(KinetoOddText, EmptyElementsAndLastCommasAreNoLoss) {
  const Outcome outcome = ReadText(Trace(Named("a") + ", {}, { },"));
  EXPECT_EQ(outcome.Names(), std::vector<std::string>{"a"});
  EXPECT_EQ(outcome.Defects(), "");
  EXPECT_EQ(outcome.result.events, 3u);
}

TEST(KinetoOddText, CategoriesOfOlderAndOtherProfilers) {
  const std::pair<const char*, Category> cases[] = {{"Kernel", Category::kKernel},
                                                    {"kernel", Category::kKernel},
                                                    {"Memcpy", Category::kMemcpy},
                                                    {"gpu_memcpy", Category::kMemcpy},
                                                    {"Memset", Category::kMemset},
                                                    {"gpu_memset", Category::kMemset},
                                                    {"Runtime", Category::kRuntime},
                                                    {"cuda_runtime", Category::kRuntime},
                                                    {"hip_runtime", Category::kRuntime},
                                                    {"cuda_driver", Category::kDriver},
                                                    {"Operator", Category::kCpuOp},
                                                    {"cpu_op", Category::kCpuOp},
                                                    {"user_annotation", Category::kUserAnnotation},
                                                    {"gpu_user_annotation", Category::kGpuUserAnnotation},
                                                    {"cuda_sync", Category::kSync},
                                                    {"overhead", Category::kOverhead},
                                                    {"cpu_instant_event", Category::kInstant},
                                                    {"ac2g", Category::kFlow},
                                                    {"fwdbwd", Category::kFlow},
                                                    {"Trace", Category::kOther},
                                                    {"", Category::kOther},
                                                    {"a category of which nobody knows anything", Category::kOther}};
  for (const auto& [text, category] : cases) {
    const Outcome outcome = ReadText(Trace(Named("e", R"("cat": ")" + std::string(text) + "\"")));
    EXPECT_EQ(outcome.events.at(0).event.category, category) << text;
    EXPECT_EQ(outcome.events.at(0).category_text, text);
  }
}

TEST(KinetoOddText, PhasesDecideBeforeCategories) {
  const Outcome outcome = ReadText(Trace(
      R"({"ph": "s", "id": 5, "pid": 1, "tid": 1, "ts": 1, "cat": "async"}, {"ph": "M", "name": "process_name", "cat": "kernel"},)"
      R"({"ph": "C", "name": "counter", "ts": 1})"));
  ASSERT_EQ(outcome.events.size(), 3u);
  EXPECT_EQ(outcome.events[0].event.category, Category::kFlow);
  EXPECT_EQ(outcome.events[0].event.correlation, 5);
  EXPECT_EQ(outcome.events[1].event.category, Category::kMetadata);
  EXPECT_EQ(outcome.events[2].event.phase, 'C');
}

TEST(KinetoOddText, MarksAndBlanksInFront) {
  EXPECT_EQ(ReadText("\xEF\xBB\xBF" + SmallTrace()).events.size(), 10u);
  EXPECT_EQ(ReadText(std::string(5000, '\n') + SmallTrace(), {.jobs = 1, .batch_bytes = 100}).events.size(), 10u);
  EXPECT_EQ(ReadText("\xEF\xBB\xBF [" + Named("a") + "]").events.size(), 1u);
}

TEST(KinetoOddText, LooksLikeATraceByItsFirstBytes) {
  for (const char* text : {"{", "[", " \n\t{", "\xEF\xBB\xBF{", "\x1F\x8B\x08"})
    EXPECT_TRUE(LooksLikeTrace(text)) << text;
  for (const char* text : {"", " ", "x", "\x89HDF", "\x1F"}) EXPECT_FALSE(LooksLikeTrace(text)) << text;
}

}  // namespace
}  // namespace lockstep::kineto
