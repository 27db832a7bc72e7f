#pragma once
// Joins the batches of one trace, in the file's order, to its tables.

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/schema.h"
#include "ingest/kineto/map/partial.h"

namespace lockstep::ingest {

struct JoinedTrace : MappedTrace {
  std::vector<std::string> other_categories, device_categories;
  std::uint64_t skipped[static_cast<std::size_t>(Skipped::kCount)] = {};
  std::int64_t window_end_ns = schema::kNoTime;
  std::int64_t gpu_step_ns = schema::kNoTime;
  bool hip = false;
  std::set<std::string> host_backends;
};

// `base_ns` is added to every time. The partials are used up, column by column, so
// that both copies of the events are never there at once.
std::unique_ptr<JoinedTrace> Join(std::vector<std::unique_ptr<Partial>> partials, std::int64_t base_ns, unsigned jobs);

}  // namespace lockstep::ingest
