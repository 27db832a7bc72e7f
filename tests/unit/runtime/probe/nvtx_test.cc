// The NVTX source, seen from outside: a program that uses NVTX runs with the probe
// injected, and the rings hold exactly what it did. Each test runs with every host
// there is: the real headers, and the tests' own.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "tests/unit/runtime/probe/probe_child.h"

namespace lockstep::probe {
namespace {

const std::string kInjection = std::string("NVTX_INJECTION64_PATH=") + kProbe;

std::vector<std::string> Hosts() {
  std::vector<std::string> hosts{LOCKSTEP_BUILD_DIR "/tests/nvtx_scenarios_host"};
#ifdef LOCKSTEP_REAL_NVTX
  hosts.emplace_back(LOCKSTEP_BUILD_DIR "/tests/nvtx_scenarios_real");
#endif
  return hosts;
}

class Nvtx : public testing::TestWithParam<std::string> {
 protected:
  ProbeChild Start(TestSegment& segment, std::vector<std::string> arguments, std::vector<std::string> env = {}) {
    env.push_back(kInjection);
    return ProbeChild(segment.path(), std::move(arguments), env, GetParam().c_str());
  }
  int Run(TestSegment& segment, std::vector<std::string> arguments, std::vector<std::string> env = {}) {
    env.push_back(kInjection);
    ProbeChild child(segment.path(), std::move(arguments), env, GetParam().c_str());
    const std::string errors = child.Errors();
    const int status = child.Wait();
    EXPECT_EQ(errors, "");
    return status;
  }
};
INSTANTIATE_TEST_SUITE_P(Hosts, Nvtx, testing::ValuesIn(Hosts()),
                         [](const auto& host) { return host.param.substr(host.param.rfind('_') + 1); });

std::map<std::uint32_t, std::string> DomainsOf(TestSegment& segment) {
  std::map<std::uint32_t, std::string> domains;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kDomain))
    domains[record.As<StringRecord>().id] = record.Text();
  return domains;
}

// "domain/name@depth" in order of the records.
std::vector<std::string> Described(TestSegment& segment, RecordKind kind = RecordKind::kRange) {
  auto domains = DomainsOf(segment);
  std::vector<std::string> all;
  for (const NamedRange& each : RangesOf(segment, kind))
    all.push_back(((each.flags & 15) == 0   ? "lockstep"
                   : each.range.domain == 0 ? ""
                                            : domains[each.range.domain]) +
                  "/" + each.name + "@" + std::to_string(each.range.depth));
  return all;
}

TEST_P(Nvtx, EveryKindOfName) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"names"}), 0);
  const std::vector<std::string> expected{"/inner@1",
                                          "/wide \xc3\xbc"
                                          "ber \xe4\xb8\xad \xf0\x9f\x98\x80@1",
                                          "/from attributes@1",
                                          "/wide attributes@1",
                                          "library/registered wide@1",
                                          "library/registered@0",
                                          "library/registered wide@1",
                                          "library/registered@0",
                                          "library/registered wide@1",
                                          "library/registered@0",
                                          "/@1",
                                          "/outer@0",
                                          "/" + std::string(4095, 'x') + "@0"};
  EXPECT_EQ(Described(segment), expected);
  EXPECT_EQ(Described(segment, RecordKind::kMark),
            (std::vector<std::string>{"/mark@0", "/wide mark@0", "library/domain mark@0"}));
  for (const NamedRange& each : RangesOf(segment)) {
    EXPECT_EQ(each.flags, 1);
    EXPECT_EQ(each.range.payload, 0);
    EXPECT_LT(each.range.begin_ticks, each.range.end_ticks);
  }
  EXPECT_EQ(segment.ReadKind(RecordKind::kDomain).size(), 1u);
  EXPECT_EQ(segment.view().processes()[0].nvtx_used, 1u);  // One object.
  EXPECT_EQ(segment.view().processes()[0].lockstep_used, 0u);
}

TEST_P(Nvtx, TheSameWithTheRawClock) {
  TestSegmentOptions options;
  options.mode = ClockMode::kRaw;
  TestSegment raw(options), tsc;
  ASSERT_EQ(Run(raw, {"names"}), 0);
  ASSERT_EQ(Run(tsc, {"names"}), 0);
  EXPECT_EQ(Described(raw), Described(tsc));
}

TEST_P(Nvtx, NamesInOneBufferAreToldApart) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"dynamic"}), 0);
  const auto ranges = RangesOf(segment);
  ASSERT_EQ(ranges.size(), 1000u);
  for (std::size_t i = 0; i < ranges.size(); ++i)
    ASSERT_EQ(ranges[i].name, "a name made at run time, for request 00" + std::to_string(i % 10));
  EXPECT_EQ(segment.ReadKind(RecordKind::kString).size(), 10u);
}

