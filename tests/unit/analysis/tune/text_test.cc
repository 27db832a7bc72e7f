// What tune answers, to the byte, on terminals of several widths.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "analysis/report/tune.h"
#include "core/wrap.h"

namespace lockstep::tune {
namespace {

Row Confirmed(Verdict verdict, const Estimate& estimate) {
  Row row;
  row.verdict = verdict;
  row.confirmed = estimate;
  return row;
}

Row Refused(Verdict verdict, const std::string& why) {
  Row row;
  row.verdict = verdict;
  row.why = why;
  return row;
}

report::TuneReport Tuned() {
  report::TuneReport report;
  report.ranks = 8;
  report.step_ns = 47.3e6;
  report.budget_s = 600;
  report.elapsed_s = 412.4;
  report.runs = 34;
  report.peak_bytes = std::int64_t{900} << 20;
  const auto add = [&](const char* setting, const char* value, Row row) {
    report.candidates.push_back({.setting = FindSetting(setting), .value = value, .promise = {}, .dropped = {}});
    report.rows.push_back(std::move(row));
    report.candidate_peak_bytes.push_back(std::int64_t{1'004} << 20);
    return report.candidates.size() - 1;
  };
  report.best = {add("ddp.bucket_cap_mb", "4", Confirmed(Verdict::kBetter, {0.134, 0.129, 0.141, 12})),
                 add("threads.omp", "2", Confirmed(Verdict::kBetter, {0.021, 0.012, 0.031, 9}))};
  report.candidates[0].promise = Promise{.gain = 0.136, .low = 0.12, .high = 0.15};
  add("openmpi.all_reduce_segments", "1048576", Confirmed(Verdict::kNoGain, {-0.002, -0.006, 0.003, 12}));
  report.candidates.back().promise = Promise{.high = 0.15, .bound = true};
  add("ddp.static_graph", "True",
      Refused(Verdict::kFailed, "RuntimeError: Your training graph has changed in this iteration"));
  add("ddp.first_bucket_mb", "4", Refused(Verdict::kChanged, "the loss of step 3 is 2.31, before 2.3017"));
  add("nccl.protocol", "LL128", {});
  report.candidates.back().dropped = "the job has no collective of NCCL";
  report.total = Estimate{0.152, 0.143, 0.161, 9};
  report.decided = true;
  report.loss_noise = 3e-6;
  return report;
}

// As `lockstep tune` shows it on a terminal.
std::string OnTerminal(const report::TuneReport& report, unsigned columns, bool unicode) {
  return WrapLongLines(report::RenderTuneText(report, {.unicode = unicode, .terminal = true, .width = columns}),
                       columns);
}

// LOCKSTEP_UPDATE_GOLDEN=1 writes it anew.
TEST(TuneText, OnTerminals) {
  std::string shown;
  for (const bool unicode : {true, false})
    for (const unsigned columns : {60u, 80u, 120u, 200u})
      shown += "---------- " + std::to_string(columns) + (unicode ? " columns\n" : " columns, ASCII\n") +
               OnTerminal(Tuned(), columns, unicode);
  const std::string path = std::string(LOCKSTEP_SOURCE_DIR) + "/tests/unit/analysis/tune/terminal.golden.txt";
  if (std::getenv("LOCKSTEP_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << shown;
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(shown, golden.str());
}

TEST(TuneText, FitsAndIsAsciiWhereNothingElseIsShown) {
  report::TuneReport nothing, failed = Tuned(), spent;
  nothing.decided = true;
  failed.best.clear();
  failed.trouble = "exit code 1";
  spent.not_replayed = "the run has no steps";
  spent.unchecked = "the job prints no losses";
  for (const report::TuneReport& report : {Tuned(), nothing, failed, spent})
    for (const bool unicode : {true, false})
      for (unsigned columns = 40; columns <= 200; columns += 7) {
        std::istringstream lines(OnTerminal(report, columns, unicode));
        for (std::string line; std::getline(lines, line);) {
          const std::size_t word = std::min(line.find_first_not_of(' '), line.size());
          if (line.find(' ', word) != std::string::npos) {  // A word of its own may be wider than the terminal.
            EXPECT_LE(PaintedColumns(line), columns) << line;
          }
          if (!unicode) {
            EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) {
              return static_cast<unsigned char>(c) < 0x80;
            })) << line;
          }
        }
      }
}

}  // namespace
}  // namespace lockstep::tune
