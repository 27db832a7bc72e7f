#pragma once
// Batches of one trace, in the file's order -> its tables.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/schema.h"
#include "ingest/kineto/map/partial.h"
#include "trace/strings.h"

namespace lockstep::import {

// As StringInterner, for texts whose hash is known already: every batch brings the same thousand names.
class Strings {
 public:
  Strings(schema::Strings& strings, schema::StringBytes& bytes);
  std::uint32_t Intern(std::string_view text) { return Intern(text, std::hash<std::string_view>()(text)); }
  std::uint32_t Intern(std::string_view text, std::uint64_t hash);

 private:
  void Grow();
  schema::Strings& strings_;
  schema::StringBytes& bytes_;
  std::vector<std::uint64_t> hashes_;  // Per row.
  std::vector<std::uint32_t> slots_;   // Open addressing, kNone empty.
};

struct JoinedTrace {
  schema::RankTables tables;  // The event tables, strings, threads, processes; times since the epoch.
  std::unique_ptr<Strings> strings;
  std::vector<CommEvent> comm_events;    // Threads are rows of threads, texts rows of strings.
  std::vector<CommKernel> comm_kernels;  // By row.
  std::vector<StepMark> steps;
  std::vector<std::string> other_categories;
  std::uint64_t skipped[static_cast<std::size_t>(Skipped::kCount)] = {};
  std::uint64_t launch_missing = 0;  // GPU events whose launching call is not in the trace.
  std::int64_t window_end_ns = schema::kNoTime;
  std::int64_t gpu_step_ns = schema::kNoTime;
  bool hip = false, gloo = false;
};

// `base_ns` is added to every time. The partials are used up, column by column, so
// that both copies of the events are never there at once.
std::unique_ptr<JoinedTrace> Join(std::vector<std::unique_ptr<Partial>> partials, std::int64_t base_ns, unsigned jobs);

}  // namespace lockstep::import