TEST_P(Nvtx, MoreRegisteredStringsThanHaveAPlace) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"many-strings"}), 0);
  const auto ranges = RangesOf(segment);
  ASSERT_EQ(ranges.size(), 2000u);
  for (std::size_t i = 0; i < ranges.size(); ++i) ASSERT_EQ(ranges[i].name, "text " + std::to_string(i % 1000));
}

TEST_P(Nvtx, DomainsInterleaveWithEachOtherAndWithOurs) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"domains"}), 0);
  const std::vector<std::string> once{"A/a1@1", "lockstep/ours@0", "A/a0@0", "/default@0", "B/b1@1", "B/b0@0"};
  std::vector<std::string> expected = once;
  expected.insert(expected.end(), once.begin(), once.end());
  EXPECT_EQ(Described(segment), expected);
  EXPECT_EQ(segment.view().processes()[0].range_unbalanced, 2u);
  EXPECT_EQ(segment.view().ring(segment.view().rings()[0].offset).nvtx_depth, 0u);
}

TEST_P(Nvtx, DepthIsBoundedAndUnbalancedPopsAreCounted) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"deep"}), 0);
  std::map<std::string, int> counts;
  for (const NamedRange& each : RangesOf(segment)) ++counts[each.name];
  EXPECT_EQ(counts,
            (std::map<std::string, int>{{"deep", 64}, {"in A", 32}, {"default", 32}, {"abyss", 64}, {"after", 1}}));
  EXPECT_EQ(segment.view().processes()[0].range_too_deep, 6u + 36u + 336u);
  EXPECT_EQ(segment.view().processes()[0].range_unbalanced, 3u);
}

TEST_P(Nvtx, PayloadsAndCategories) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"payloads"}), 0);
  std::map<std::uint32_t, std::string> names;
  std::vector<std::tuple<std::string, std::int64_t, int, std::uint32_t>> found;
  const auto bits = [](double value) {
    std::int64_t result;
    std::memcpy(&result, &value, sizeof result);
    return result;
  };
  std::uint32_t domain = 0;
  for (const TestRecord& record : segment.ReadAll()) {
    if (record.kind == RecordKind::kString) names[record.As<StringRecord>().id] = record.Text();
    if (record.kind != RecordKind::kRange && record.kind != RecordKind::kMark) continue;
    const auto range = record.As<RangeRecord>();
    RangeExtra extra{range.payload, static_cast<std::uint8_t>(range.payload != 0), {}, 0, {}};
    if (record.bytes.size() > kSlotBytes) {
      EXPECT_EQ(range.payload, 0);
      std::memcpy(static_cast<void*>(&extra), record.bytes.data() + kSlotBytes, sizeof extra);
    }
    domain = std::max<std::uint32_t>(domain, range.domain);
    found.emplace_back(names[range.name] + (range.domain != 0 ? " in D" : ""), extra.payload, extra.payload_kind,
                       extra.category);
  }
  EXPECT_EQ(found,
            (std::vector<std::tuple<std::string, std::int64_t, int, std::uint32_t>>{{"u64", 0x123456789abcdef0, 1, 0},
                                                                                    {"i64", -5000000000, 1, 0},
                                                                                    {"small i64", -5, 1, 0},
                                                                                    {"small i64", -5, 1, 0},
                                                                                    {"u32", 4000000000, 1, 0},
                                                                                    {"i32", -7, 1, 0},
                                                                                    {"double", bits(2.5), 2, 0},
                                                                                    {"float", bits(-0.25), 2, 0},
                                                                                    {"zero", 0, 0, 0},
                                                                                    {"categorised", 0, 0, 7},
                                                                                    {"categorised in D", 0, 0, 7},
                                                                                    {"categorised in D", 3, 1, 9},
                                                                                    {"categorised in D", 3, 1, 9}}));
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> categories;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kCategory))
    categories[{record.As<StringRecord>().reserved[0], record.As<StringRecord>().id}] = record.Text();
  // Those in use.
  EXPECT_EQ(categories, (std::map<std::pair<std::uint32_t, std::uint32_t>, std::string>{{{0, 7}, "Input"},
                                                                                        {{domain, 7}, "seven of D"}}));
}

