#include "analysis/report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/core/format.h"
#include "core/version.h"

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;  // Keys in the order written: same analysis, same bytes.

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}
Json OrNull(const std::optional<std::pair<double, double>>& value) {
  return value ? Json::array({value->first, value->second}) : Json(nullptr);
}
Json OrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
// 64-bit ids do not fit a JavaScript number.
std::string Id(std::uint64_t id) { return fmt::format("0x{:016x}", id); }

void AddTerms(Json& to, const analysis::IdentityTerms& terms) {
  to["compute_ns"] = terms.compute_ns;
  to["exposed_wait_ns"] = terms.exposed_wait_ns;
  to["exposed_transfer_ns"] = terms.exposed_transfer_ns;
  to["exposed_unsplit_ns"] = terms.exposed_unsplit_ns;
  to["exposed_copy_ns"] = terms.exposed_copy_ns;
  to["idle_ns"] = terms.idle_ns;
}

Json Run(const analysis::Analysis& a) {
  const analysis::RunFacts& run = a.run;
  Json json;
  json["run_id"] = OrNull(run.run_id);
  json["command"] = OrNull(run.command);
  json["ranks"] = run.ranks;
  json["ranks_expected"] = run.ranks_expected;
  json["ranks_missing"] = run.ranks_missing;
  json["ranks_ended_early"] = run.ranks_ended_early;
  json["endings"] = run.endings;
  json["nodes"] = run.nodes;
  json["steps"] = run.steps;
  json["warmup_steps"] = run.warmup_steps;
  json["incomplete_steps"] = run.incomplete_steps;
  json["classes"] = run.classes;
  json["merged_with"] = run.merged_with;
  json["ranks_left_out"] = run.ranks_left_out;
  Json windows = Json::array();
  for (const analysis::CaptureWindow& window : run.windows)
    windows.push_back({{"first_step", OrNull(window.first_step)},
                       {"last_step", OrNull(window.last_step)},
                       {"span_ns", window.span_ns},
                       {"outside_steps", window.outside_steps},
                       {"cut", window.cut}});
  json["window"] = {{"first_step", OrNull(run.first_step)},
                    {"last_step", OrNull(run.last_step)},
                    {"span_ns", OrNull(run.span_ns)},
                    {"recording", OrNull(run.recording)},
                    {"windows", windows},
                    {"outside_steps", run.outside_steps}};
  json["gpu_ranks"] = run.gpu_ranks;
  json["gpus"] = run.gpu_names;
  json["cuda_driver_version"] = OrNull(run.cuda_driver_version);
  json["cupti_version"] = OrNull(run.cupti_version);
  json["nccl_plugin"] = OrNull(run.nccl_plugin);
  json["ranks_sharing_cores"] = run.sharing_ranks;
  json["shared_cores"] = run.sharing_ranks > 0 ? Json(run.shared_cores) : Json(nullptr);
  return json;
}

Json TrustOf(const analysis::Trust& trust) {
  Json json;
  json["clock_error_ns_p50"] = OrNull(trust.clock_error_ns_p50);
  json["clock_error_ns_max"] = OrNull(trust.clock_error_ns_max);
  json["events"] = trust.events;
  json["dropped"] = trust.dropped;
  json["collectives"] = trust.collectives;
  json["unmatched_collectives"] = trust.unmatched_collectives;
  json["mismatched_collectives"] = trust.mismatched_collectives;
  json["clock_violations"] = trust.clock_violations;
  json["overhead_fraction"] = OrNull(trust.overhead_fraction);
  json["agent_cpu_fraction"] = OrNull(trust.agent_cpu_fraction);
  return json;
}

// Of a summary, a rank, a step of a rank.
template <typename Row>
void AddMpiParts(Json& json, const Row& row) {
  json["mpi_other_ns"] = row.mpi_other_ns;
  json["mpi_io_ns"] = row.mpi_io_ns;
  json["mpi_rma_ns"] = row.mpi_rma_ns;
  json["late_sender_ns"] = row.late_sender_ns;
  json["late_receiver_ns"] = row.late_receiver_ns;
}

Json P2pCounts(const analysis::P2pPair& pair) {
  return {{"messages", pair.messages},
          {"bytes", pair.bytes},
          {"matched", pair.matched},
          {"unmatched", pair.unmatched},
          {"late_sender_ns", pair.late_sender_ns},
          {"late_sender_count", pair.late_sender_count},
          {"wrong_order_ns", pair.wrong_order_ns},
          {"late_receiver_ns", pair.late_receiver_ns},
          {"late_receiver_count", pair.late_receiver_count},
          {"below_resolution", pair.below_resolution}};
}

