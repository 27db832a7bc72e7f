#pragma once
// A training job with a true time, seen through profilers' traces: every rank has its own
// clock, begins and ends its trace somewhere, misses operations, numbers its steps or not.

#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/collective.h"
#include "merge/clock/align.h"
#include "merge/match/order.h"
#include "trace/file/strings.h"

namespace lockstep::test {

struct JobOp {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  std::uint64_t bytes = 1 << 20;
  std::int64_t after_ns = 1'000'000;  // Work before it, at least.
  std::int64_t transfer_ns = 50'000;
};

struct JobClock {
  std::int64_t offset_ns = 0;
  double ppm = 0;
  double wander_ns = 0, wander_period_s = 300;
};

struct JobRank {
  JobClock clock;
  int first_step = 0, end_step = 1 << 30;  // Of the job's steps, what the trace has.
  int skip_first = 0, skip_last = 0;       // Operations cut off besides.
  std::set<int> dropped;                   // Operations (step * pattern + index) that the trace misses.
  int step_shift = 0;                      // Added to its step numbers.
  bool numbered = true;
  std::int64_t leaves_late_ns = 0;  // In every operation.
  std::uint64_t group = 77;         // Its communicator.
};

struct GpuJob {
  static constexpr std::int64_t kBegin = 1'700'000'000'000'000'000;

  int steps = 20;
  std::vector<JobOp> pattern{{}, {}, {.bytes = 1 << 18}};
  std::int64_t pause_ns = 5'000'000;  // Between steps.
  double jitter_ns = 300'000;         // Of the work before an operation, per rank; exponential.
  double exit_ns = 2'000;             // Exit skew, uniform.
  std::vector<JobRank> ranks;
  std::uint8_t identity = 1;
  // Which ranks synchronise: each set by itself. Empty: all together.
  std::vector<std::set<int>> groups;
  std::uint64_t seed = 1;

  explicit GpuJob(std::size_t n) : ranks(n) {}

  std::int64_t Local(std::size_t r, std::int64_t t) const {
    const JobClock& c = ranks[r].clock;
    const double since = static_cast<double>(t - kBegin);
    return t + c.offset_ns +
           std::llround(since * c.ppm * 1e-6 + c.wander_ns * std::sin(since * 1e-9 * 6.283185307 / c.wander_period_s));
  }

  // Fills `files`; truth[r][row] is which operation of the job a row is.
  void Run() {
    std::mt19937_64 random(seed);
    std::exponential_distribution<double> jitter(1 / std::max(1.0, jitter_ns));
    std::uniform_real_distribution<double> skew(0, exit_ns);
    std::vector<std::set<int>> together = groups;
    if (together.empty()) {
      together.emplace_back();
      for (int r = 0; r < static_cast<int>(ranks.size()); ++r) together[0].insert(r);
    }
    files.clear();
    truth.assign(ranks.size(), {});
    begin_ns.assign(ranks.size(), INT64_MAX);
    end_ns.assign(ranks.size(), INT64_MIN);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      files.emplace_back();
      merge::RunRank& file = files.back();
      file.rank = static_cast<std::int32_t>(r);
      file.head.comms.Append({.comm = 0,
                              .global_id = ranks[r].group,
                              .size = static_cast<std::uint32_t>(ranks.size()),
                              .rank = static_cast<std::int32_t>(r),
                              .name = schema::kNone,
                              .end_ns = schema::kNoTime,
                              .identity = identity});
    }
    std::vector<std::int64_t> free(ranks.size(), kBegin), step_begin(ranks.size(), 0);
    for (int step = 0; step < steps; ++step) {
      step_begin = free;
      for (std::size_t p = 0; p < pattern.size(); ++p) {
        const JobOp& op = pattern[p];
        std::vector<std::int64_t> arrival(ranks.size());
        for (std::size_t r = 0; r < ranks.size(); ++r)
          arrival[r] = free[r] + op.after_ns + (jitter_ns > 0 ? std::llround(jitter(random)) : 0);
        for (const std::set<int>& set : together) {
          std::int64_t last = 0;
          for (const int r : set) last = std::max(last, arrival[static_cast<std::size_t>(r)]);
          for (const int m : set) {
            const auto r = static_cast<std::size_t>(m);
            const std::int64_t end = last + op.transfer_ns + std::llround(skew(random)) + ranks[r].leaves_late_ns;
            Record(r, step, static_cast<int>(p), arrival[r], end);
            free[r] = end;
          }
        }
      }
      for (std::size_t r = 0; r < ranks.size(); ++r) {
        free[r] += pause_ns;
        if (ranks[r].numbered && step >= ranks[r].first_step && step < ranks[r].end_step)
          files[r].head.steps.Append({.index = step + ranks[r].step_shift,
                                      .begin_ns = Local(r, step_begin[r]),
                                      .end_ns = Local(r, free[r]),
                                      .source = 3,
                                      .complete = 1,
                                      .cpu_ns = -1});
      }
    }
    for (std::size_t r = 0; r < ranks.size(); ++r) Cut(r);
  }