TEST_P(Nvtx, PayloadExtensionKeepsTheFirstNumber) {
  TestSegment segment;
  ProbeChild child(segment.path(), {"extension"}, {kInjection}, GetParam().c_str());
  const int status = child.Wait();
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "the tests' own host has no extensions";
  ASSERT_EQ(status, 0) << child.Errors();
  std::map<std::uint32_t, std::string> names;
  std::vector<std::pair<std::string, std::int64_t>> found;
  for (const TestRecord& record : segment.ReadAll()) {
    if (record.kind == RecordKind::kString) names[record.As<StringRecord>().id] = record.Text();
    if (record.kind != RecordKind::kRange && record.kind != RecordKind::kMark && record.kind != RecordKind::kRangeStart)
      continue;
    const auto range = record.As<RangeRecord>();
    RangeExtra extra{range.payload, 0, {}, 0, {}};
    if (record.bytes.size() > kSlotBytes)
      std::memcpy(static_cast<void*>(&extra), record.bytes.data() + kSlotBytes, sizeof extra);
    found.emplace_back(names[range.name], extra.payload);
  }
  EXPECT_EQ(found, (std::vector<std::pair<std::string, std::int64_t>>{{"struct", 4000000001},
                                                                      {"struct", -77},
                                                                      {"struct", -77},
                                                                      {"struct", 0},
                                                                      {"struct", 0},
                                                                      {"only large", -77},
                                                                      {"only large", -77},
                                                                      {"only large", -77}}));
}

TEST_P(Nvtx, StartEndRangesAcrossThreads) {
  TestSegmentOptions options;
  TestSegment segment(options);
  ASSERT_EQ(Run(segment, {"start-end"}), 0);
  std::map<std::uint64_t, std::tuple<std::string, std::uint32_t, std::uint64_t>> started;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> names;
  const auto records = segment.ReadAll();
  for (const TestRecord& record : records) {
    if (record.kind == RecordKind::kString) names[{record.ring, record.As<StringRecord>().id}] = record.Text();
    if (record.kind != RecordKind::kRangeStart) continue;
    const auto range = record.As<RangeRecord>();
    EXPECT_TRUE(
        started.emplace(range.end_ticks, std::tuple(names[{record.ring, range.name}], record.ring, range.begin_ticks))
            .second)
        << "an id twice";
  }
  std::map<std::string, int> ended, forgotten, crossed;
  for (const TestRecord& record : records) {
    if (record.kind != RecordKind::kRangeEnd) continue;
    const auto range = record.As<RangeRecord>();
    const auto start = started.find(range.begin_ticks);
    if (start == started.end()) {
      ++ended["?"];
      continue;
    }
    EXPECT_GE(range.end_ticks, std::get<2>(start->second));
    ++((range.depth & kRangeForgotten) != 0 ? forgotten : ended)[std::get<0>(start->second)];
    crossed[std::get<0>(start->second)] += record.ring != std::get<1>(start->second);
  }
  EXPECT_EQ(started.size(), 3005u);
  EXPECT_EQ(ended,
            (std::map<std::string, int>{{"across", 1}, {"wide", 1}, {"from thread", 1}, {"many", 3000}, {"?", 1}}));
  EXPECT_EQ(forgotten, (std::map<std::string, int>{{"ended while off", 1}}));
  EXPECT_EQ(crossed["across"], 1);
  EXPECT_EQ(crossed["from thread"], 1);
  EXPECT_EQ(crossed["many"], 0);
}

TEST_P(Nvtx, ThreadsShareDomainsAndStrings) {
  TestSegment segment;
  // NVTX starts itself once; the tests' own host does not expect two threads to do so.
  ASSERT_EQ(Run(segment, {"threads", "16", "1500"}, {"LOCKSTEP_TEST_EARLY=1"}), 0);
  std::map<std::uint32_t, std::map<std::string, int>> counts;
  for (const NamedRange& each : RangesOf(segment)) ++counts[0][each.name];
  EXPECT_EQ(counts[0]["of a thread"], 16 * 1500);
  EXPECT_EQ(counts[0]["literal"], 16 * 1500);
  const auto domains = DomainsOf(segment);
  EXPECT_EQ(domains, (std::map<std::uint32_t, std::string>{{domains.begin()->first, "threads"}}));
}

TEST_P(Nvtx, TheRecordingWindowClosesAndOpens) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"window"}), 0);
  EXPECT_EQ(Described(segment), (std::vector<std::string>{"/on again@0", "A/on in A@0"}));
}