Json P2pOf(const analysis::P2p& p2p) {
  if (p2p.pair_count == 0) return nullptr;
  Json json = P2pCounts(p2p.total), pairs = Json::array();
  json["pair_count"] = p2p.pair_count;
  json["unplaced"] = p2p.unplaced;
  json["truncated"] = p2p.truncated;
  for (const analysis::P2pPair& pair : p2p.pairs) {
    Json one = P2pCounts(pair);
    one["source"] = pair.source;
    one["destination"] = pair.destination;
    pairs.push_back(std::move(one));
  }
  json["pairs"] = std::move(pairs);
  return json;
}

Json SummaryOf(const analysis::Analysis& a) {
  const analysis::Summary& s = a.summary;
  Json json;
  json["of"] = s.per_step ? "median_step" : "window";
  json["median_step"] = OrNull(s.median_step);
  json["step_ns_median"] = OrNull(s.step_ns_median);
  json["job_step_ns_median"] = OrNull(s.job_step_ns_median);
  json["job_step_ns_p10"] = OrNull(s.job_step_ns_p10);
  json["job_step_ns_p99"] = OrNull(s.job_step_ns_p99);
  if (a.ranks.empty() && s.terms.Sum() == 0) {
    for (const char* key : {"compute_ns", "exposed_wait_ns", "exposed_transfer_ns", "exposed_unsplit_ns",
                            "exposed_copy_ns", "idle_ns", "comm_ns", "hidden_comm_ns"})
      json[key] = nullptr;
  } else {
    AddTerms(json, s.terms);
    json["comm_ns"] = s.comm_ns;
    json["hidden_comm_ns"] = s.hidden_comm_ns;
  }
  json["overlap_fraction"] = OrNull(s.overlap_fraction);
  json["overlap_low"] = OrNull(s.overlap_low);
  json["overlap_high"] = OrNull(s.overlap_high);
  AddMpiParts(json, s);
  json["input_ns"] = s.input_ns;
  json["helper_wait_ns"] = s.helper_wait_ns;
  json["cpu_ns"] = OrNull(s.cpu_ns);
  json["offcpu_ns"] = OrNull(s.offcpu_ns);
  return json;
}

Json RankOf(const analysis::RankRow& row) {
  Json json;
  json["rank"] = row.rank;
  json["node"] = row.node;
  json["span_ns"] = row.span_ns;
  AddTerms(json, row.terms);
  json["comm_ns"] = row.comm_ns;
  json["overlap_ns"] = row.overlap_ns;
  json["overlap_fraction"] = OrNull(row.overlap_fraction);
  json["overlap_high_ns"] = row.overlap_high_ns;
  json["exposed_comm_ns"] = row.terms.ExposedComm();
  json["copy_ns"] = row.copy_ns;
  AddMpiParts(json, row);
  json["input_ns"] = row.input_ns;
  json["helper_wait_ns"] = row.helper_wait_ns;
  json["cpu_ns"] = OrNull(row.cpu_ns);
  json["offcpu_ns"] = OrNull(row.offcpu_ns);
  json["last_fraction"] = OrNull(row.last_fraction);
  json["late_ns_median"] = OrNull(row.late_ns);
  json["straggler_score"] = OrNull(row.straggler_score);
  json["straggler_interval"] = OrNull(row.straggler_interval);
  return json;
}

Json PhasesOf(const analysis::Phases& phases, std::int64_t step_ns) {
  return {{"input_ns", phases.input_ns},
          {"forward_ns", phases.forward_ns},
          {"backward_ns", phases.backward_ns},
          {"optimizer_ns", phases.optimizer_ns},
          {"communication_ns", phases.communication_ns},
          {"checkpoint_ns", phases.checkpoint_ns},
          // A GPU rank's window is the GPU's: the host's phases may be longer.
          {"other_ns", std::max<std::int64_t>(0, step_ns - phases.Sum())}};
}

Json StepOf(const analysis::StepRow& step) {
  Json json{
      {"index", step.index}, {"complete", step.complete}, {"warmup", step.warmup}, {"step_ns", OrNull(step.step_ns)}};
  Json ranks = Json::array();
  for (const analysis::StepCell& cell : step.ranks) {
    Json one{{"rank", cell.rank}, {"begin_ns", cell.begin_ns}, {"end_ns", cell.end_ns}};
    AddTerms(one, cell.terms);
    one["comm_ns"] = cell.comm_ns;
    one["overlap_ns"] = cell.overlap_ns;
    AddMpiParts(one, cell);
    one["phases"] = cell.phases ? PhasesOf(*cell.phases, cell.end_ns - cell.begin_ns) : Json(nullptr);
    ranks.push_back(std::move(one));
  }
  json["ranks"] = std::move(ranks);
  return json;
}

