// Writes a sample as JSON, and reads it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/diff/sample.h"
#include "analysis/rules/diff.h"

namespace lockstep::diff {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kSchema = "lockstep.baseline/2";
constexpr NameKind kKinds[] = {NameKind::kKernel, NameKind::kOperator, NameKind::kRange};

// Times are whole ns in files; fractions keep nine digits.
double Rounded(double value) {
  return std::fabs(value) >= rules::kBaselineWholeFrom ? std::round(value) : std::round(value * 1e9) / 1e9;
}

Json ToJson(const Spread& spread) {
  if (spread.count == 0) return nullptr;
  return {{"mean", Rounded(spread.center)},
          {"low", Rounded(spread.low)},
          {"high", Rounded(spread.high)},
          {"count", spread.count}};
}

// Every access below may throw if the file has other contents.
Spread ToSpread(const Json& json) {
  if (json.is_null()) return {};
  return {json.at("mean").get<double>(), json.at("low").get<double>(), json.at("high").get<double>(),
          json.at("count").get<std::int64_t>()};
}

// Of a named row.
Spread ToSpread(const Json& row, const std::string& key, std::int64_t steps) {
  const Json& interval = row.at(key + "_interval");
  return {row.at(key).get<double>(), interval.at(0).get<double>(), interval.at(1).get<double>(), steps};
}

template <typename T>
std::optional<T> OrNothing(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return std::nullopt;
  return at->get<T>();
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// A cause that this version does not know is an unknown one.
std::optional<analysis::CauseId> ToCause(const std::optional<std::string>& name) {
  if (!name || name->empty()) return std::nullopt;
  const auto at = std::find(analysis::kCauseNames.begin(), analysis::kCauseNames.end(), *name);
  if (at == analysis::kCauseNames.end()) return analysis::CauseId::kUnknown;
  return static_cast<analysis::CauseId>(at - analysis::kCauseNames.begin());
}

RunSample Parse(const Json& json) {
  RunSample sample;
  const Json& run = json.at("run");
  sample.job = run.at("job").get<std::string>();
  sample.lockstep_version = json.at("lockstep_version").get<std::string>();
  sample.ranks = run.at("ranks").get<std::int64_t>();
  sample.nodes = run.at("nodes").get<std::int64_t>();
  sample.gpu_ranks = run.at("gpu_ranks").get<std::int64_t>();
  sample.gpu_names = run.at("gpu_names").get<std::vector<std::string>>();
  sample.steps_kind = run.at("steps_kind").get<std::string>();
  sample.classes = run.at("classes").get<std::string>();
  sample.steps = run.at("steps").get<std::int64_t>();
  sample.shared_cores = run.at("shared_cores").get<std::int64_t>();
  sample.incomplete = run.at("incomplete").get<std::vector<std::string>>();
  for (const auto& [name, spread] : json.at("measures").items()) sample.measures.push_back({name, ToSpread(spread)});
  sample.long_steps = json.at("long_steps").get<std::int64_t>();
  sample.other_steps_ns = ToSpread(json.at("other_steps_ns"));
  for (const Json& rank : json.at("ranks"))
    sample.rank_samples.push_back({rank.at("rank").get<std::int32_t>(), rank.at("node").get<std::string>(),
                                   ToSpread(rank.at("compute_ns")), OrNothing<std::int64_t>(rank, "sm_clock_mhz"),
                                   ToCause(OrNothing<std::string>(rank, "straggler")),
                                   OrNothing<double>(rank, "blocked_ns").value_or(0)});
  for (const Json& row : json.at("collectives"))
    sample.collectives.push_back({row.at("op").get<std::string>(), row.at("members").get<std::int64_t>(),
                                  row.at("bytes").get<std::uint64_t>(), row.at("per_step").get<double>(),
                                  ToSpread(row.at("transfer_ns")), ToSpread(row.at("wait_ns"))});
  for (const auto& [name, spread] : json.at("phases").items()) sample.phases.push_back({name, ToSpread(spread)});
  if (const auto phases = json.find("rank_phases"); phases != json.end())  // Not in baselines of before.
    for (const Json& row : *phases)
      sample.rank_phases.push_back({row.at("rank").get<std::int32_t>(), row.at("phase").get<std::string>(),
                                    row.at("kernels").get<bool>(), ToSpread(row.at("own_ns"))});
  if (const auto blocked = json.find("blocked"); blocked != json.end())  // Not in baselines of before.
    for (const auto& [what, spread] : blocked->items()) sample.blocked.push_back({what, ToSpread(spread)});
  sample.bucket_cap_mb = OrNothing<double>(json, "bucket_cap_mb");
  sample.names.kernels_per_step = OrNothing<double>(json, "kernels_per_step");
  for (const NameKind kind : kKinds) {
    const auto rows = json.find(std::string(Noun(kind)) + "s");
    const auto at = static_cast<std::size_t>(kind);
    if (rows == json.end() || rows->is_null()) continue;
    sample.names.recorded[at] = !rows->empty();
    for (const Json& row : *rows)
      sample.names.rows.push_back({kind, row.at("name").get<std::string>(), ToSpread(row, "per_step", sample.steps),
                                   ToSpread(row, "step_ns", sample.steps)});
    sample.names.more[at] = OrNothing<bool>(json, ("more_" + std::string(Noun(kind)) + "s").c_str()).value_or(false);
  }
  return sample;
}

}  // namespace

std::string BaselineJson(const RunSample& sample) {
  Json json{{"schema", kSchema}, {"lockstep_version", sample.lockstep_version}};
  json["run"] = {{"job", sample.job},
                 {"ranks", sample.ranks},
                 {"nodes", sample.nodes},
                 {"gpu_ranks", sample.gpu_ranks},
                 {"gpu_names", sample.gpu_names},
                 {"steps_kind", sample.steps_kind},
                 {"classes", sample.classes},
                 {"steps", sample.steps},
                 {"shared_cores", sample.shared_cores},
                 {"incomplete", sample.incomplete}};
  json["measures"] = Json::object();
  for (const MeasureSample& measure : sample.measures) json["measures"][measure.name] = ToJson(measure.spread);
  json["long_steps"] = sample.long_steps;
  json["other_steps_ns"] = ToJson(sample.other_steps_ns);
  json["ranks"] = Json::array();
  // A baseline is stored with the job's sources, so names of machines are left out.
  for (const RankSample& rank : sample.rank_samples)
    json["ranks"].push_back({{"rank", rank.rank},
                             {"node", ""},
                             {"compute_ns", ToJson(rank.work_ns)},
                             {"sm_clock_mhz", OrNull(rank.sm_clock_mhz)},
                             {"straggler", rank.straggler ? Json(NameOf(*rank.straggler)) : Json(nullptr)},
                             {"blocked_ns", Rounded(rank.blocked_ns)}});
  json["collectives"] = Json::array();
  for (const CollectiveSample& row : sample.collectives)
    json["collectives"].push_back({{"op", row.op},
                                   {"members", row.members},
                                   {"bytes", row.bytes},
                                   {"per_step", Rounded(row.per_step)},
                                   {"transfer_ns", ToJson(row.transfer_ns)},
                                   {"wait_ns", ToJson(row.wait_ns)}});
  json["phases"] = Json::object();
  for (const PhaseSample& phase : sample.phases) json["phases"][phase.name] = ToJson(phase.spread);
  json["rank_phases"] = Json::array();
  for (const RankPhase& row : sample.rank_phases)
    json["rank_phases"].push_back(
        {{"rank", row.rank}, {"phase", row.phase}, {"kernels", row.kernels}, {"own_ns", ToJson(row.own_ns)}});
  json["blocked"] = Json::object();
  for (const BlockedSample& place : sample.blocked) json["blocked"][place.what] = ToJson(place.spread);
  json["bucket_cap_mb"] = OrNull(sample.bucket_cap_mb);
  json["kernels_per_step"] = OrNull(sample.names.kernels_per_step);
  for (const NameKind kind : kKinds) {
    Json rows = nullptr;
    if (sample.names.recorded[static_cast<std::size_t>(kind)]) rows = Json::array();
    for (const NameSample& row : sample.names.rows)
      if (row.kind == kind)
        rows.push_back({{"name", row.name},
                        {"per_step", Rounded(row.launches.center)},
                        {"per_step_interval", {Rounded(row.launches.low), Rounded(row.launches.high)}},
                        {"step_ns", Rounded(row.time_ns.center)},
                        {"step_ns_interval", {Rounded(row.time_ns.low), Rounded(row.time_ns.high)}}});
    json[std::string(Noun(kind)) + "s"] = std::move(rows);
    json["more_" + std::string(Noun(kind)) + "s"] = sample.names.more[static_cast<std::size_t>(kind)];
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<RunSample> ParseBaseline(const std::string& text, const std::string& path) {
  const auto refuse = [&](std::string what) {
    return Error{ErrorCode::kMalformed, std::move(what), path,
                 "make one: lockstep diff RUN --save-baseline FILE; or name a run's directory"};
  };
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return refuse("this file is not a baseline: it is not JSON");
  const auto schema = json.find("schema");
  if (schema == json.end() || !schema->is_string()) return refuse("this JSON file is not a baseline");
  if (*schema != kSchema) return refuse(fmt::format("this file is {}, not {}", schema->get<std::string>(), kSchema));
  try {
    RunSample sample = Parse(json);
    sample.label = path;
    return sample;
  } catch (const Json::exception& error) {
    return refuse(fmt::format("the baseline is damaged: {}", error.what()));
  }
}

}  // namespace lockstep::diff