TEST_P(Nvtx, NothingIsWrittenWhileRecordingIsOff) {
  TestSegmentOptions options;
  options.recording = false;
  for (const char* scenario : {"names", "domains", "deep", "dynamic", "payloads"}) {
    TestSegment segment(options);
    ASSERT_EQ(Run(segment, {scenario}), 0) << scenario;
    EXPECT_TRUE(segment.ReadAll().empty()) << scenario;
    EXPECT_EQ(segment.view().processes()[0].nvtx_used, 1u);
  }
}

TEST_P(Nvtx, AForkedChildIsInertUntilItUsesNvtxItself) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"fork"}), 0);
  ASSERT_EQ(segment.header().processes_used, 2u);
  EXPECT_EQ(segment.view().processes()[1].nvtx_used, 1u);
  EXPECT_EQ(segment.view().processes()[1].range_unbalanced, 1u);
  std::map<std::uint32_t, std::set<std::string>> domains, ranges;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> names;
  int ends = 0;
  for (const TestRecord& record : segment.ReadAll()) {
    if (record.kind == RecordKind::kString) names[{record.ring, record.As<StringRecord>().id}] = record.Text();
    if (record.kind == RecordKind::kDomain) domains[record.process].insert(record.Text());
    if (record.kind == RecordKind::kRange)
      ranges[record.process].insert(names[{record.ring, record.As<RangeRecord>().name}]);
    ends += record.kind == RecordKind::kRangeEnd;
  }
  EXPECT_EQ(domains[0], std::set<std::string>{"A"});
  EXPECT_EQ(domains[1], std::set<std::string>{"A"});  // Its file must know, too.
  EXPECT_EQ(ranges[0], (std::set<std::string>{"open in the parent", "of the parent"}));
  EXPECT_EQ(ranges[1], std::set<std::string>{"of the child"});
  EXPECT_EQ(ends, 1);
}

TEST_P(Nvtx, OpenRangesOutliveTheProcess) {
  TestSegment segment;
  ProbeChild child(segment.path(), {"open"}, {kInjection}, GetParam().c_str());
  ASSERT_EQ(child.Line(), "open");
  child.Kill();
  child.Wait();
  const RingHeader& ring = segment.view().ring(segment.view().rings()[0].offset);
  ASSERT_EQ(ring.nvtx_depth, 2u);
  EXPECT_EQ(ring.range_depth, 1u);
  EXPECT_EQ(ring.nvtx[0].domain, 0u);
  EXPECT_EQ(ring.nvtx[1].payload_kind, 2u);
  EXPECT_EQ(segment.ReadKind(RecordKind::kRangeStart).size(), 1u);
  EXPECT_EQ(RangesOf(segment).size(), 100u);
}

// What the program itself did is there, all of it and under its name; only a handler's own records are ever dropped.
void CheckHandlersRanges(const std::string& host, const std::vector<std::string>& scenario) {
  TestSegmentOptions options;
  options.main_ring_slots = 1 << 20;
  options.bytes = std::uint64_t{64} << 20;
  TestSegment segment(options);
  ProbeChild child(segment.path(), scenario, {kInjection}, host.c_str());
  const long made = std::atol(child.Line().c_str());
  ASSERT_EQ(child.Wait(), 0) << child.Errors();
  ASSERT_GT(made, 10);
  // Read() checks the chain of records.
  long outer = 0, inner = 0, handler = 0;
  const RingHeader& ring = segment.view().ring(segment.view().rings()[0].offset);
  for (const NamedRange& each : RangesOf(segment)) {
    ASSERT_LE(each.range.begin_ticks, each.range.end_ticks);
    if (each.name == "handler" || each.name.starts_with("handler ")) {
      ++handler;
    } else if (each.name == "outer") {
      ++outer;
      ASSERT_NE(each.range.domain, 0);
    } else if (each.name != "first") {
      ASSERT_TRUE(each.name == "main" || each.name.rfind("name ", 0) == 0) << each.name;
      ASSERT_EQ(each.range.domain, 0);
      ++inner;
    }
  }
  EXPECT_GT(handler, 0);
  EXPECT_EQ(outer, made);
  EXPECT_EQ(inner, made);
  EXPECT_EQ(ring.nvtx_depth, 0u);
  EXPECT_EQ(segment.view().processes()[0].range_unbalanced, 0u);
}

TEST_P(Nvtx, SignalHandlersMayUseItInTheMiddleOfIt) { CheckHandlersRanges(GetParam(), {"signals", "100000"}); }

#if defined(__x86_64__)
TEST_P(Nvtx, SignalHandlersMayUseItAfterAnyInstruction) { CheckHandlersRanges(GetParam(), {"stepped", "30"}); }
#endif

