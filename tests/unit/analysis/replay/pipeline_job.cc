#include "pipeline_job.h"

#include <algorithm>
#include <cmath>
#include <istream>
#include <map>
#include <numeric>
#include <sstream>
#include <tuple>

#include "analysis/core/statistics.h"

namespace lockstep::replay {
namespace {

struct Row {
  std::int32_t data_rank, stage, step, seq;
  std::string type;
  double begin_us, duration_us;
};

bool IsOneOf(const std::string& type, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return type == name; });
}
bool IsPipelineTransfer(const std::string& type) {
  return IsOneOf(type, {"forward-send", "forward-recv", "backward-send", "backward-recv"});
}
bool IsCompute(const std::string& type) { return IsOneOf(type, {"forward-compute", "backward-compute"}); }
// What counts as communication for "ordinary is the median".
bool IsCommunication(const std::string& type) {
  return IsPipelineTransfer(type) ||
         IsOneOf(type, {"params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce",
                        "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad"});
}

std::vector<Row> Parse(std::istream& csv) {
  std::vector<Row> rows;
  std::string line;
  std::getline(csv, line);
  while (std::getline(csv, line)) {
    // The thread's name is quoted and holds commas: "PP rank 0, TP rank 0, compute".
    const std::size_t open = line.find('"'), close = line.find('"', open + 1);
    if (close == std::string::npos) continue;
    Row row{};
    row.data_rank = std::stoi(line.substr(0, open));
    row.stage = std::stoi(line.substr(open + sizeof "\"PP rank", close - open));
    std::istringstream rest(line.substr(close + 2));
    std::string field;
    std::getline(rest, row.type, ',');
    std::getline(rest, field, ',');
    row.step = std::stoi(field);
    std::getline(rest, field, ',');
    std::getline(rest, field, ',');
    row.seq = std::stoi(field);
    std::getline(rest, field, ',');
    std::getline(rest, field, ',');
    row.begin_us = std::stod(field);
    std::getline(rest, field, ',');
    row.duration_us = std::stod(field);
    rows.push_back(std::move(row));
  }
  return rows;
}

// Operations of one step and data parallel rank, by stage and name.
class Builder {
 public:
  Builder(PipelineJob& job, const std::vector<Row>& rows) : job_(job), rows_(rows) {
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      by_name_[{row.step, row.data_rank, row.stage, row.type, row.seq}] = i;
      cells_[{row.step, row.data_rank, row.stage}].push_back(i);
    }
  }

  void Build() {
    for (auto& [cell, list] : cells_) BuildStage(std::get<0>(cell), std::get<1>(cell), std::get<2>(cell), list);
    Together();
  }

 private:
  using Cell = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // Step, data rank, stage.

  std::uint32_t Find(std::int32_t step, std::int32_t data_rank, std::int32_t stage, const std::string& type,
                     std::int32_t seq) const {
    const auto at = by_name_.find({step, data_rank, stage, type, seq});
    return at == by_name_.end() ? kNone : at->second;
  }
  void Needs(std::uint32_t operation, std::uint32_t earlier) {
    if (operation != kNone && earlier != kNone) job_.graph.Needs(operation, earlier);
  }

  void BuildStage(std::int32_t step, std::int32_t data_rank, std::int32_t stage, std::vector<std::uint32_t>& list) {
    std::sort(list.begin(), list.end(), [&](std::uint32_t a, std::uint32_t b) {
      return std::tie(rows_[a].begin_us, rows_[a].seq, rows_[a].type) <
             std::tie(rows_[b].begin_us, rows_[b].seq, rows_[b].type);
    });
    const auto of = [&](auto&& is) {
      std::vector<std::uint32_t> found;
      std::copy_if(list.begin(), list.end(), std::back_inserter(found),
                   [&](std::uint32_t i) { return is(rows_[i].type); });
      return found;
    };
    const auto chain = [&](const std::vector<std::uint32_t>& operations) {
      for (std::size_t i = 1; i < operations.size(); ++i) Needs(operations[i], operations[i - 1]);
    };
    const std::vector<std::uint32_t> compute = of(IsCompute);
    chain(compute);
    // A stream of its own for each direction of each pass. A send needs its compute; a compute needs its
    // receive, which was posted behind the compute before it.
    for (const char* pass : {"forward", "backward"}) {
      const std::string name = std::string(pass) + "-compute";
      for (const char* direction : {"-send", "-recv"}) {
        const auto transfers = of([&](const std::string& type) { return type == pass + std::string(direction); });
        chain(transfers);
        for (std::size_t k = 0; k < transfers.size(); ++k) {
          const auto at = static_cast<std::int32_t>(k);
          const std::uint32_t own = Find(step, data_rank, stage, name, at);
          if (direction == std::string("-send")) {
            Needs(transfers[k], own);
          } else {
            Needs(own, transfers[k]);
            if (k > 0) Needs(transfers[k], Find(step, data_rank, stage, name, at - 1));
          }
        }
      }
    }
    // The first transfers of the backward pass are posted one forward compute before the last one.
    const auto first_backward = std::find_if(compute.begin(), compute.end(),
                                             [&](std::uint32_t i) { return rows_[i].type == "backward-compute"; });
    if (first_backward - compute.begin() >= 2) {
      for (const char* type : {"backward-recv", "backward-send"})
        Needs(Find(step, data_rank, stage, type, 0), first_backward[-2]);
    }
    // Parameters are gathered before the first forward compute.
    const auto data_stream = of([](const std::string& type) {
      return IsOneOf(type, {"params-all-gather", "grads-reduce-scatter"});
    });
    chain(data_stream);
    const auto first_forward = std::find_if(compute.begin(), compute.end(),
                                            [&](std::uint32_t i) { return rows_[i].type == "forward-compute"; });
    if (first_forward != compute.end()) Needs(*first_forward, Find(step, data_rank, stage, "params-all-gather", 0));
    // After the last compute, one after the other.
    std::vector<std::uint32_t> tail;
    if (!compute.empty())
      tail.push_back(*std::max_element(compute.begin(), compute.end(), [&](std::uint32_t a, std::uint32_t b) {
        return rows_[a].begin_us + rows_[a].duration_us < rows_[b].begin_us + rows_[b].duration_us;
      }));
    const auto append = [&](const char* type, std::int32_t seq) {
      if (const std::uint32_t found = Find(step, data_rank, stage, type, seq); found != kNone) tail.push_back(found);
      return tail.size();
    };
    append("gc", 0);
    append("layernorm-grads-all-reduce", 0);
    append("embedding-grads-all-reduce", 0);
    for (std::int32_t seq = 0; Find(step, data_rank, stage, "grads-reduce-scatter", seq) != kNone; ++seq)
      append("grads-reduce-scatter", seq);
    append("optimizer-clip-main-grad", 0);
    append("optimizer", 0);
    chain(tail);
  }

  // Who starts its transfer together with whom.
  void Together() {
    std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::string, std::int32_t>, std::uint32_t> groups;
    const std::int32_t last = job_.stages - 1;
    for (std::uint32_t i = 0; i < rows_.size(); ++i) {
      const Row& row = rows_[i];
      // (step, data rank or -1 for all, stage or -1 for all, name, number)
      std::tuple<std::int32_t, std::int32_t, std::int32_t, std::string, std::int32_t> key;
      if (IsOneOf(row.type, {"params-all-gather", "grads-reduce-scatter"}))
        key = {row.step, -1, row.stage, row.type, row.seq};
      else if (row.type == "optimizer-clip-main-grad")
        key = {row.step, -1, -1, row.type, 0};
      else if (row.type == "embedding-grads-all-reduce" && (row.stage == 0 || row.stage == last))
        key = {row.step, row.data_rank, -1, row.type, 0};
      else if (IsPipelineTransfer(row.type)) {
        const bool forward = row.type.starts_with("forward"), sends = row.type.ends_with("send");
        const std::int32_t sender = sends ? row.stage : forward ? row.stage - 1 : row.stage + 1;
        key = {row.step, row.data_rank, sender, forward ? "forward" : "backward", row.seq};
      } else {
        continue;
      }
      const auto [at, fresh] = groups.try_emplace(key, 0);
      if (fresh) at->second = job_.graph.AddCollective();
      job_.graph.operations()[i].collective = at->second;
    }
  }

  PipelineJob& job_;
  const std::vector<Row>& rows_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::string, std::int32_t>, std::uint32_t> by_name_;
  std::map<Cell, std::vector<std::uint32_t>> cells_;
};

}  // namespace

