#include "analysis/straggler_cause.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "analysis/report/format.h"

namespace lockstep {
namespace {

constexpr std::size_t kMaxEvidenceRows = 20;

// Medians over units of one column of step_ranks on a rank; empty if there are no steps.
std::optional<std::int64_t> MedianOf(const Context& context, std::size_t position,
                                     const std::vector<std::int64_t>& column) {
  std::vector<std::int64_t> values;
  for (const std::size_t step : context.usable_steps())
    if (const std::size_t cell = context.Cell(step, position); cell != kNowhere) values.push_back(column[cell]);
  if (values.empty()) return std::nullopt;
  return LowerMedian(std::move(values));
}

// How much more of something the rank has per step than the median of the others.
std::optional<std::int64_t> Excess(const Context& context, std::size_t position,
                                   const std::vector<std::int64_t>& column) {
  const auto own = MedianOf(context, position, column);
  std::vector<std::int64_t> others;
  for (std::size_t p = 0; p < context.ranks().size(); ++p)
    if (p != position)
      if (const auto value = MedianOf(context, p, column)) others.push_back(*value);
  if (!own || others.empty()) return std::nullopt;
  return *own - LowerMedian(std::move(others));
}

}  // namespace

Cause Explain(const Context& context, const Analysis& analysis, std::size_t r, const Witnessed& witnessed,
              std::int64_t price) {
  const auto& cells = context.tables().step_ranks;
  Cause cause;
  cause.more_compute_ns = Excess(context, r, cells.compute_ns);
  cause.more_input_ns = Excess(context, r, cells.input_ns);
  if (const ExposedActivity* own = witnessed.Of(r); own != nullptr && own->cpu_share >= 0) {
    std::vector<std::int64_t> cpu, delay;
    const auto of = [&](std::size_t p, double share) -> std::optional<std::int64_t> {
      const auto compute = MedianOf(context, p, cells.compute_ns);
      if (!compute || share < 0) return std::nullopt;
      return static_cast<std::int64_t>(static_cast<double>(*compute) * share);
    };
    for (std::size_t w = 0; w < witnessed.activities.size(); ++w) {
      const std::size_t p = witnessed.activity_of[w];
      if (p == r) continue;
      if (const auto ns = of(p, witnessed.activities[w].cpu_share)) cpu.push_back(*ns);
      if (const auto ns = of(p, witnessed.activities[w].offcpu_share)) delay.push_back(*ns);
    }
    if (const auto ns = of(r, own->cpu_share); ns && !cpu.empty()) cause.more_cpu_ns = *ns - LowerMedian(cpu);
    if (const auto ns = of(r, own->offcpu_share); ns && !delay.empty()) cause.more_delay_ns = *ns - LowerMedian(delay);
  }
  const std::int64_t compute = cause.more_compute_ns.value_or(0);
  if (cause.more_input_ns.value_or(0) * 2 >= price) {
    cause.name = "input";
  } else if (compute * 2 >= price) {
    const bool delayed = cause.more_delay_ns && *cause.more_delay_ns * 2 >= compute;
    if (!cause.more_cpu_ns)
      cause.name = "compute";
    else if (delayed && *cause.more_cpu_ns * 5 < compute)
      cause.name = "starved";
    else
      cause.name = *cause.more_cpu_ns * 4 >= compute ? "compute" : "waiting";
  }
  if (cause.name == "compute") {
    cause.gpu = SlowClockOf(analysis, context.ranks()[r]);
    if (cause.gpu) cause.name = "clock";
  }
  return cause;
}

std::string ActionFor(const Cause& cause, const std::string& name, const std::string& node) {
  const bool several = name.starts_with("ranks ");
  if (cause.name == "input")
    return fmt::format("prefetch input on {}, or give {} the same shard size and storage as the others", name,
                       several ? "them" : "it");
  if (cause.name == "starved")
    return fmt::format("give {}{} a core of its own (mpirun --bind-to core) or stop what else runs on {}",
                       several ? "each of " : "", name, node);
  if (cause.name == "waiting")
    return fmt::format("{} no more CPU than the others: look for sleeps, locks or file access in {} compute",
                       name + (several ? " use" : " uses"), several ? "their" : "its");
  if (cause.name == "clock")
    return fmt::format(
        "see why {} lower: nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER on {}",
        several ? fmt::format("the clocks of the GPUs of {} are", name) : fmt::format("the clock of {}'s GPU is", name),
        node);
  if (cause.name == "compute")
    return several ? fmt::format("compare the share of the work of {} with the others', then clock and memory of {}",
                                 name, node)
                   : fmt::format("compare {}'s share of the work with the others', then clock and memory of {}", name,
                                 node);
  return fmt::format("look at what {} before {} collectives: lockstep analyze --explain N lists the steps",
                     name + (several ? " do" : " does"), several ? "their" : "its");
}

namespace {

std::string ByCause(const Cause& cause) {
  if (cause.name == "input") return fmt::format("{} more in input", Duration(*cause.more_input_ns));
  if (cause.name == "clock") return SlowClockText(*cause.gpu);
  if (cause.name == "waiting") return "its longer compute uses no more CPU time";
  if (cause.name == "compute" && cause.more_cpu_ns)
    return fmt::format("it uses {} more CPU time", Duration(*cause.more_cpu_ns));
  if (cause.name == "starved")
    return fmt::format("{} of its longer compute it is runnable without a core", Duration(*cause.more_delay_ns));
  return {};
}

// Collectives that the rank took part in and whose arrivals can be compared.
std::int64_t Compared(const Context& context, std::size_t r) {
  const std::vector<std::int32_t>& members = context.tables().collective_ranks.rank;
  std::int64_t count = 0;
  for (std::size_t c = 0; c < context.tables().collectives.rows(); ++c)
    count += context.Comparable(c) &&
             std::binary_search(members.begin() + static_cast<std::ptrdiff_t>(context.timeline().FirstMember(c)),
                                members.begin() + static_cast<std::ptrdiff_t>(context.timeline().FirstMember(c + 1)),
                                context.ranks()[r]);
  return count;
}

std::string SinceWhen(const Straggler& straggler) {
  std::string text;
  if (straggler.onset_step) text += fmt::format("; since step {}", *straggler.onset_step);
  if (straggler.kind == "transient") text += "; in some steps only";
  return text;
}

}  // namespace

std::string EvidenceFor(const Context& context, const Analysis& analysis, std::size_t r, const Cause& cause,
                        const Straggler& straggler) {
  std::string text;
  if (r < analysis.ranks.size() && r < analysis.arrivals.size()) {
    const RankRow& row = analysis.ranks[r];
    const std::int64_t compared = Compared(context, r);
    text = fmt::format("last in {} of {} collectives", Percent(analysis.arrivals[r].last, compared), Count(compared));
    if (row.late_ns) text += fmt::format(", {} late (median)", Duration(*row.late_ns));
  }
  if (const std::string why = ByCause(cause); !why.empty()) text += "; " + why;
  return text + SinceWhen(straggler) +
         fmt::format("; p {}", straggler.p_value < 0.001 ? "< 0.001" : fmt::format("{:.3f}", straggler.p_value));
}

std::string BriefEvidenceFor(const Analysis& analysis, std::size_t r, const Cause& cause, const Straggler& straggler) {
  std::string text = fmt::format("costs {} alone", Duration(straggler.saves_ns));
  if (r < analysis.ranks.size() && analysis.ranks[r].late_ns)
    text += fmt::format(", {} late", Duration(*analysis.ranks[r].late_ns));
  if (const std::string why = ByCause(cause); !why.empty()) text += ", " + why;
  return text + SinceWhen(straggler);
}

Evidence RowsFor(const Context& context, const std::vector<std::int64_t>& price, const LatenessTable& late,
                 std::size_t r) {
  Evidence rows{{context.units_are_steps() ? "step" : "slice", "length_ns", "others_wait_ns", "arrives_late_ns"}, {}};
  std::vector<std::size_t> order(price.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return price[a] > price[b]; });
  order.resize(std::min(order.size(), kMaxEvidenceRows));
  for (const std::size_t u : order) {
    const Unit& unit = context.units()[u];
    const bool is_step = unit.step != kNowhere;
    rows.rows.push_back({is_step ? context.tables().steps.index[unit.step] : static_cast<std::int64_t>(u),
                         is_step ? context.tables().steps.step_ns[unit.step] : unit.length_ns(), price[u],
                         static_cast<std::int64_t>(late.mean_ns[u][r])});
  }
  return rows;
}

}  // namespace lockstep