Json CollectiveOf(const analysis::CollectiveRow& row) {
  return {{"op", row.op},
          {"comm", Id(row.comm)},
          {"group", analysis::RankList(row.group)},
          {"bytes", row.bytes},
          {"count", row.count},
          {"transfer_ns_median", OrNull(row.transfer_ns_median)},
          {"wait_ns_median", OrNull(row.wait_ns_median)},
          {"algbw", OrNull(row.algbw)},
          {"busbw", OrNull(row.busbw)},
          {"censored", row.censored},
          {"grouped", row.grouped}};
}

Json GpuOf(const analysis::GpuRow& row) {
  return {{"rank", row.rank},
          {"device", row.device < 0 ? Json(nullptr) : Json(row.device)},
          {"name", OrNull(row.name)},
          {"samples", row.samples},
          {"sm_clock_mhz", OrNull(row.sm_clock_mhz)},
          {"sm_clock_low_mhz", OrNull(row.sm_clock_low_mhz)},
          {"memory_clock_mhz", OrNull(row.memory_clock_mhz)},
          {"power_mw", OrNull(row.power_mw)},
          {"temperature_c", OrNull(row.temperature_c)},
          {"throttled", row.throttled},
          {"throttle_reasons", row.throttle_reasons}};
}

Json EvidenceOf(const std::optional<analysis::GpuEvidence>& evidence) {
  if (!evidence) return nullptr;
  Json json = GpuOf(evidence->gpu);
  json["others_sm_clock_mhz"] = OrNull(evidence->others_sm_clock_mhz);
  return json;
}

Json StragglerOf(const analysis::Straggler& s) {
  return {{"rank", s.rank},
          {"score", s.score},
          {"interval", Json::array({s.interval.first, s.interval.second})},
          {"p_value", s.p_value},
          {"kind", s.kind},
          {"cause", s.cause},
          {"saves_ns_per_step", OrNull(s.saves_ns_per_step)},
          {"saves_interval_ns", Json::array({s.saves_interval_ns.first, s.saves_interval_ns.second})},
          {"replayed_saves_ns_per_step", OrNull(s.replayed_saves_ns)},
          {"removed", OrNull(s.removed)},
          {"added", OrNull(s.added)},
          {"onset_step", OrNull(s.onset_step)},
          {"gpu", EvidenceOf(s.gpu)}};
}

Json CostModelOf(const analysis::Buckets& buckets) {
  if (buckets.costs.empty()) return nullptr;
  Json table = Json::array();
  for (const analysis::BucketCost& cost : buckets.costs)
    table.push_back({{"bytes", cost.bytes},
                     {"transfer_ns", cost.transfer_ns},
                     {"samples", cost.samples},
                     {"spread", cost.spread},
                     {"doubtful", cost.doubtful}});
  return {{"table", table},
          {"alpha_ns", OrNull(buckets.alpha_ns)},
          {"beta_ns_per_byte", OrNull(buckets.beta_ns_per_byte)},
          {"line_error", OrNull(buckets.line_error)},
          {"interference_compute", OrNull(buckets.interference_compute)},
          {"interference_transfer", OrNull(buckets.interference_transfer)}};
}

// What replay says is null where nothing could be replayed.
Json BucketsOf(const analysis::Buckets& buckets) {
  if (buckets.rows.empty() && buckets.sizes.empty()) return nullptr;
  Json json, sizes = Json::array(), rows = Json::array();
  for (const analysis::BucketRow& row : buckets.rows) {
    if (buckets.sizes.empty()) sizes.push_back(row.bytes);
    rows.push_back({{"model", row.model},
                    {"bucket", row.bucket},
                    {"bytes", row.bytes},
                    {"dtype", OrNull(row.dtype)},
                    {"parameters", OrNull(row.parameters)},
                    {"rebuilt", row.rebuilt},
                    {"collectives", row.collectives},
                    {"transfer_ns_median", OrNull(row.transfer_ns_median)},
                    {"wait_ns_median", OrNull(row.wait_ns_median)}});
  }
  json["sizes"] = buckets.sizes.empty() ? std::move(sizes) : Json(buckets.sizes);
  json["recognised_by"] = buckets.recognised_by.empty() ? Json("hooks") : Json(buckets.recognised_by);
  json["exact_sizes"] = buckets.exact_sizes;
  json["rows"] = std::move(rows);
  json["steps"] = buckets.steps;
  json["steps_matched"] = buckets.steps_whole;
  json["current_cap_mb"] = buckets.current_cap_mb ? Json(*buckets.current_cap_mb)
                           : buckets.cap_bytes    ? Json(static_cast<double>(*buckets.cap_bytes) / (1 << 20))
                                                  : Json(nullptr);
  json["cost_model"] = CostModelOf(buckets);
  if (buckets.curve.empty()) {
    json["curve"] = nullptr;
  } else {
    json["curve"] = Json::array();
    for (const analysis::BucketCurvePoint& point : buckets.curve)
      json["curve"].push_back({{"cap_mb", point.cap_mb},
                               {"buckets", point.buckets},
                               {"predicted_step_ns", point.predicted_step_ns},
                               {"low_ns", point.low_ns},
                               {"high_ns", point.high_ns},
                               {"extrapolated", point.extrapolated},
                               {"one_bucket", point.one_bucket}});
  }
  json["recommended_cap_mb"] = OrNull(buckets.recommended_cap_mb);
  json["flat_cap_mb"] = OrNull(buckets.flat_cap_mb);
  json["try"] = OrNull(buckets.try_it);
  return json;
}