std::vector<std::int64_t> OrdinaryDurations(const Graph& graph, const Likeness& likeness) {
  const auto& operations = graph.operations();
  std::map<std::pair<std::uint32_t, bool>, std::vector<std::int64_t>> classes;
  for (std::size_t i = 0; i < operations.size(); ++i)
    classes[{likeness.alike[i], likeness.by_median[i]}].push_back(operations[i].duration_ns);
  std::map<std::pair<std::uint32_t, bool>, std::int64_t> ordinary;
  for (const auto& [key, values] : classes) {
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    ordinary[key] = std::llround(key.second ? MiddleMedian(values) : mean);
  }
  std::vector<std::int64_t> durations;
  for (std::size_t i = 0; i < operations.size(); ++i)
    durations.push_back(ordinary.at({likeness.alike[i], likeness.by_median[i]}));
  return durations;
}

std::vector<std::int64_t> PipelineJob::Lengths(const Schedule& schedule) const {
  std::map<std::int32_t, std::int64_t> latest;
  for (std::size_t i = 0; i < step.size(); ++i) latest[step[i]] = std::max(latest[step[i]], schedule.end_ns[i]);
  std::vector<std::int64_t> lengths;
  for (const auto& [number, end_ns] : latest) lengths.push_back(end_ns);
  return lengths;
}

PipelineJob ReadPipelineJob(std::istream& csv) {
  const std::vector<Row> rows = Parse(csv);
  PipelineJob job;
  std::map<std::string, std::uint32_t> types;
  for (const Row& row : rows) {
    job.stages = std::max(job.stages, row.stage + 1);
    job.data_ranks = std::max(job.data_ranks, row.data_rank + 1);
  }
  for (const Row& row : rows) {
    const std::uint32_t type = types.try_emplace(row.type, static_cast<std::uint32_t>(types.size())).first->second;
    job.graph.Add({.duration_ns = std::llround(row.duration_us * 1000),
                   .rank = row.stage * job.data_ranks + row.data_rank,
                   .activity = IsCommunication(row.type) ? Activity::kTransfer : Activity::kCompute});
    job.likeness.alike.push_back(type);
    job.likeness.by_median.push_back(IsCommunication(row.type));
    job.type.push_back(row.type);
    job.stage.push_back(row.stage);
    job.data_rank.push_back(row.data_rank);
    job.step.push_back(row.step);
    job.steps.push_back(row.step);
  }
  std::sort(job.steps.begin(), job.steps.end());
  job.steps.erase(std::unique(job.steps.begin(), job.steps.end()), job.steps.end());
  Builder(job, rows).Build();
  return job;
}

}  // namespace lockstep::replay
