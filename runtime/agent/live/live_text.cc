#include "runtime/agent/live/live_text.h"

#include <cstdio>
#include <string_view>

namespace lockstep::agent {
namespace {

constexpr std::size_t kRanksNamed = 5;
// Ranks whose shares of time in MPI differ by less are alike.
constexpr double kUnlike = 0.1;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string Time(std::int64_t ns) {
  const auto value = static_cast<double>(ns);
  if (ns < 1'000) return Format("%lld ns", static_cast<long long>(ns));
  if (ns < 1'000'000) return Format("%.3g us", value / 1e3);
  if (ns < 1'000'000'000) return Format("%.3g ms", value / 1e6);
  return Format("%.3g s", value / 1e9);
}

std::string Percent(double share) { return Format("%.*f %%", share < 0.1 ? 1 : 0, 100 * share); }

std::string Ranks(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < kRanksNamed; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > kRanksNamed) text += " and " + std::to_string(ranks.size() - kRanksNamed) + " more";
  return text;
}

std::string Last(const LiveFigures& figures) {
  if (figures.last_rank >= 0)
    return Format(" · last: rank %d, in %s of %lld collectives, %s late", figures.last_rank,
                  Percent(static_cast<double>(figures.last_count) / static_cast<double>(figures.collectives)).c_str(),
                  static_cast<long long>(figures.collectives), Time(figures.last_late_ns).c_str());
  if (figures.collectives > 0) return " · last: all tie";
  return "";
}

// The known parts: "exposed wait 18 ms, unsplit 16 ms"; if nothing could be split, all of it as one.
std::string Exposed(const LiveFigures& figures) {
  std::string text;
  const auto add = [&](const char* name, std::int64_t ns) {
    if (ns >= 0) text += (text.empty() ? " · exposed " : ", ") + std::string(name) + " " + Time(ns);
  };
  add("wait", figures.exposed_wait_ns);
  add("transfer", figures.exposed_transfer_ns);
  if (figures.exposed_unsplit_ns > 0) add(text.empty() ? "communication" : "unsplit", figures.exposed_unsplit_ns);
  return text;
}

// " · in MPI 30 % of the time: rank 1 57 %, rank 0 3.0 %".
std::string InMpi(const LiveFigures& figures) {
  if (figures.mpi_share < 0) return "";
  std::string text = " · in MPI " + Percent(figures.mpi_share) + " of the time";
  if (figures.most_mpi_rank >= 0 && figures.most_mpi_share - figures.least_mpi_share >= kUnlike)
    text += Format(": rank %d %s, rank %d %s", figures.most_mpi_rank, Percent(figures.most_mpi_share).c_str(),
                   figures.least_mpi_rank, Percent(figures.least_mpi_share).c_str());
  return text;
}

// The figures of the steps, or why there are none.
std::string Steps(const LiveFigures& figures, std::int64_t period_ns) {
  if (figures.ranks == 0) return "no rank has reported in the last " + Time(period_ns);
  if (figures.steps > 0) {
    std::string text = Format("steps %lld-%lld (%lld) · step %s", static_cast<long long>(figures.first_step),
                              static_cast<long long>(figures.last_step), static_cast<long long>(figures.steps),
                              Time(figures.step_ns).c_str());
    return text + Exposed(figures) + Last(figures);
  }
  if (figures.open_step >= 0)
    return Format("no step ended · step %lld runs for %s on rank %d", static_cast<long long>(figures.open_step),
                  Time(figures.open_ns).c_str(), figures.open_rank);
  if (!figures.recording) return "recording is off";
  const std::string share = InMpi(figures);
  if (figures.steps_ended == 0) return "no step yet (mark steps with lockstep_step() or --step-range)" + share;
  return "no step to show" + share;
}

class Metrics {
 public:
  template <typename... Values>
  void Add(const char* name, const char* type, const char* help, const char* format, Values... values) {
    text_ += Format("# HELP lockstep_%s %s\n# TYPE lockstep_%s %s\n", name, help, name, type);
    text_ += Format((std::string("lockstep_%s") + format + "\n").c_str(), name, values...);
  }
  void Seconds(const char* name, const char* help, std::int64_t ns) {
    if (ns >= 0) Add(name, "gauge", help, " %.9f", static_cast<double>(ns) / 1e9);
  }
  void Count(const char* name, const char* type, const char* help, std::uint64_t count) {
    Add(name, type, help, " %llu", static_cast<unsigned long long>(count));
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace

std::string LiveLine(const LiveFigures& figures, std::int32_t expected, std::int64_t period_ns) {
  std::string text = "live: " + Steps(figures, period_ns);
  if (figures.steps > 0 && figures.clock_error_ns != 0)
    text += figures.clock_error_ns < 0 ? " · clocks not compared yet" : " · clock ±" + Time(figures.clock_error_ns);
  if (figures.ranks > 0 && !figures.silent.empty())
    text += Format(" · %lld of %d ranks, nothing from ", static_cast<long long>(figures.ranks), expected) +
            Ranks(figures.silent);
  if (figures.dropped > 0) text += " · " + std::to_string(figures.dropped) + " records dropped";
  return text;
}

std::string LiveMetrics(const LiveFigures& figures, std::int32_t expected, std::int64_t realtime_ns) {
  Metrics out;
  out.Seconds("updated_timestamp_seconds", "When these were computed, since 1970.", realtime_ns);
  out.Count("ranks", "gauge", "Ranks of the job.", static_cast<std::uint64_t>(expected));
  out.Count("ranks_heard", "gauge", "Ranks that reported in this period or the previous one.",
            static_cast<std::uint64_t>(figures.ranks));
  if (figures.ranks > 0)
    out.Count("steps_total", "counter", "Steps that ended on every rank that reported.",
              static_cast<std::uint64_t>(figures.steps_ended));
  out.Count("steps_sampled", "gauge", "Steps that the means are over.", static_cast<std::uint64_t>(figures.steps));
  out.Seconds("step_seconds", "Mean over steps and ranks: length of a step.", figures.step_ns);
  out.Seconds("exposed_wait_seconds", "Mean over steps and ranks: exposed waiting in collectives.",
              figures.exposed_wait_ns);
  out.Seconds("exposed_transfer_seconds", "Mean over steps and ranks: exposed transfer of collectives.",
              figures.exposed_transfer_ns);
  out.Seconds("exposed_unsplit_seconds",
              "Mean over steps and ranks: exposed communication that is not split into the two.",
              figures.exposed_unsplit_ns);
  if (figures.steps > 0)
    out.Seconds("clock_error_seconds", "Largest error of a rank's clock in these.", figures.clock_error_ns);
  if (figures.last_rank >= 0) {
    out.Add("last_share", "gauge", "Share of collectives to which the rank that others wait for longest came last.",
            "{rank=\"%d\"} %.6f", figures.last_rank,
            static_cast<double>(figures.last_count) / static_cast<double>(figures.collectives));
    out.Add("last_late_seconds", "gauge", "How much later than the second to last it came to these, on average.",
            "{rank=\"%d\"} %.9f", figures.last_rank, static_cast<double>(figures.last_late_ns) / 1e9);
  }
  if (figures.open_step >= 0)
    out.Add("open_step_seconds", "gauge", "How long the step under way has run on the rank furthest behind.",
            "{rank=\"%d\",step=\"%lld\"} %.9f", figures.open_rank, static_cast<long long>(figures.open_step),
            static_cast<double>(figures.open_ns) / 1e9);
  if (figures.mpi_share >= 0)
    out.Add("mpi_share", "gauge", "Share of time in communicating MPI calls, mean over ranks.", " %.6f",
            figures.mpi_share);
  if (figures.ranks > 0) {
    out.Count("records_total", "counter", "Records taken from the application.", figures.records);
    out.Count("dropped_records_total", "counter", "Records lost.", figures.dropped);
  }
  return out.text();
}

}  // namespace lockstep::agent
