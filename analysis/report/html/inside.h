#pragma once
// What some ranks do inside: kernels, operators, ranges and idle time by name, memory and the GPUs' sensors over time.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/context.h"
#include "analysis/gpu/rank_view.h"
#include "analysis/report/html/packed.h"
#include "analysis/tables/engine/table.h"

namespace lockstep::report {

struct InsideLimits {
  std::size_t table_ranks = 4, rows = 15;  // Ranks that the tables are of, and rows of each.
  std::size_t memory_columns = 300, sensor_columns = 200;
};

// Filled while the timeline of the page reads these ranks' files: nothing is read for it.
class Inside {
 public:
  // `named` come first where the tables cannot have all.
  Inside(const analysis::Context& context, std::vector<std::int32_t> ranks, const std::vector<std::int32_t>& named,
         const InsideLimits& limits = {});

  // The rank at position `r` of `ranks`. From several threads, each position once.
  void Add(std::size_t r, const gpu::RankView& view);

  // {"begin_ns","end_ns": cluster time; "all_ranks";
  // "tables":[{"name","title","answers","ranks":[..],"columns":[{"name","kind"}],"rows":[[..]]}],
  // "memory":{"columns","lines":[{"rank","where","allocated":packed,"reserved":packed}]}|null,
  // "sensors":{"columns","ranks":[..],"measures":{"sm_clock_mhz":packed,..}}|null}. Columns of time cut the span from
  // begin to end evenly. Memory: the most in a column, what held before where nothing was recorded. Sensors: the lowest
  // clock, the mean utilization, the highest of the others; unknown where no reading falls into it.
  PageJson Json() const;

 private:
  struct Level {
    std::vector<std::int64_t> allocated, reserved;
    bool any() const { return !allocated.empty(); }
  };
  struct Reading {
    std::int64_t time_ns;  // Cluster time.
    std::uint32_t sm_clock_mhz, utilization_percent, power_mw, temperature_c;
  };
  struct Rank {
    std::vector<tables::Table> tables;  // By kTables; empty: not of this rank.
    Level gpu, host;
    std::vector<Reading> readings;
  };

  std::size_t Column(std::int64_t cluster_ns, std::size_t columns) const;
  void AddMemory(const gpu::RankView& view, Rank& to) const;
  void AddReadings(const gpu::RankView& view, Rank& to) const;
  PageJson Tables() const;
  PageJson Memory() const;
  PageJson Sensors() const;

  const analysis::Context& context_;
  const InsideLimits limits_;
  std::vector<std::int32_t> ranks_;
  std::vector<bool> has_tables_;
  std::vector<Rank> filled_;
  std::int64_t begin_ns_ = INT64_MAX, end_ns_ = INT64_MIN;
};

}  // namespace lockstep::report