  // Rows with one number are one operation, and an operation's rows have one number where
  // both ranks were placed. Returns rows that were placed; `wrong` counts pairs that contradict.
  std::size_t Check(std::size_t* wrong) const {
    std::vector<std::pair<std::pair<std::uint64_t, std::uint64_t>, int>> placed;
    for (std::size_t r = 0; r < files.size(); ++r) {
      const auto& head = files[r].head;
      for (std::size_t i = 0; i < head.collectives.rows(); ++i)
        if (head.collectives.seq[i] < merge::kAmbiguousSeq)
          placed.push_back({{head.comms.global_id[0], head.collectives.seq[i]}, truth[r][i]});
    }
    std::sort(placed.begin(), placed.end());
    *wrong = 0;
    std::set<std::pair<std::uint64_t, int>> seen;
    for (std::size_t i = 0; i < placed.size(); ++i) {
      if (i > 0 && placed[i].first == placed[i - 1].first) {
        *wrong += placed[i].second != placed[i - 1].second;
        continue;
      }
      *wrong += !seen.insert({placed[i].first.first, placed[i].second}).second;  // One operation, two numbers.
    }
    return placed.size();
  }

  std::vector<merge::AlignRank> Align() const {
    std::vector<merge::AlignRank> out;
    for (std::size_t r = 0; r < files.size(); ++r) {
      merge::AlignRank rank;
      rank.rank = files[r].rank;
      rank.imported = true;
      rank.begin_ns = Local(r, begin_ns[r]);
      rank.end_ns = Local(r, end_ns[r]);
      const schema::Collectives& c = files[r].head.collectives;
      for (std::size_t i = 0; i < c.rows(); ++i)
        if (c.seq[i] < merge::kAmbiguousSeq && Splits(static_cast<CollectiveKind>(c.kind[i])))
          rank.collectives.push_back(
              {files[r].head.comms.global_id[0], c.seq[i], 0, 1, c.begin_ns[i], c.end_ns[i], c.bytes[i]});
      out.push_back(std::move(rank));
    }
    return out;
  }

  std::vector<merge::RunRank> files;
  std::vector<std::vector<int>> truth;
  std::vector<std::int64_t> begin_ns, end_ns;  // True time of the trace's first begin and last end.

 private:
  void Record(std::size_t r, int step, int index, std::int64_t begin, std::int64_t end) {
    const JobRank& rank = ranks[r];
    const int id = step * static_cast<int>(pattern.size()) + index;
    if (step < rank.first_step || step >= rank.end_step || rank.dropped.count(id) > 0) return;
    schema::Collectives::Row row;
    row.comm = 0;
    row.seq = truth[r].size();
    row.kind = static_cast<std::uint8_t>(pattern[static_cast<std::size_t>(index)].kind);
    row.mode = 3;
    row.begin_ns = Local(r, begin);
    row.end_ns = Local(r, end);
    row.bytes = pattern[static_cast<std::size_t>(index)].bytes;
    row.root = -1;
    row.call = row.kernel = schema::kNone;
    files[r].head.collectives.Append(row);
    truth[r].push_back(id);
    begin_ns[r] = std::min(begin_ns[r], begin);
    end_ns[r] = std::max(end_ns[r], end);
  }

  void Cut(std::size_t r) {
    schema::Collectives& rows = files[r].head.collectives;
    schema::Collectives kept;
    std::vector<int> ids;
    const auto n = static_cast<int>(rows.rows());
    for (int i = ranks[r].skip_first; i < n - ranks[r].skip_last; ++i) {
      auto row = rows.Get(static_cast<std::size_t>(i));
      row.seq = ids.size();
      kept.Append(row);
      ids.push_back(truth[r][static_cast<std::size_t>(i)]);
    }
    rows = std::move(kept);
    truth[r] = std::move(ids);
  }
};

}  // namespace lockstep::test
