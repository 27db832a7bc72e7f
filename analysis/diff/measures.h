#pragma once
// The list of measures by which two runs are compared, step by step.

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "analysis/context.h"
#include "analysis/words/clause.h"

namespace lockstep::diff {

struct Measure {
  std::string_view name;  // As JSON, --fail-on and analysis.json have it, unit included.
  analysis::Word text;
  bool inner = false;                  // In a table below the one that it is a part of.
  std::optional<analysis::Word> part;  // Of those that a step consists of: its name in a sentence.
  bool less_is_better = true;
  bool fraction = false;  // Else ns.
  // Of a step (row of tables.steps), or of all of a run without steps (kNowhere); empty: not known.
  std::optional<double> (*of_step)(const analysis::Context& context, std::size_t step_row);
};

// step_ns first.
std::span<const Measure> Measures();
const Measure* FindMeasure(std::string_view name);

}  // namespace lockstep::diff
