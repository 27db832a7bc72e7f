#include "tests/unit/analysis/synthetic_job.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/core/statistics.h"
#include "core/collective.h"
#include "core/interval.h"
#include "core/mpi_ops.h"
#include "merge/timeline/step_length.h"
#include "trace/file/strings.h"

namespace lockstep::test {
namespace {

struct Operation {
  std::vector<std::int64_t> arrival, entered, returned;  // Per rank: post, completing call's entry and return.
  std::vector<std::uint32_t> call;                       // Per rank: row of mpi_calls that posted it.
  std::int64_t last = 0, end = 0;                        // A_c and the end of its transfer.
  bool censored = false;
  int step = 0;
};

class Simulator {
 public:
  explicit Simulator(const JobSpec& spec) : spec_(spec), n_(static_cast<std::size_t>(spec.ranks)), job_{} {
    job_.ranks.resize(n_);
    in_mpi_.resize(n_);
    input_.resize(n_);
    blocked_.resize(n_);
    waits_.resize(n_);
    transfers_.resize(n_);
    flights_.resize(n_);
    marks_.resize(n_);
    cpu_.assign(n_, 0);
    delay_.assign(n_, 0);
  }

  Job Run() {
    std::vector<std::int64_t> now(n_, 1'000'000'000);
    for (std::size_t r = 0; r < n_; ++r) {
      job_.ranks[r].threads.Append({.thread = 0, .name = schema::kNone, .training = 1});
      marks_[r].push_back(now[r]);
    }
    for (int step = 0; step < spec_.steps; ++step) {
      Step(step, now);
      for (std::size_t r = 0; r < n_; ++r) marks_[r].push_back(now[r]);
    }
    Tables();
    job_.timeline = merge::MakeTimeline("run", std::move(t_));
    return std::move(job_);
  }

 private:
  void Compute(std::size_t r, std::int64_t& now, std::int64_t ns) {
    auto& samples = job_.ranks[r].cpu_samples;
    const int rank = static_cast<int>(r);
    samples.Append({now, 0, cpu_[r], delay_[r]});
    now += ns;
    cpu_[r] += static_cast<std::int64_t>(spec_.cpu_share(rank) * static_cast<double>(ns));
    delay_[r] += static_cast<std::int64_t>(spec_.offcpu_share(rank) * static_cast<double>(ns));
    samples.Append({now, 0, cpu_[r], delay_[r]});
  }

  void Block(std::size_t r, std::int64_t begin, std::int64_t ns) {
    if (ns <= 0) return;
    schema::RankTables& t = job_.ranks[r];
    trace::StringInterner<schema::Strings, schema::StringBytes> strings{t.strings, t.string_bytes};
    const BlockedCall& in = spec_.blocked_in;
    if (!in.function.empty() && t.stacks.rows() == 0)
      t.stacks.Append({.parent = schema::kNone,
                       .function = strings.Intern(in.function),
                       .file = strings.Intern(in.file),
                       .line = in.line,
                       .python = 1});
    t.blocked.Append({.begin_ns = begin,
                      .duration_ns = ns,
                      .thread = 0,
                      .kind = in.kind,
                      .function = strings.Intern(in.call),
                      .waker = schema::kNone,
                      .woken_ns = schema::kNoTime,
                      .others_cpu_ns = -1,
                      .module = strings.Intern("/usr/lib/libwork.so"),
                      .detail = in.detail.empty() ? schema::kNone : strings.Intern(in.detail),
                      .caller = in.function.empty() ? schema::kNone : 0});
    blocked_[r].push_back({begin, begin + ns});
  }

  std::uint32_t Call(std::size_t r, std::int64_t begin, std::int64_t end, MpiOp op) {
    in_mpi_[r].push_back({begin, end});
    auto& calls = job_.ranks[r].mpi_calls;
    calls.Append({.begin_ns = begin,
                  .duration_ns = end - begin,
                  .thread = 0,
                  .op = static_cast<std::uint16_t>(op),
                  .comm = 0,
                  .count = 1});
    return static_cast<std::uint32_t>(calls.rows() - 1);
  }

  void Step(int step, std::vector<std::int64_t>& now) {
    for (std::size_t r = 0; r < n_; ++r) {
      const std::int64_t input_ns = spec_.input_ns + spec_.more_input_ns(static_cast<int>(r));
      if (input_ns == 0) continue;
      input_[r].push_back({now[r], now[r] + input_ns});
      job_.ranks[r].ranges.Append({.begin_ns = now[r], .duration_ns = input_ns, .thread = 0, .category = 1});
      now[r] += input_ns;
    }
    const std::size_t first = operations_.size();
    std::int64_t network_free = 0;
    for (int b = 0; b < spec_.buckets; ++b) {
      Operation op;
      op.step = step;
      for (std::size_t r = 0; r < n_; ++r) {
        const int rank = static_cast<int>(r);
        if (b == 0) Block(r, now[r], spec_.blocked_ns(step, rank));
        Compute(r, now[r], spec_.compute(step, rank) / spec_.buckets + spec_.more_compute_ns(rank, b));
        op.arrival.push_back(now[r]);
        if (!spec_.blocking) {
          op.call.push_back(Call(r, now[r], now[r] + 1000, MpiOp::kIallreduce));
          now[r] += 1000;
        }
      }
      op.last = *std::max_element(op.arrival.begin(), op.arrival.end());
      const std::int64_t transfer_ns = spec_.transfer_ns + spec_.more_transfer_ns(step, b);
      op.end = network_free = std::max(op.last, network_free) + transfer_ns;
      if (spec_.blocking) {
        op.entered = op.arrival;
        op.returned.assign(n_, op.end);
        for (std::size_t r = 0; r < n_; ++r) op.call.push_back(Call(r, now[r], op.end, MpiOp::kAllreduce));
        now.assign(n_, op.end);
      }
      operations_.push_back(std::move(op));
    }
    if (spec_.blocking) return;
    const std::int64_t all_in_wait = *std::max_element(now.begin(), now.end());
    for (std::size_t i = first; i < operations_.size(); ++i) {
      Operation& op = operations_[i];
      op.entered = now;
      if (spec_.moves == Moves::kOnlyInWait) {
        const std::int64_t more_ns = spec_.more_transfer_ns(step, static_cast<int>(i - first));
        op.end = network_free = (i == first ? all_in_wait : network_free) + spec_.transfer_ns + more_ns;
        op.censored = true;
      }
    }
    for (std::size_t i = first; i < operations_.size(); ++i)
      for (std::size_t r = 0; r < n_; ++r)
        operations_[i].returned.push_back(spec_.moves == Moves::kOnlyInWait
                                              ? std::max(now[r], network_free)
                                              : std::max(operations_[i].end, operations_[i].arrival[r]));
    for (std::size_t r = 0; r < n_; ++r) {
      const std::int64_t end = std::max(now[r], network_free);
      Call(r, now[r], end, MpiOp::kWaitall);
      now[r] = end;
    }
  }

  void Tables() {
    const std::uint64_t comm = 0x1234'5678'9abc'def0;
    AddMeta(t_, "world_size", std::to_string(spec_.ranks));
    AddMeta(t_, "command", "./ddp_mpi --steps 60");
    AddMeta(t_, "run_id", "20261120-134750-7f3a");
    for (std::size_t r = 0; r < n_; ++r) {
      const auto rank = static_cast<std::int32_t>(r);
      t_.ranks.Append({.rank = rank,
                       .file = schema::kNone,
                       .node = Intern(t_, "node" + std::to_string(rank / spec_.ranks_per_node)),
                       .domain = schema::kNone,
                       .allowed_cores = spec_.allowed_cores,
                       .allowed_cpus = schema::kNone,
                       .events = 1000,
                       .app_cpu_ns = 1'000'000'000,
                       .agent_cpu_ns = 2'000'000});
      t_.clock.Append({rank, 0, 0, spec_.clock_error_ns, 0, 1});
    }
    for (std::size_t i = 0; i < operations_.size(); ++i) Collective(static_cast<std::uint32_t>(i), comm);
    for (std::size_t r = 0; r < n_; ++r) Sets(r);
    if (spec_.mark_steps) {
      for (int step = 0; step < spec_.steps; ++step) StepRows(step);
    }
    for (std::size_t r = 0; r < n_; ++r) {
      const Interval window{marks_[r].front(), marks_[r].back()};
      schema::TlRankTotals::Row row{
          .rank = static_cast<std::int32_t>(r), .begin_ns = window.begin, .end_ns = window.end};
      Fill(r, window, row);
      t_.rank_totals.Append(row);
    }
  }

  void Collective(std::uint32_t i, std::uint64_t comm) {
    const Operation& op = operations_[i];
    std::vector<std::int64_t> sorted = op.arrival;
    std::sort(sorted.begin(), sorted.end());
    const std::int64_t margin = sorted.size() > 1 ? sorted.back() - sorted[sorted.size() - 2] : 0;
    const std::int64_t error = 2 * spec_.clock_error_ns;
    const bool tie = margin <= 2 * error;
    const auto last = std::max_element(op.arrival.begin(), op.arrival.end()) - op.arrival.begin();
    std::vector<std::int64_t> waits;
    for (const std::int64_t a : op.arrival) waits.push_back(op.last - a);
    t_.collectives.Append({.comm_id = comm,
                           .seq = i,
                           .kind = static_cast<std::uint8_t>(CollectiveKind::kAllReduce),
                           .mode = static_cast<std::uint8_t>(spec_.blocking ? 0 : 1),
                           .bytes = spec_.bucket_bytes,
                           .expected = static_cast<std::uint32_t>(n_),
                           .seen = static_cast<std::uint32_t>(n_),
                           .first_arrival_ns = sorted.front(),
                           .last_arrival_ns = op.last,
                           .end_ns = op.end,
                           .last_rank = tie ? -1 : static_cast<std::int32_t>(last),
                           .charge_ns = tie ? 0 : margin,
                           .transfer_ns = op.censored ? -1 : op.end - op.last,
                           .wait_ns = LowerMedian(waits),
                           .error_ns = error,
                           .splits = 1,
                           .censored = op.censored,
                           .step = spec_.mark_steps ? op.step : -1});
    for (std::size_t r = 0; r < n_; ++r) {
      t_.collective_ranks.Append({.collective = i,
                                  .rank = static_cast<std::int32_t>(r),
                                  .row = i,
                                  .arrival_ns = op.arrival[r],
                                  .end_low_ns = std::max(op.last, op.entered[r]),
                                  .end_high_ns = op.returned[r],
                                  .wait_ns = op.last - op.arrival[r],
                                  .transfer_ns = op.censored ? -1 : op.returned[r] - op.last,
                                  .censored = op.censored,
                                  .step = spec_.mark_steps ? op.step : -1});
      job_.ranks[r].collectives.Append({.seq = i,
                                        .kind = static_cast<std::uint8_t>(CollectiveKind::kAllReduce),
                                        .mode = static_cast<std::uint8_t>(spec_.blocking ? 0 : 1),
                                        .thread = 0,
                                        .begin_ns = op.arrival[r],
                                        .post_end_ns = spec_.blocking ? op.returned[r] : op.arrival[r] + 1000,
                                        .last_incomplete_ns = schema::kNoTime,
                                        .wait_begin_ns = op.entered[r],
                                        .end_ns = op.returned[r],
                                        .bytes = spec_.bucket_bytes,
                                        .call = op.call[r]});
      flights_[r].push_back({op.arrival[r], op.returned[r]});
      waits_[r].push_back({op.arrival[r], op.last});
      if (!op.censored) transfers_[r].push_back({op.last, op.returned[r]});
    }
  }

  void Sets(std::size_t r) {
    for (auto* sets : {&in_mpi_, &input_, &blocked_, &waits_, &transfers_, &flights_})
      (*sets)[r] = Normalize(std::move((*sets)[r]));
  }

  // By definitions.md, from the sets.
  template <typename Row>
  void Fill(std::size_t r, Interval window, Row& row) {
    const IntervalSet all{window};
    const IntervalSet exposed = Clip(Unite(in_mpi_[r], input_[r]), window);
    const IntervalSet flight = Clip(flights_[r], window);
    const IntervalSet comm = Intersect(exposed, flight);
    const IntervalSet transfer = Intersect(comm, transfers_[r]);
    const IntervalSet wait = Subtract(Intersect(comm, waits_[r]), transfer);
    const IntervalSet own = Subtract(all, exposed);
    row.blocked_ns = Total(Intersect(own, blocked_[r]));
    row.compute_ns = Total(own) - row.blocked_ns;
    row.exposed_transfer_ns = Total(transfer);
    row.exposed_wait_ns = Total(wait);
    row.exposed_unsplit_ns = Total(comm) - row.exposed_transfer_ns - row.exposed_wait_ns;
    row.idle_ns = Total(exposed) - Total(comm);
    row.input_ns = Total(Clip(input_[r], window));
    row.comm_high_ns = Total(flight);
    row.overlap_high_ns = Total(flight) - Total(comm);
    row.comm_ns = Total(comm);
    row.cpu_ns = static_cast<std::int64_t>(spec_.cpu_share(static_cast<int>(r)) * static_cast<double>(row.compute_ns));
    row.offcpu_ns =
        static_cast<std::int64_t>(spec_.offcpu_share(static_cast<int>(r)) * static_cast<double>(row.compute_ns));
  }

  void StepRows(int step) {
    const auto i = static_cast<std::size_t>(step);
    std::int64_t begin = INT64_MIN, end = INT64_MIN;
    std::vector<std::int64_t> lengths;
    for (std::size_t r = 0; r < n_; ++r) {
      const Interval window{marks_[r][i], marks_[r][i + 1]};
      lengths.push_back(window.end - window.begin);
      begin = std::max(begin, window.begin);
      end = std::max(end, window.end);
      schema::TlStepRanks::Row row{.index = step,
                                   .rank = static_cast<std::int32_t>(r),
                                   .begin_ns = window.begin,
                                   .end_ns = window.end,
                                   .cluster_end_ns = window.end,
                                   .complete = 1};
      Fill(r, window, row);
      t_.step_ranks.Append(row);
    }
    job_.step_ns.push_back(merge::MeanLength(lengths));
    t_.steps.Append({.index = step,
                     .begin_ns = begin,
                     .end_ns = end,
                     .step_ns = job_.step_ns.back(),
                     .ranks = static_cast<std::uint32_t>(n_),
                     .complete = 1,
                     .warmup = static_cast<std::uint8_t>(step < spec_.warmup)});
  }

  const JobSpec& spec_;
  std::size_t n_;
  Job job_;
  schema::TimelineTables t_;
  std::vector<Operation> operations_;
  std::vector<std::vector<Interval>> in_mpi_, input_, blocked_, waits_, transfers_, flights_;
  std::vector<std::vector<std::int64_t>> marks_;
  std::vector<std::int64_t> cpu_, delay_;
};

}  // namespace

Job Simulate(const JobSpec& spec) { return Simulator(spec).Run(); }

analysis::AnalyzeOptions Job::Options() const {
  analysis::AnalyzeOptions options;
  options.read_rank = [this](std::int32_t rank) -> Result<schema::RankTables> {
    return ranks[static_cast<std::size_t>(rank)];
  };
  return options;
}

analysis::Analysis Job::Analyze(bool replay) const {
  analysis::AnalyzeOptions options = Options();
  options.replay = replay;
  Result<analysis::Analysis> result = lockstep::analysis::Analyze(timeline, options);
  EXPECT_TRUE(result.ok()) << result.error().what;
  return result.ok() ? std::move(result).value() : analysis::Analysis{};
}

std::int64_t Job::MedianStep(int warmup) const {
  return LowerMedian(std::vector<std::int64_t>(step_ns.begin() + warmup, step_ns.end()));
}

std::int64_t Job::MeanStep(int warmup) const {
  return merge::MeanLength(std::vector<std::int64_t>(step_ns.begin() + warmup, step_ns.end()));
}

std::uint32_t Intern(schema::TimelineTables& t, std::string_view text) {
  const auto id = static_cast<std::uint32_t>(t.strings.rows());
  t.strings.Append({t.string_bytes.value.size(), static_cast<std::uint32_t>(text.size())});
  t.string_bytes.value.insert(t.string_bytes.value.end(), text.begin(), text.end());
  return id;
}
void AddMeta(schema::TimelineTables& t, std::string_view key, std::string_view value) {
  const std::uint32_t k = Intern(t, key);
  t.meta.Append({k, Intern(t, value)});
}
void AddLoss(schema::TimelineTables& t, std::string_view name, std::int32_t rank, std::uint64_t count) {
  t.losses.Append({rank, Intern(t, name), count, schema::kNone});
}

double Noise::Next() {
  // Sum of twelve uniforms: deviation 1 exactly.
  analysis::SeededRandom random(state_);
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.Unit();
  state_ = random.Next();
  return sum;
}

}  // namespace lockstep::test