Json FsdpOf(const analysis::Fsdp& fsdp) {
  if (fsdp.units.empty()) return nullptr;
  Json units = Json::array();
  for (const analysis::FsdpUnit& unit : fsdp.units)
    units.push_back({{"unit", unit.unit},
                     {"bytes", unit.bytes},
                     {"gather_exposed_ns", unit.gather_exposed_ns},
                     {"scatter_exposed_ns", unit.scatter_exposed_ns}});
  return {{"units", units}, {"scatter_tail_ns", OrNull(fsdp.scatter_tail_ns)}};
}

Json ReplayOf(const analysis::Analysis& a) {
  if (!a.replay) return {{"skipped", OrNull(a.replay_skipped)}};
  return {{"skipped", nullptr},
          {"steps", a.replay->steps},
          {"first_step", a.replay->first_step},
          {"last_step", a.replay->last_step},
          {"sampled", OrNull(a.replay->sampled)},
          {"measured_step_ns", a.replay->measured_step_ns},
          {"replayed_step_ns", a.replay->replayed_step_ns},
          {"self_error", a.replay->self_error},
          {"notes", a.replay->notes}};
}

Json OverlapOf(const std::optional<analysis::OverlapScore>& overlap) {
  if (!overlap) return nullptr;
  return {{"t_actual_ns", overlap->actual_ns},
          {"t_no_overlap_ns", OrNull(overlap->no_overlap_ns)},
          {"t_free_comm_ns", overlap->free_comm_ns},
          {"t_best_ns", overlap->best_ns},
          {"efficiency", OrNull(overlap->efficiency)},
          {"comm_cost_ns", overlap->actual_ns - overlap->free_comm_ns},
          {"achievable_gain_ns", overlap->actual_ns - overlap->best_ns}};
}

Json CounterfactualOf(const std::optional<analysis::CounterfactualResult>& c) {
  if (!c) return nullptr;
  Json by_type = Json::object(), by_rank = Json::array();
  for (const auto& [type, slowdown] : c->by_type) by_type[type] = slowdown;
  for (const auto& [rank, slowdown] : c->by_rank) by_rank.push_back({{"rank", rank}, {"slowdown", slowdown}});
  return {{"S", c->slowdown},
          {"S_t", by_type},
          {"S_w", by_rank},
          {"S_w_sampled", c->ranks_sampled},
          {"M_W", OrNull(c->worst_ranks)},
          {"M_S", OrNull(c->last_stage)},
          {"self_error", c->self_error}};
}

Json EvidenceOf(const analysis::Evidence& evidence) {
  Json json{{"columns", evidence.columns}, {"rows", Json::array()}};
  // The whole list is what --explain is for.
  constexpr std::size_t kMostRows = 50;
  for (std::size_t i = 0; i < std::min(evidence.rows.size(), kMostRows); ++i) json["rows"].push_back(evidence.rows[i]);
  if (!evidence.names.empty())
    json["names"] = std::vector<std::string>(
        evidence.names.begin(),
        evidence.names.begin() + static_cast<std::ptrdiff_t>(std::min(evidence.names.size(), kMostRows)));
  return json;
}

Json FindingOf(const analysis::Finding& f) {
  return {{"id", f.id},
          {"headline", f.headline},
          {"evidence", f.evidence},
          {"action", f.action},
          {"saves_ns_per_step", OrNull(f.saves_ns_per_step)},
          {"saves_interval_ns", OrNull(f.saves_interval_ns)},
          {"saves_share", OrNull(f.saves_share)},
          {"upper_bound", f.upper_bound},
          {"replayed", f.replayed},
          {"then", f.then.empty() ? Json(nullptr) : Json(f.then)},
          {"confidence", f.confidence},
          {"rank", f.rank < 0 ? Json(nullptr) : Json(f.rank)},
          {"explain", EvidenceOf(f.rows)}};
}

