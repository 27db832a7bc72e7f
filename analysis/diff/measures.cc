#include "analysis/diff/measures.h"

namespace lockstep::diff {
namespace {

using analysis::Context;
using analysis::Word;

// Mean over the ranks, in a step or, of a run without steps, in all; a rank where it is unknown (-1) makes it unknown.
template <typename Of>
std::optional<double> Mean(const Context& context, std::size_t step_row, Of&& of) {
  double sum = 0;
  std::size_t n = 0;
  const auto add = [&](const auto& table, std::size_t row) {
    const std::int64_t value = of(table, row);
    sum += static_cast<double>(value);
    ++n;
    return value >= 0;
  };
  const auto& totals = context.tables().rank_totals;
  if (step_row == analysis::kNowhere) {
    for (std::size_t i = 0; i < totals.rows(); ++i)
      if (!add(totals, i)) return std::nullopt;
  } else {
    for (std::size_t p = 0; p < context.ranks().size(); ++p) {
      const std::size_t cell = context.Cell(step_row, p);
      if (cell == analysis::kNowhere || !add(context.tables().step_ranks, cell)) return std::nullopt;
    }
  }
  if (n == 0) return std::nullopt;
  return sum / static_cast<double>(n);
}

#define LS_TERM(name)                                                                           \
  [](const Context& context, std::size_t step_row) {                                            \
    return Mean(context, step_row, [](const auto& t, std::size_t row) { return t.name[row]; }); \
  }
// For ranks whose devices were not recorded only the sum of compute and idle time is known.
#define LS_DEVICE_TERM(name)                                                                    \
  [](const Context& context, std::size_t step_row) -> std::optional<double> {                   \
    for (const std::int32_t rank : context.ranks())                                             \
      if (context.DeviceUnknown(rank)) return std::nullopt;                                     \
    return Mean(context, step_row, [](const auto& t, std::size_t row) { return t.name[row]; }); \
  }

std::optional<double> JobStep(const Context& context, std::size_t step_row) {
  if (step_row == analysis::kNowhere)
    return Mean(context, step_row, [&](const auto& t, std::size_t row) { return t.end_ns[row] - t.begin_ns[row]; });
  return static_cast<double>(context.tables().steps.step_ns[step_row]);
}

std::optional<double> ExposedComm(const Context& context, std::size_t step_row) {
  return Mean(context, step_row, [](const auto& t, std::size_t row) {
    return t.exposed_wait_ns[row] + t.exposed_transfer_ns[row] + t.exposed_unsplit_ns[row];
  });
}

std::optional<double> Overlap(const Context& context, std::size_t step_row) {
  const auto hidden = Mean(context, step_row, [](const auto& t, std::size_t row) { return t.overlap_ns[row]; });
  const auto comm = Mean(context, step_row, [](const auto& t, std::size_t row) { return t.comm_ns[row]; });
  if (!hidden || !comm || *comm <= 0) return std::nullopt;
  return *hidden / *comm;
}

std::optional<double> Blocked(const Context& context, std::size_t step_row) {
  for (const std::int32_t rank : context.ranks())
    if (context.BlockedUnknown(rank)) return std::nullopt;
  return Mean(context, step_row, [](const auto& t, std::size_t row) { return t.blocked_ns[row]; });
}

constexpr Measure kMeasures[] = {
    {"step_ns", Word::kDiffMeasureStep, false, {}, true, false, JobStep},
    {"compute_ns", Word::kDiffMeasureCompute, false, Word::kDiffMeasureCompute, true, false,
     LS_DEVICE_TERM(compute_ns)},
    {"blocked_ns", Word::kDiffMeasureBlocked, false, Word::kDiffMeasureBlocked, true, false, Blocked},
    {"exposed_comm_ns", Word::kCheckedExposed, false, {}, true, false, ExposedComm},
    {"exposed_wait_ns", Word::kDiffMeasureWaiting, true, Word::kDiffMeasureWaiting, true, false,
     LS_TERM(exposed_wait_ns)},
    {"exposed_transfer_ns", Word::kDiffMeasureTransfer, true, Word::kDiffPartTransfer, true, false,
     LS_TERM(exposed_transfer_ns)},
    {"exposed_unsplit_ns", Word::kDiffMeasureUnsplit, true, Word::kDiffPartUnsplit, true, false,
     LS_TERM(exposed_unsplit_ns)},
    {"exposed_copy_ns", Word::kDiffMeasureCopies, false, Word::kDiffMeasureCopies, true, false,
     LS_DEVICE_TERM(exposed_copy_ns)},
    {"idle_ns", Word::kDiffMeasureIdle, false, Word::kDiffMeasureIdle, true, false, LS_DEVICE_TERM(idle_ns)},
    {"input_ns", Word::kCheckedInput, true, {}, true, false, LS_TERM(input_ns)},
    {"offcpu_ns", Word::kDiffMeasureOffCpu, false, {}, true, false, LS_TERM(offcpu_ns)},
    {"overlap_fraction", Word::kDiffMeasureOverlap, false, {}, false, true, Overlap},
};
#undef LS_TERM
#undef LS_DEVICE_TERM

}  // namespace

std::span<const Measure> Measures() { return kMeasures; }

const Measure* FindMeasure(std::string_view name) {
  for (const Measure& measure : kMeasures)
    if (measure.name == name) return &measure;
  return nullptr;
}

}  // namespace lockstep::diff
