// Do real traces read as Python's json module reads them?

#include <sys/wait.h>

#include <climits>
#include <cstdio>
#include <filesystem>

#include "collect.h"
#include "tests/unit/all_runs.h"

namespace lockstep::kineto {
namespace {

// Per file: elements, times, name bytes, correlations and argument texts' meaning, summed.
constexpr const char* kOracle = R"PY(
import decimal, gzip, json, sys
data = json.loads(gzip.open(sys.argv[1]).read(), parse_float=decimal.Decimal)
begin = duration = names = correlations = external = streams = 0
for e in data["traceEvents"]:
    begin += int(e.get("ts", 0) * 1000)
    duration += int(e.get("dur", 0) * 1000)
    names += len(e.get("name", "").encode())
    args = e.get("args", {})
    correlations += args.get("correlation", 0) if e["ph"] == "X" else 0
    external += args.get("External id", 0)
    streams += args.get("stream", 0)
print(len(data["traceEvents"]), begin % 2**64, duration, names, correlations, external, streams, data.get("baseTimeNanoseconds", 0), data["traceName"])
)PY";

// Those of more than a megabyte, in the soak.
TEST(KinetoRealTraces, EqualWhatPythonReads) {
  const std::filesystem::path traces = std::filesystem::path(LOCKSTEP_SHARED_DIR) / "traces";
  if (!std::filesystem::exists(traces)) GTEST_SKIP() << "no reference traces";
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(traces)) {
    const std::string path = entry.path();
    if (!path.ends_with(".json.gz") || entry.file_size() > static_cast<std::uintmax_t>(test::Runs(1'000'000, INT_MAX)))
      continue;
    ++files;
    std::string expected(4096, '\0');
    ASSERT_EQ(::setenv("LOCKSTEP_TEST_ORACLE", kOracle, 1), 0);
    std::FILE* python = ::popen(("/usr/bin/python3 -c \"$LOCKSTEP_TEST_ORACLE\" '" + path + "'").c_str(), "r");
    ASSERT_NE(python, nullptr);
    expected.resize(std::fread(expected.data(), 1, expected.size(), python));
    if (::pclose(python) != 0) GTEST_SKIP() << "/usr/bin/python3 cannot be used";

    const Outcome outcome = ReadPath(path, {.jobs = 2, .python_functions = true, .batch_bytes = 100'000});
    std::uint64_t begin = 0;
    std::int64_t duration = 0, names = 0, correlations = 0, external = 0, streams = 0;
    const auto add = [](std::int64_t& sum, std::int64_t value) { sum += value == kAbsent ? 0 : value; };
    for (const Kept& kept : outcome.events) {
      if (kept.event.begin_ns != kAbsent) begin += static_cast<std::uint64_t>(kept.event.begin_ns);
      add(duration, kept.event.duration_ns);
      names += static_cast<std::int64_t>(kept.name.size());
      if (kept.event.phase == 'X') add(correlations, kept.event.correlation);
      add(external, kept.event.external_id);
      add(streams, kept.event.stream);
    }
    std::string actual = std::to_string(outcome.events.size()) + " " + std::to_string(begin);
    for (const std::int64_t sum : {duration, names, correlations, external, streams, outcome.result.facts.base_time_ns})
      actual += " " + std::to_string(sum);
    EXPECT_EQ(actual + " " + outcome.result.facts.trace_name + "\n", expected) << path;
    EXPECT_EQ(outcome.Defects(), "") << path;
    EXPECT_FALSE(outcome.result.facts.distributed_info.empty()) << path;
    EXPECT_TRUE(outcome.result.facts.device_properties.starts_with("[")) << path;
  }
  EXPECT_GT(files, 0u);
}

}  // namespace
}  // namespace lockstep::kineto
