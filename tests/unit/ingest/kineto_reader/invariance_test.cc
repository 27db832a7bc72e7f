// Is what is read independent of how the work is divided and how the text is laid out?

#include <random>

#include "collect.h"
#include "ingest/kineto/read/batch_parser.h"
#include "tests/unit/all_runs.h"

namespace lockstep::kineto {
namespace {

std::string Many(int times) {
  const std::string small = SmallTrace();
  const std::size_t begin = small.find('[', small.find("traceEvents")) + 1, end = small.rfind(']');
  std::string json = small.substr(0, end);
  for (int i = 1; i < times; ++i) json += "," + small.substr(begin, end - begin);
  return json + small.substr(end);
}

void ExpectSame(const Outcome& a, const Outcome& b, const std::string& what) {
  ASSERT_EQ(a.Lines(), b.Lines()) << what;
  ASSERT_EQ(a.result.events, b.result.events) << what;
  ASSERT_EQ(a.result.json_bytes, b.result.json_bytes) << what;
  ASSERT_EQ(a.result.defects.size(), b.result.defects.size()) << what << a.Defects() << " / " << b.Defects();
  for (std::size_t i = 0; i < a.result.defects.size(); ++i) {
    ASSERT_EQ(a.result.defects[i].loss, b.result.defects[i].loss) << what;
    ASSERT_EQ(a.result.defects[i].count, b.result.defects[i].count) << what;
    ASSERT_EQ(a.result.defects[i].detail, b.result.defects[i].detail) << what;
  }
  ASSERT_EQ(a.result.facts.trace_name, b.result.facts.trace_name) << what;
  ASSERT_EQ(a.result.facts.distributed_info, b.result.facts.distributed_info) << what;
  ASSERT_EQ(a.result.facts.others, b.result.facts.others) << what;
  ASSERT_EQ(a.result.facts.base_time_ns, b.result.facts.base_time_ns) << what;
}

TEST(KinetoInvariance, OfThreadsAndBatches) {
  const std::string json = Many(200);
  const Outcome one = ReadText(json, {.jobs = 1, .batch_bytes = 1 << 20});
  EXPECT_EQ(one.events.size(), 2000u);
  EXPECT_EQ(one.Defects(), "");
  for (const unsigned jobs : {0u, 1u, 2u, 4u})
    for (const std::size_t batch_bytes : {std::size_t{500}, std::size_t{4'096}, std::size_t{100'000}})
      ExpectSame(one, ReadText(json, {.jobs = jobs, .batch_bytes = batch_bytes}),
                 std::to_string(jobs) + " jobs, " + std::to_string(batch_bytes) + " bytes");
}

TEST(KinetoInvariance, OfBlanks) {
  const Outcome pretty = ReadText(SmallTrace()), minified = ReadText(Minified(SmallTrace()));
  ASSERT_EQ(pretty.events.size(), minified.events.size());
  for (std::size_t i = 0; i < pretty.events.size(); ++i) {
    Kept a = pretty.events[i];
    const Kept& b = minified.events[i];
    EXPECT_EQ(Minified(a.args), b.args);
    a.args = b.args;
    EXPECT_EQ(a.Line(), b.Line());
  }
}

// An object in args that looks like an event where a batch is cut.
TEST(KinetoInvariance, OfArgumentsThatLookLikeEvents) {
  std::string events = Named("first");
  for (int i = 0; i < 50; ++i)
    events += "," + Named("n" + std::to_string(i), "\"args\": {\"stack\": [" + Named("f") + ", " + Named("g") + ", " +
                                                       Named("h") + "], \"correlation\": 9}");
  const Outcome one = ReadText(Trace(events));
  EXPECT_EQ(one.events.size(), 51u);
  for (std::size_t batch_bytes = 1; batch_bytes < 2'000; batch_bytes += 37)
    ExpectSame(one, ReadText(Trace(events), {.jobs = 2, .batch_bytes = batch_bytes}), std::to_string(batch_bytes));
}

// One event of more than a batch, and events that begin with keys nobody knows.
TEST(KinetoInvariance, OfEventsThatNoBatchEndsBetween) {
  std::string events = Named("large", "\"args\": {\"x\": \"" + std::string(25'000, 'x') + "\"}");
  for (int i = 0; i < 100; ++i) events += R"(, {"zz": 1, "ph": "i", "name": "odd", "ts": 1})";
  const Outcome one = ReadText(Trace(events));
  EXPECT_EQ(one.events.size(), 101u);
  for (const std::size_t batch_bytes : {1, 77, 1'000, 20'000})
    ExpectSame(one, ReadText(Trace(events), {.jobs = 2, .batch_bytes = batch_bytes}), std::to_string(batch_bytes));
}

// Damage of every kind, seeded: bytes replaced, removed, repeated.
std::string Damaged(std::string json, std::mt19937_64& random) {
  static constexpr std::string_view kBytes = "{}[]\",:\\\n 0a\x01\xFF";
  for (std::uint64_t n = 1 + random() % 4; n > 0; --n) {
    const std::size_t at = random() % json.size(),
                      length = std::min<std::size_t>(1 + random() % (random() % 2 == 0 ? 4 : 400), json.size() - at);
    switch (random() % 5) {
      case 0:
      case 1:
        json[at] = kBytes[random() % kBytes.size()];
        break;
      case 2:
        json.erase(at, length);
        break;
      case 3:
        json.insert(at, json.substr(random() % json.size(), length));
        break;
      default:
        json.insert(at, 1, kBytes[random() % kBytes.size()]);
        break;
    }
    if (json.empty()) json = "{";
  }
  return json;
}

TEST(KinetoInvariance, OfBatchesWhenDamaged) {
  std::mt19937_64 random(7);
  const std::string sound = Many(4), minified = Minified(sound);
  for (int i = 0, runs = test::Runs(500, 1'500); i < runs; ++i) {
    const std::string json = Damaged(i % 2 == 0 ? sound : minified, random);
    Collector collector;
    const auto whole = ReadTraceText(json, {.jobs = 1}, collector);
    const ReadOptions pieces{.jobs = 1, .batch_bytes = 1 + random() % 3'000};
    if (!whole.ok()) {
      Collector other;
      const auto again = ReadTraceText(json, pieces, other);
      ASSERT_FALSE(again.ok()) << json;
      ASSERT_EQ(again.error().what, whole.error().what);
      continue;
    }
    const Outcome one = Finish(whole, collector);
    ASSERT_NO_FATAL_FAILURE(
        ExpectSame(one, ReadText(json, pieces), std::to_string(pieces.batch_bytes) + " bytes of " + json));
  }
}

// simdjson's tokens and our own lead to the same events.
TEST(KinetoInvariance, OfTheWayThroughSimdjson) {
  std::mt19937_64 random(11);
  const std::string small = Many(2);
  const std::size_t begin = small.find('[', small.find("traceEvents")) + 1;
  int sound = 0;
  for (int i = 0; i < 1'500; ++i) {
    std::string text = i == 0 ? small.substr(begin) : Damaged(small.substr(begin), random);
    const std::size_t size = text.size();
    text.resize(size + kPadding, '\0');
    BatchParser parser(true);
    Stretch quick, slow;
    const std::string_view view(text.data(), size);
    parser.Parse(view, {}, i % 2 == 0, quick);
    parser.ParseSlowly(view, {}, i % 2 == 0, slow);
    ASSERT_EQ(quick.events.size(), slow.events.size()) << view;
    for (std::size_t k = 0; k < quick.events.size(); ++k) {
      ASSERT_EQ(quick.events[k].name, slow.events[k].name) << view;
      ASSERT_EQ(quick.events[k].args, slow.events[k].args) << view;
      ASSERT_EQ(quick.events[k].begin_ns, slow.events[k].begin_ns) << view;
      ASSERT_EQ(quick.events[k].correlation, slow.events[k].correlation) << view;
    }
    ASSERT_EQ(quick.used, slow.used) << view;
    ASSERT_EQ(quick.elements, slow.elements) << view;
    ASSERT_EQ(quick.unreadable.count, slow.unreadable.count) << view;
    ASSERT_EQ(quick.ended, slow.ended) << view;
    ASSERT_EQ(quick.cut, slow.cut) << view;
    sound += slow.unreadable.count == 0;
  }
  EXPECT_GT(sound, 100);  // Else the quick way was never taken.
}

}  // namespace
}  // namespace lockstep::kineto
