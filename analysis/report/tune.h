#pragma once
// What `lockstep tune` answers, as text and as JSON ("lockstep.tune/1", docs/tune.md).

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "analysis/report/text.h"
#include "analysis/tune/session.h"
#include "analysis/tune/settings.h"

namespace lockstep::report {

struct TuneReport {
  std::vector<std::string> command;
  std::string directory;  // Where everything lies.
  std::int64_t ranks = 0, steps_per_run = 0;
  double step_ns = 0;  // Of the recorded run of the job as it is, mean.
  double budget_s = 0, elapsed_s = 0;
  std::size_t runs = 0;  // Besides those of the job as it is at the beginning.
  std::int64_t peak_bytes = 0;
  std::vector<tune::Candidate> candidates;
  std::vector<tune::Row> rows;                     // Of each candidate; those that were dropped have verdict kNotTried.
  std::vector<std::int64_t> candidate_peak_bytes;  // Largest over its runs; 0: none.
  std::vector<std::size_t> best;                   // Recommended.
  std::optional<tune::Estimate> total;
  bool decided = false;
  std::string trouble;       // Why it had to end; "" if it did not.
  std::string not_replayed;  // Why nothing is promised; "" if it is.
  std::string unchecked;     // Why losses were not compared; "" if they were.
  double loss_noise = 0;     // Relative, between runs of the job as it is.
  bool checked_by_command = false;
};

std::string_view Name(tune::Verdict verdict);  // As JSON has it: "better".
// Ends with a newline.
std::string RenderTuneText(const TuneReport& report, const TextOptions& options);
nlohmann::ordered_json RenderTuneJson(const TuneReport& report);

}  // namespace lockstep::report
