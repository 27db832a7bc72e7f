#include "analysis/diff/measures.h"

namespace lockstep::diff {
namespace {

using Column = std::vector<std::int64_t> schema::TlStepRanks::*;

// Mean over the ranks; a rank where it is unknown (-1) makes it unknown.
template <typename Of>
std::optional<double> Mean(const analysis::Context& context, std::size_t step_row, Of&& of) {
  double sum = 0;
  std::size_t n = 0;
  for (std::size_t p = 0; p < context.ranks().size(); ++p) {
    const std::size_t cell = context.Cell(step_row, p);
    if (cell == analysis::kNowhere) return std::nullopt;
    const std::int64_t value = of(context.tables().step_ranks, cell);
    if (value < 0) return std::nullopt;
    sum += static_cast<double>(value);
    ++n;
  }
  if (n == 0) return std::nullopt;
  return sum / static_cast<double>(n);
}

template <auto column>
std::optional<double> Term(const analysis::Context& context, std::size_t step_row) {
  return Mean(context, step_row, [](const auto& t, std::size_t cell) { return (t.*column)[cell]; });
}

std::optional<double> JobStep(const analysis::Context& context, std::size_t step_row) {
  return static_cast<double>(context.tables().steps.step_ns[step_row]);
}

std::optional<double> ExposedComm(const analysis::Context& context, std::size_t step_row) {
  return Mean(context, step_row, [](const auto& t, std::size_t cell) {
    return t.exposed_wait_ns[cell] + t.exposed_transfer_ns[cell] + t.exposed_unsplit_ns[cell];
  });
}

std::optional<double> Overlap(const analysis::Context& context, std::size_t step_row) {
  const auto hidden = Term<&schema::TlStepRanks::overlap_ns>(context, step_row);
  const auto comm = Term<&schema::TlStepRanks::comm_ns>(context, step_row);
  if (!hidden || !comm || *comm <= 0) return std::nullopt;
  return *hidden / *comm;
}

// For ranks whose devices were not recorded only the sum of compute and idle time is known.
template <auto column>
std::optional<double> DeviceTerm(const analysis::Context& context, std::size_t step_row) {
  for (const std::int32_t rank : context.ranks())
    if (context.DeviceUnknown(rank)) return std::nullopt;
  return Term<column>(context, step_row);
}

std::optional<double> Blocked(const analysis::Context& context, std::size_t step_row) {
  for (const std::int32_t rank : context.ranks())
    if (context.BlockedUnknown(rank)) return std::nullopt;
  return Term<&schema::TlStepRanks::blocked_ns>(context, step_row);
}

using Cells = schema::TlStepRanks;
constexpr Measure kMeasures[] = {
    {"step_ns", "step", true, false, JobStep},
    {"compute_ns", "compute", true, false, DeviceTerm<&Cells::compute_ns>},
    {"blocked_ns", "blocked", true, false, Blocked},
    {"exposed_comm_ns", "exposed communication", true, false, ExposedComm},
    {"exposed_wait_ns", "  waiting", true, false, Term<&Cells::exposed_wait_ns>},
    {"exposed_transfer_ns", "  transfer", true, false, Term<&Cells::exposed_transfer_ns>},
    {"exposed_unsplit_ns", "  not split", true, false, Term<&Cells::exposed_unsplit_ns>},
    {"exposed_copy_ns", "exposed copies", true, false, DeviceTerm<&Cells::exposed_copy_ns>},
    {"idle_ns", "idle", true, false, DeviceTerm<&Cells::idle_ns>},
    {"input_ns", "  input", true, false, Term<&Cells::input_ns>},
    {"offcpu_ns", "without a core", true, false, Term<&Cells::offcpu_ns>},
    {"overlap_fraction", "overlap", false, true, Overlap},
};

}  // namespace

std::span<const Measure> Measures() { return kMeasures; }

const Measure* FindMeasure(std::string_view name) {
  for (const Measure& measure : kMeasures)
    if (measure.name == name) return &measure;
  return nullptr;
}

}  // namespace lockstep::diff