// The document as Json::dump(1) would write it, but key by key and lists row by row:
// a tree of 100,000 cells takes several hundred MB.
class Document {
 public:
  void Add(std::string_view key, const Json& value) {
    Key(key);
    Value(value, 1);
  }
  template <typename Rows, typename F>
  void AddList(std::string_view key, const Rows& rows, F&& make) {
    Key(key);
    if (rows.empty()) {
      text_ += "[]";
      return;
    }
    bool first = true;
    for (const auto& row : rows) {
      text_ += first ? "[\n  " : ",\n  ";
      first = false;
      Value(make(row), 2);
    }
    text_ += "\n ]";
  }
  std::string Take() {
    text_ += "\n}\n";
    return std::move(text_);
  }

 private:
  void Key(std::string_view key) {
    text_ += text_.empty() ? "{\n \"" : ",\n \"";
    text_ += key;
    text_ += "\": ";
  }
  void Value(const Json& value, std::size_t depth) {
    // Texts come from the application (host names, commands): invalid UTF-8 must not end the report.
    const std::string dumped = value.dump(1, ' ', false, Json::error_handler_t::replace);
    for (std::size_t at = 0; at < dumped.size();) {
      const std::size_t end = std::min(dumped.find('\n', at), dumped.size() - 1) + 1;
      text_.append(dumped, at, end - at);
      if (text_.back() == '\n') text_.append(depth, ' ');
      at = end;
    }
  }

  std::string text_;
};

}  // namespace

std::string RenderJson(const analysis::Analysis& a) {
  Document json;
  json.Add("schema", kAnalysisSchema);
  json.Add("lockstep_version", LOCKSTEP_VERSION);
  json.Add("verdict", a.verdict);
  json.Add("remarks", a.remarks);
  json.Add("suspicious", a.suspicious);
  json.Add("run", Run(a));
  json.Add("trust", TrustOf(a.trust));
  json.Add("summary", SummaryOf(a));
  json.AddList("ranks", a.ranks, RankOf);
  json.AddList("steps", a.steps, StepOf);
  json.Add("truncated", a.steps_truncated);
  json.AddList("collectives", a.collectives, CollectiveOf);
  json.AddList("arrivals", a.arrivals, [](const analysis::ArrivalRow& row) {
    return Json{{"rank", row.rank}, {"last", row.last}, {"ties", row.ties}, {"charge_ns", row.charge_ns}};
  });
  json.Add("p2p", P2pOf(a.p2p));
  json.AddList("groups", a.groups, [](const analysis::Group& group) {
    return Json{{"comm", Id(group.comm)}, {"ranks", group.ranks}};
  });
  json.AddList("gpus", a.gpus, GpuOf);
  json.Add("gaps", nullptr);
  json.Add("buckets", BucketsOf(a.buckets));
  json.Add("fsdp", FsdpOf(a.fsdp));
  json.Add("replay", ReplayOf(a));
  json.Add("overlap", OverlapOf(a.overlap));
  json.AddList("stragglers", a.stragglers, StragglerOf);
  json.Add("counterfactual", CounterfactualOf(a.counterfactual));
  json.AddList("critical_path", a.critical_path, [](const analysis::CriticalShare& share) {
    return Json{{"rank", share.rank < 0 ? Json(nullptr) : Json(share.rank)}, {"what", share.what}, {"ns", share.ns}};
  });
  json.AddList("delays", a.delays, [](const analysis::DelayRow& row) {
    return Json{{"rank", row.rank},
                {"where", OrNull(row.where)},
                {"short_term_ns", row.short_term_ns},
                {"long_term_ns", row.long_term_ns}};
  });
  json.AddList("findings", a.findings, FindingOf);
  json.Add("additivity", OrNull(a.additivity));
  json.AddList("losses", a.losses, [](const analysis::LossRow& loss) {
    return Json{{"name", loss.name},
                {"rank", loss.rank < 0 ? Json(nullptr) : Json(loss.rank)},
                {"count", loss.count},
                {"severity", loss.data_loss ? "data_loss" : "notice"},
                {"sentence", loss.sentence},
                {"remedy", loss.remedy},
                {"detail", OrNull(loss.detail)}};
  });
  json.Add("skipped", a.skipped);
  return json.Take();
}

}  // namespace lockstep::report
