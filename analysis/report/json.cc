#include "analysis/report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "analysis/report/format.h"
#include "core/version.h"

namespace lockstep {
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

void AddTerms(Json& to, const IdentityTerms& terms) {
  to["compute_ns"] = terms.compute_ns;
  to["exposed_wait_ns"] = terms.exposed_wait_ns;
  to["exposed_transfer_ns"] = terms.exposed_transfer_ns;
  to["exposed_unsplit_ns"] = terms.exposed_unsplit_ns;
  to["exposed_copy_ns"] = terms.exposed_copy_ns;
  to["idle_ns"] = terms.idle_ns;
}

Json Run(const Analysis& a) {
  const RunFacts& run = a.run;
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
  json["ranks_left_out"] = run.ranks_left_out;
  Json windows = Json::array();
  for (const CaptureWindow& window : run.windows)
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

Json TrustOf(const Trust& trust) {
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

Json P2pCounts(const P2pPair& pair) {
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

Json P2pOf(const P2p& p2p) {
  if (p2p.pair_count == 0) return nullptr;
  Json json = P2pCounts(p2p.total), pairs = Json::array();
  json["pair_count"] = p2p.pair_count;
  json["unplaced"] = p2p.unplaced;
  json["truncated"] = p2p.truncated;
  for (const P2pPair& pair : p2p.pairs) {
    Json one = P2pCounts(pair);
    one["source"] = pair.source;
    one["destination"] = pair.destination;
    pairs.push_back(std::move(one));
  }
  json["pairs"] = std::move(pairs);
  return json;
}

Json SummaryOf(const Analysis& a) {
  const Summary& s = a.summary;
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
  json["cpu_ns"] = OrNull(s.cpu_ns);
  json["offcpu_ns"] = OrNull(s.offcpu_ns);
  return json;
}

Json RankOf(const RankRow& row) {
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
  json["cpu_ns"] = OrNull(row.cpu_ns);
  json["offcpu_ns"] = OrNull(row.offcpu_ns);
  json["last_fraction"] = OrNull(row.last_fraction);
  json["late_ns_median"] = OrNull(row.late_ns);
  json["straggler_score"] = OrNull(row.straggler_score);
  json["straggler_interval"] = OrNull(row.straggler_interval);
  return json;
}

Json PhasesOf(const Phases& phases, std::int64_t step_ns) {
  return {{"input_ns", phases.input_ns},
          {"forward_ns", phases.forward_ns},
          {"backward_ns", phases.backward_ns},
          {"optimizer_ns", phases.optimizer_ns},
          {"communication_ns", phases.communication_ns},
          {"checkpoint_ns", phases.checkpoint_ns},
          // A GPU rank's window is the GPU's: the host's phases may be longer.
          {"other_ns", std::max<std::int64_t>(0, step_ns - phases.Sum())}};
}

Json StepOf(const StepRow& step) {
  Json json{
      {"index", step.index}, {"complete", step.complete}, {"warmup", step.warmup}, {"step_ns", OrNull(step.step_ns)}};
  Json ranks = Json::array();
  for (const StepCell& cell : step.ranks) {
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

Json CollectiveOf(const CollectiveRow& row) {
  return {{"op", row.op},
          {"comm", Id(row.comm)},
          {"group", RankList(row.group)},
          {"bytes", row.bytes},
          {"count", row.count},
          {"transfer_ns_median", OrNull(row.transfer_ns_median)},
          {"wait_ns_median", OrNull(row.wait_ns_median)},
          {"algbw", OrNull(row.algbw)},
          {"busbw", OrNull(row.busbw)},
          {"censored", row.censored},
          {"grouped", row.grouped}};
}

Json GpuOf(const GpuRow& row) {
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

Json EvidenceOf(const std::optional<GpuEvidence>& evidence) {
  if (!evidence) return nullptr;
  Json json = GpuOf(evidence->gpu);
  json["others_sm_clock_mhz"] = OrNull(evidence->others_sm_clock_mhz);
  return json;
}

Json StragglerOf(const Straggler& s) {
  return {{"rank", s.rank},
          {"score", s.score},
          {"interval", Json::array({s.interval.first, s.interval.second})},
          {"p_value", s.p_value},
          {"kind", s.kind},
          {"cause", s.cause},
          {"saves_ns_per_step", OrNull(s.saves_ns_per_step)},
          {"saves_interval_ns", Json::array({s.saves_interval_ns.first, s.saves_interval_ns.second})},
          {"onset_step", OrNull(s.onset_step)},
          {"gpu", EvidenceOf(s.gpu)}};
}

// Predictions need a cost model; what is known without one is here already.
Json BucketsOf(const Buckets& buckets) {
  if (buckets.rows.empty()) return nullptr;
  Json json, sizes = Json::array(), rows = Json::array();
  for (const BucketRow& row : buckets.rows) {
    sizes.push_back(row.bytes);
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
  json["sizes"] = std::move(sizes);
  json["rows"] = std::move(rows);
  json["steps"] = buckets.steps;
  json["steps_matched"] = buckets.steps_whole;
  json["current_cap_mb"] =
      buckets.cap_bytes ? Json(static_cast<double>(*buckets.cap_bytes) / (1 << 20)) : Json(nullptr);
  json["cost_model"] = nullptr;
  json["curve"] = nullptr;
  json["recommended_cap_mb"] = nullptr;
  return json;
}

Json FindingOf(const Finding& f) {
  return {{"id", f.id},
          {"headline", f.headline},
          {"evidence", f.evidence},
          {"action", f.action},
          {"saves_ns_per_step", OrNull(f.saves_ns_per_step)},
          {"upper_bound", f.upper_bound},
          {"confidence", f.confidence},
          {"rank", f.rank < 0 ? Json(nullptr) : Json(f.rank)}};
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

std::string RenderJson(const Analysis& a) {
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
  json.AddList("arrivals", a.arrivals, [](const ArrivalRow& row) {
    return Json{{"rank", row.rank}, {"last", row.last}, {"ties", row.ties}, {"charge_ns", row.charge_ns}};
  });
  json.Add("p2p", P2pOf(a.p2p));
  json.AddList("groups", a.groups, [](const Group& group) {
    return Json{{"comm", Id(group.comm)}, {"ranks", group.ranks}};
  });
  json.AddList("gpus", a.gpus, GpuOf);
  json.Add("gaps", nullptr);
  json.Add("buckets", BucketsOf(a.buckets));
  json.Add("overlap", nullptr);
  json.AddList("stragglers", a.stragglers, StragglerOf);
  json.Add("counterfactual", nullptr);
  json.AddList("findings", a.findings, FindingOf);
  json.Add("additivity", OrNull(a.additivity));
  json.AddList("losses", a.losses, [](const LossRow& loss) {
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

}  // namespace lockstep
