#pragma once
// The report as one page: report.html. No network, no other files; scripts and styles are
// the built bundle of web/, data is embedded.

#include <cstdint>
#include <string>

#include "analysis/analyze.h"
#include "analysis/report/html/heatmap.h"
#include "analysis/report/html/lanes.h"

namespace lockstep::report {

struct HtmlOptions {
  HeatmapLimits heatmap;
  LaneLimits lanes;
  std::int64_t first_timeline_step = -1, last_timeline_step = -1;  // Shown beside the median, worst and best.
};

struct HtmlReport {
  analysis::Analysis analysis;
  std::string page;
};

// Analyses the run and writes it as a page. Same run, same bytes. Errors as Analyze().
Result<HtmlReport> MakeHtmlReport(const merge::Timeline& timeline, const analysis::AnalyzeOptions& options,
                                  const HtmlOptions& html);

}  // namespace lockstep::report
