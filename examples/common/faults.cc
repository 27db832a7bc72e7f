#include "examples/common/faults.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace lockstep::example {
namespace {

// "2:1.3" -> {2, 1.3}, empty if it does not have this form. `separators[i]` stands behind field i.
std::vector<double> Fields(const std::string& text, const char* separators) {
  std::vector<double> fields;
  const char *at = text.data(), *end = at + text.size();
  for (;; ++separators) {
    double value = 0;
    const auto [rest, error] = std::from_chars(at, end, value);
    if (error != std::errc()) return {};
    fields.push_back(value);
    if (*separators == '\0') return rest == end ? fields : std::vector<double>();
    if (rest == end || *rest != *separators) return {};
    at = rest + 1;
  }
}

// Empty if `value` is a rank of the job.
std::string CheckRank(double value, std::size_t ranks) {
  const auto rank = static_cast<long>(value);
  if (static_cast<double>(rank) != value || rank < 0) return "a rank must be a whole number";
  if (rank >= static_cast<long>(ranks))
    return "rank " + std::to_string(rank) + " is not in this job of " + std::to_string(ranks) + " ranks";
  return {};
}

// One RANK:VALUE option. `least`: smallest sensible value.
std::string ParseByRank(const char* option, const std::vector<std::string>& texts, const char* form, double least,
                        const char* too_small, std::vector<double>& values) {
  const std::string name = std::string(option) + ": ";
  for (const std::string& text : texts) {
    const std::vector<double> fields = Fields(text, ":");
    if (fields.empty()) return name + "expected " + form + ", got '" + text + "'";
    if (const std::string wrong = CheckRank(fields[0], values.size()); !wrong.empty()) return name + wrong;
    if (!(fields[1] >= least)) return name + too_small + " in '" + text + "'";
    values[static_cast<std::size_t>(fields[0])] = fields[1];
  }
  return {};
}

std::string ParseStalls(const std::vector<std::string>& texts, std::vector<Faults::Stall>& stalls) {
  for (const std::string& text : texts) {
    const std::vector<double> one = Fields(text, "::"), all = Fields(text, ":");
    if (one.empty() && all.empty()) return "--stall: expected EVERY:MS or RANK:EVERY:MS, got '" + text + "'";
    const double every = one.empty() ? all[0] : one[1], ms = one.empty() ? all[1] : one[2];
    if (!(every >= 1) || !(ms >= 0) || every > 1e9)
      return "--stall: a period below 1 step or a time below 0 in '" + text + "'";
    const Faults::Stall stall{static_cast<int>(every), ms};
    if (one.empty()) {
      stalls.assign(stalls.size(), stall);
      continue;
    }
    if (const std::string wrong = CheckRank(one[0], stalls.size()); !wrong.empty()) return "--stall: " + wrong;
    stalls[static_cast<std::size_t>(one[0])] = stall;
  }
  return {};
}

std::string ParseLinks(const std::vector<std::string>& texts, std::vector<double>& link_us) {
  for (const std::string& text : texts) {
    const std::vector<double> fields = Fields(text, "-:");
    if (fields.empty()) return "--slow-link: expected RANK-RANK:US, got '" + text + "'";
    for (const double rank : {fields[0], fields[1]})
      if (const std::string wrong = CheckRank(rank, link_us.size()); !wrong.empty()) return "--slow-link: " + wrong;
    if (fields[0] == fields[1]) return "--slow-link: a link needs two ranks, got '" + text + "'";
    if (!(fields[2] >= 0)) return "--slow-link: a delay below 0 in '" + text + "'";
    for (const double rank : {fields[0], fields[1]}) link_us[static_cast<std::size_t>(rank)] += fields[2];
  }
  return {};
}

}  // namespace

void AddFaultOptions(Arguments& arguments, FaultTexts& texts) {
  const auto add = [&](const char* name, std::vector<std::string>& values, const char* help) {
    arguments.Texts(name, values, ',', help);
  };
  add("--slow-rank", texts.slow_rank, "RANK:FACTOR, a rank whose compute takes FACTOR times as long");
  add("--slow-input", texts.slow_input, "RANK:MS, a rank whose batches take MS longer to load");
  add("--stall", texts.stall,
      "EVERY:MS or RANK:EVERY:MS, a pause of the host between forward and backward in every EVERY-th step, as a "
      "garbage collector makes it; without RANK on all ranks in the same steps");
  add("--late-start", texts.late_start, "RANK:SECONDS, a rank that enters MPI_Init that much later than the others");
  add("--slow-link", texts.slow_link,
      "RANK-RANK:US, two ranks that both pause before each collective, as behind a link that is asleep");
}

std::string ParseFaults(const FaultTexts& texts, int ranks, Faults& faults) {
  const auto count = static_cast<std::size_t>(ranks);
  faults.slow.assign(count, 1.0);
  faults.input_ms.assign(count, 0.0);
  faults.stall.assign(count, {});
  faults.link_us.assign(count, 0.0);
  std::vector<double> late(count);
  std::string wrong = ParseByRank("--slow-rank", texts.slow_rank, "RANK:FACTOR", 1,
                                  "a factor below 1 (a rank can only be slowed)", faults.slow);
  if (wrong.empty())
    wrong = ParseByRank("--slow-input", texts.slow_input, "RANK:MS", 0, "a time below 0", faults.input_ms);
  if (wrong.empty()) wrong = ParseByRank("--late-start", texts.late_start, "RANK:SECONDS", 0, "a time below 0", late);
  if (wrong.empty()) wrong = ParseStalls(texts.stall, faults.stall);
  if (wrong.empty()) wrong = ParseLinks(texts.slow_link, faults.link_us);
  return wrong;
}

void StartLate(int argc, char** argv) {
  const char* own = nullptr;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (own == nullptr) own = std::getenv(name);
  if (own == nullptr) return;
  constexpr const char* kName = "--late-start";
  const std::size_t length = std::strlen(kName);
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kName, length) != 0) continue;
    std::string values = argv[i][length] == '=' ? argv[i] + length + 1 : i + 1 < argc ? argv[i + 1] : "";
    for (std::size_t at = 0; at <= values.size();) {
      const std::size_t end = std::min(values.find(',', at), values.size());
      const std::vector<double> fields = Fields(values.substr(at, end - at), ":");
      if (!fields.empty() && fields[0] == std::atof(own) && fields[1] > 0)
        SleepUntil(NowNs() + static_cast<std::int64_t>(fields[1] * 1e9));
      at = end + 1;
    }
  }
}

FaultInjector::FaultInjector(const Faults& faults, int rank, Pace& pace)
    : slow_(faults.slow[static_cast<std::size_t>(rank)]),
      input_ns_(faults.input_ms[static_cast<std::size_t>(rank)] * 1e6),
      link_ns_(faults.link_us[static_cast<std::size_t>(rank)] * 1e3),
      stall_(faults.stall[static_cast<std::size_t>(rank)]),
      pace_(pace) {}

void FaultInjector::BetweenPasses(int step) {
  if (stall_.every_steps > 0 && (step + 1) % stall_.every_steps == 0) pace_.Delay(stall_.ms * 1e6);
}

}  // namespace lockstep::example
