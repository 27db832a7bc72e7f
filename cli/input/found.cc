#include "cli/input/found.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "analysis/analyze.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// Returns false if there is no readable analysis of this timeline.
bool ReadFindings(const merge::Timeline& timeline, std::vector<exporters::Finding>& findings) {
  const std::string& run_dir = timeline.run_dir;
  std::error_code absent;
  const fs::path path = fs::path(run_dir) / "analysis.json";
  const auto made = fs::last_write_time(path, absent);
  if (absent || !fs::is_regular_file(path, absent) ||
      made < fs::last_write_time(fs::path(run_dir) / "timeline.h5", absent) || absent)
    return false;
  std::ifstream file(path);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) return false;
  // Another command may have analysed other steps meanwhile.
  const auto run = json.find("run");
  if (run == json.end() || !run->is_object() || run->value("merged_with", nlohmann::json()) != timeline.Meta("options"))
    return false;
  const auto list = json.find("findings");
  if (list == json.end() || !list->is_array()) return false;
  const auto text = [](const nlohmann::json& from, const char* key) {
    const auto at = from.find(key);
    return at != from.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const auto number = [](const nlohmann::json& from, const char* key) {
    const auto at = from.find(key);
    return at != from.end() && at->is_number_integer() ? at->get<std::int64_t>() : std::int64_t{-1};
  };
  for (const auto& item : *list) {
    if (!item.is_object()) continue;
    exporters::Finding finding{text(item, "id"), text(item, "headline"), text(item, "evidence"), text(item, "action")};
    const std::int64_t rank = number(item, "rank");
    finding.rank = rank >= 0 && rank <= INT32_MAX ? static_cast<std::int32_t>(rank) : -1;
    finding.saves_ns_per_step = number(item, "saves_ns_per_step");
    findings.push_back(std::move(finding));
  }
  return true;
}

}  // namespace

std::vector<exporters::Finding> FindingsOf(const merge::Timeline& timeline, unsigned jobs, std::string& trouble) {
  std::vector<exporters::Finding> findings;
  if (ReadFindings(timeline, findings)) return findings;
  findings.clear();
  analysis::AnalyzeOptions options;
  options.jobs = jobs;
  const Result<analysis::Analysis> analysis = analysis::Analyze(timeline, options);
  if (!analysis.ok()) {
    trouble = analysis.error().what;
    return findings;
  }
  for (const lockstep::analysis::Finding& found : analysis.value().findings)
    findings.push_back({std::string(analysis::KindOf(found.id).name), found.headline, found.evidence, found.action,
                        found.rank, found.saves_ns_per_step.value_or(-1)});
  return findings;
}

}  // namespace lockstep::cli