TEST_P(Nvtx, BeforeMainAndAfterIt) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"nothing"}, {"LOCKSTEP_TEST_EARLY=1"}), 0);
  EXPECT_EQ(Described(segment), (std::vector<std::string>{"/before main@0", "/at exit@0"}));
  std::set<std::string> marks;
  for (const NamedRange& each : RangesOf(segment, RecordKind::kMark)) marks.insert(each.name);
  EXPECT_EQ(marks, (std::set<std::string>{"after main", "thread after main"}));
}

TEST_P(Nvtx, ThreadsAreNamed) {
  TestSegment segment;
  ASSERT_EQ(Run(segment, {"thread-names"}, {"LOCKSTEP_TEST_EARLY=1"}), 0);
  std::set<std::pair<bool, std::string>> names;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kThreadName))
    names.emplace(record.As<StringRecord>().id != 0, record.Text());
  EXPECT_TRUE(names.count({false, "named by itself"}));
  EXPECT_TRUE(names.count({true, "another"}));
  EXPECT_EQ(names.count({true, "as a resource"}), GetParam().find("real") != std::string::npos ? 1u : 0u);
}

TEST_P(Nvtx, ErrnoIsKept) {
  TestSegment segment;
  EXPECT_EQ(Run(segment, {"errno"}), 0);
  TestSegmentOptions full;
  full.bytes = kArenaOffset + 8192;
  TestSegment without_room(full);
  ProbeChild child(without_room.path(), {"dynamic"}, {kInjection}, GetParam().c_str());
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(without_room.view().processes()[0].dropped_no_ring, 1000u);
}

void Watch(TestSegment& segment, const char* range, const char* step_range) {
  WindowSpec& window = segment.header().window;
  window.range_source = 255;
  window.armed_begin = window.armed_end = -1;
  if (range != nullptr) {
    window.kind = WindowKind::kRange;
    std::strcpy(window.range_name, range);
    Record(segment.view(), false);
  }
  if (step_range != nullptr) {
    std::strcpy(window.step_range, step_range);
  }
}

TEST_P(Nvtx, ACaptureWindowFollowsARange) {
  TestSegment segment;
  Watch(segment, "window", nullptr);
  ASSERT_EQ(Run(segment, {"watched"}), 0);
  std::map<std::string, int> counts;
  for (const std::string& each : Described(segment)) ++counts[each];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"A/window@0", 3}, {"/inside@0", 30}, {"lockstep/ours inside@1", 30}}));
  int on = 0, off = 0;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kWindow)) ++((record.flags & 1) != 0 ? on : off);
  EXPECT_EQ(on, 3);
  EXPECT_EQ(off, 3);
}

TEST_P(Nvtx, ACaptureWindowFollowsAStartEndRange) {
  TestSegment segment;
  Watch(segment, "window", nullptr);
  ASSERT_EQ(Run(segment, {"watched-start"}), 0);
  EXPECT_EQ(Described(segment), (std::vector<std::string>{"/inside@0", "/inside@0"}));
  EXPECT_EQ(segment.ReadKind(RecordKind::kRangeStart).size(), 2u);
  EXPECT_EQ(segment.ReadKind(RecordKind::kRangeEnd).size(), 2u);
}

TEST_P(Nvtx, ACaptureWindowFollowsOurRanges) {
  TestSegment segment;
  Watch(segment, "window", nullptr);
  ASSERT_EQ(Run(segment, {"watched-ours"}), 0);
  std::map<std::string, int> counts;
  for (const std::string& each : Described(segment)) ++counts[each];
  EXPECT_EQ(counts, (std::map<std::string, int>{{"lockstep/window@0", 3}, {"lockstep/inside@1", 15}}));
}

TEST_P(Nvtx, StepsFollowARange) {
  TestSegment segment;
  Watch(segment, nullptr, "window");
  ASSERT_EQ(Run(segment, {"watched"}), 0);
  std::set<std::int64_t> steps;
  for (const TestRecord& record : segment.ReadKind(RecordKind::kStep))
    if ((record.flags & 0x80) == 0) steps.insert(record.As<StepRecord>().index);
  EXPECT_EQ(steps, (std::set<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(RangesOf(segment).size(), 4u * 24);
}

TEST_P(Nvtx, WithoutASegmentItIsNotInjected) {
  ProbeChild child("", {"names"}, {kInjection}, GetParam().c_str());
  EXPECT_NE(child.Wait(), 0);  // Levels are not kept: the scenario notices.
  ProbeChild loop("", {"loop", "literal", "1000"}, {kInjection}, GetParam().c_str());
  EXPECT_EQ(loop.Wait(), 0);
}

}  // namespace
}  // namespace lockstep::probe
