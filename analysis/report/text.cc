#include "analysis/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/report/collective_lines.h"
#include "analysis/report/text_lines.h"
#include "core/printed.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kBarColumns = 70, kMaxRankRows = 16, kWorstRanks = 5, kMaxCollectiveRows = 6, kMaxDetails = 3;

// Of a name in a column.
constexpr std::size_t kNameColumns = 24;

class Writer : private TextLines {
 public:
  Writer(const analysis::Analysis& analysis, const TextOptions& options) : TextLines(options), a_(analysis) {}

  std::string Render() {
    Header();
    Verdict();
    if (a_.summary.terms.Sum() > 0) StepBar();
    Findings();
    Ranks();
    Collectives();
    Trust();
    return Take();
  }

 private:
  void Header() {
    const analysis::RunFacts& run = a_.run;
    std::vector<std::string> parts;
    if (run.ranks_sharing_cores > 0)
      parts.push_back(
          fmt::format("{} ranks share {}", run.ranks_sharing_cores, analysis::Plural(run.shared_cores, "core")));
    if (!run.job.empty()) parts.push_back(run.job);
    std::string ranks = analysis::Plural(run.ranks, "rank");
    if (run.ranks_expected > run.ranks)
      ranks = fmt::format("{} of {}", analysis::Count(run.ranks), analysis::Plural(run.ranks_expected, "rank"));
    parts.push_back(run.nodes ? fmt::format("{} on {}", ranks, analysis::Plural(*run.nodes, "node")) : ranks);
    if (run.window.first_step && run.window.first_step == run.window.last_step)
      parts.push_back(fmt::format("step {}", *run.window.first_step));
    else if (run.window.first_step)
      parts.push_back(
          fmt::format("steps {}{}{} ({})", *run.window.first_step, glyphs().minus, *run.window.last_step, run.steps));
    else if (run.window.span_ns)
      parts.push_back(fmt::format("{} recorded", analysis::Duration(*run.window.span_ns)));
    for (const std::string& gpu : run.gpus) parts.push_back(gpu);
    std::string line;
    for (const std::string& part : parts) line += (line.empty() ? "" : fmt::format(" {} ", glyphs().dot)) + part;
    Wrapped("", line);
    Line();
  }

  void Verdict() {
    Wrapped("  ", a_.verdict, "1");
    for (const std::string& remark : a_.remarks) Wrapped("  ", remark);
    Line();
  }

  struct Part {
    std::string_view glyph, name;
    std::int64_t ns;
  };
  std::vector<Part> Parts() const {
    const analysis::IdentityTerms& t = a_.summary.terms;
    if (t.device_unknown)
      return {{glyphs().transfer, "exposed transfer", t.exposed_transfer_ns},
              {glyphs().wait, "waiting", t.exposed_wait_ns},
              {glyphs().unsplit, "exposed, not split", t.exposed_unsplit_ns},
              {"?", "not known (GPU not recorded)", t.Sum() - t.ExposedComm()}};
    return {{glyphs().compute, "compute", t.compute_ns},
            {glyphs().transfer, "exposed transfer", t.exposed_transfer_ns},
            {glyphs().wait, "waiting", t.exposed_wait_ns},
            {glyphs().unsplit, a_.wait_only && a_.mostly_posted ? "exposed, moved in Wait" : "exposed, not split",
             t.exposed_unsplit_ns},
            {glyphs().copy, "exposed copy", t.exposed_copy_ns},
            {glyphs().idle, "idle", t.idle_ns}};
  }

  void StepBar() {
    const analysis::Summary& s = a_.summary;
    const std::int64_t whole = s.terms.Sum();
    if (s.per_step) {
      std::string spread;
      if (s.job_step_ns_p10 && s.job_step_ns_p99 && *s.job_step_ns_p10 < *s.job_step_ns_p99)
        spread = fmt::format("   (p10 {} {} p99 {})", analysis::Duration(*s.job_step_ns_p10), glyphs().dot,
                             analysis::Duration(*s.job_step_ns_p99));
      Line("  " + Bold("STEP") + fmt::format("  {} median", analysis::Duration(whole)) + spread);
    } else {
      Line("  " + Bold("WINDOW") +
           fmt::format("  {}{}", analysis::Duration(whole), a_.ranks.size() > 1 ? " on average" : ""));
    }
    const std::vector<Part> parts = Parts();
    Line("  " + Bar(parts, whole));
    std::string legend;
    std::vector<std::string> entries;
    for (const Part& part : parts)
      if (part.ns > 0)
        entries.push_back(fmt::format("{} {} {} {}", part.glyph, part.name, analysis::Duration(part.ns),
                                      analysis::Percent(part.ns, whole)));
    for (const std::string& entry : entries) {
      if (!legend.empty() && 2 + Columns(legend) + 4 + Columns(entry) > width()) {
        Line("  " + legend);
        legend.clear();
      }
      legend += (legend.empty() ? "" : "    ") + entry;
    }
    if (!legend.empty()) Line("  " + legend);
    Line("  " + Overlap());
    ReplayedOverlap();
    const std::string_view in = s.terms.device_unknown ? "the hosts spend" : "idle includes";
    if (s.input_ns * 100 > whole)
      Line(fmt::format("  {} {} {}", in, analysis::Duration(s.input_ns),
                       s.terms.device_unknown ? "in input" : "of input"));
    MpiPart(in, "MPI-IO", &analysis::RankRow::mpi_io_ns, s.mpi_io_ns);
    MpiPart(in, "one-sided MPI", &analysis::RankRow::mpi_rma_ns, s.mpi_rma_ns);
    Line();
  }

  // A part of idle, if some rank spends 1 % of its time there.
  void MpiPart(std::string_view in, std::string_view what, std::int64_t analysis::RankRow::*part, std::int64_t mean) {
    const analysis::RankRow* most = nullptr;
    const auto share = [&](const analysis::RankRow& row) {
      return row.span_ns > 0 ? static_cast<double>(row.*part) / static_cast<double>(row.span_ns) : 0.0;
    };
    for (const analysis::RankRow& row : a_.ranks)
      if (most == nullptr || share(row) > share(*most)) most = &row;
    if (most == nullptr || share(*most) < 0.01) return;
    Line(fmt::format("  {} {} in {}; most on rank {}: {} of its time", in, analysis::Duration(mean), what, most->rank,
                     analysis::Percent(share(*most))));
  }

  // Uses the largest remainder, so that the bar has its exact length; every part that exists gets a column.
  std::string Bar(const std::vector<Part>& parts, std::int64_t whole) const {
    std::vector<std::size_t> columns(parts.size(), 0);
    std::size_t used = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double exact = static_cast<double>(kBarColumns) *
                           static_cast<double>(std::max<std::int64_t>(0, parts[i].ns)) / static_cast<double>(whole);
      columns[i] = static_cast<std::size_t>(exact);
      if (columns[i] == 0 && parts[i].ns * 200 > whole) columns[i] = 1;
      used += columns[i];
    }
    const std::size_t largest =
        static_cast<std::size_t>(std::max_element(columns.begin(), columns.end()) - columns.begin());
    if (used < kBarColumns) columns[largest] += kBarColumns - used;
    if (used > kBarColumns) columns[largest] -= used - kBarColumns;
    std::string bar;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string piece = Repeat(parts[i].glyph, columns[i]);
      bar += parts[i].name == "waiting" && !piece.empty() ? Paint("31", piece) : piece;
    }
    return bar;
  }

  std::string Overlap() const {
    const analysis::Summary& s = a_.summary;
    if (s.comm_high_ns <= 0 && s.comm_ns <= 0)
      return a_.unrecorded.empty() ? "no communication" : "no communication recorded";
    if (s.terms.device_unknown)
      return fmt::format("communication {} on the hosts; how much of it compute hides is not known",
                         analysis::Duration(std::max(s.comm_ns, s.terms.ExposedComm())));
    if (a_.wait_only)
      return fmt::format("communication {}, none known to overlap: {}",
                         analysis::Duration(std::max(s.comm_ns, s.terms.ExposedComm())),
                         a_.mostly_posted ? "it moved only in Wait" : "part is blocking, the rest moved only in Wait");
    if (s.hidden_comm_high_ns <= 0)
      return fmt::format("communication {}, none of it hidden under compute", analysis::Duration(s.comm_ns));
    const double low = s.overlap_low.value_or(0), high = s.overlap_high.value_or(low);
    if (high - low < 0.02)
      return fmt::format("communication {}, of which {} hidden under compute ({})", analysis::Duration(s.comm_ns),
                         analysis::Duration(s.hidden_comm_ns), analysis::Percent(low));
    const auto range = [](std::int64_t from, std::int64_t to) {
      const std::string begin = analysis::Duration(from), end = analysis::Duration(to);
      return begin == end ? begin : begin + " to " + end;
    };
    return fmt::format("communication {}, of which {} hidden under compute ({} to {})",
                       range(s.comm_ns, s.comm_high_ns), range(s.hidden_comm_ns, s.hidden_comm_high_ns),
                       analysis::Percent(low), analysis::Percent(high));
  }

  // The gain if communication were hidden: exposed time is not yet cost.
  void ReplayedOverlap() {
    if (!a_.overlap || !a_.replay || !a_.summary.per_step) return;
    const analysis::OverlapScore& o = *a_.overlap;
    const std::int64_t cost = o.t_actual_ns - o.t_free_comm_ns, gain = o.t_actual_ns - o.t_best_ns;
    const std::int64_t exposed = a_.summary.terms.exposed_transfer_ns + a_.summary.terms.exposed_unsplit_ns;
    if (cost * 100 < o.t_actual_ns && exposed * 100 < a_.summary.terms.Sum()) return;
    std::string text = fmt::format("without communication a replayed step is {} shorter",
                                   analysis::Duration(std::max<std::int64_t>(0, cost)));
    if (gain * 100 >= o.t_actual_ns)
      text += fmt::format("; with the best schedule found, {} shorter", analysis::Duration(gain));
    else if (cost * 100 >= o.t_actual_ns)
      text += "; the best schedule found saves less than 1 %";
    if (o.efficiency && *o.t_no_overlap_ns - o.t_best_ns > o.t_actual_ns / 100)
      text += fmt::format(" (overlap efficiency {})", analysis::Percent(std::clamp(*o.efficiency, 0.0, 1.0)));
    if (exposed * 50 > a_.summary.terms.Sum() && cost * 2 < exposed)
      text += fmt::format(". The rest of the {} exposed would be spent on other things", analysis::Duration(exposed));
    if (!a_.replay->sampled.empty()) text += fmt::format("; {} replayed", a_.replay->sampled);
    Wrapped("  ", text);
  }

  void Findings() {
    if (a_.findings.empty()) return;
    const std::int64_t whole = a_.summary.terms.Sum();
    const std::size_t price_at = 76;
    Line("  " + Bold("WHAT TO FIX") + std::string(price_at - 13, ' ') +
         Bold(a_.summary.per_step ? "saves per step" : "saves of the time"));
    for (std::size_t i = 0; i < a_.findings.size(); ++i) {
      const analysis::Finding& f = a_.findings[i];
      const std::string kind(analysis::KindOf(f.id).label);
      std::string line = fmt::format("  {}  {} {}", i + 1, Pad(kind, 10), PrintedShort(Printed(f.brief), kWordColumns));
      std::string price = f.saves_share ? fmt::format("{}{}", f.upper_bound ? std::string(glyphs().at_most) + " " : "",
                                                      analysis::Percent(*f.saves_share))
                                        : "no price";
      if (f.saves_ns_per_step)
        price = fmt::format("{}{}  {}", f.upper_bound ? std::string(glyphs().at_most) + " " : "",
                            analysis::Duration(*f.saves_ns_per_step), analysis::Percent(*f.saves_ns_per_step, whole));
      Line(Pad(line, price_at - 1) + " " + price);
      Wrapped("                ", f.evidence);
      Wrapped("                ", std::string(glyphs().arrow) + " " + f.action);
    }
    if (!a_.additivity.empty()) Wrapped("     ", a_.additivity);
    Line();
  }

  // One column of the ranks' table.
  struct RankColumn {
    std::string_view name;
    std::int64_t (*value)(const analysis::RankRow&);
    bool always;
    bool of_device = false;
  };

  static const analysis::IdentityTerms& TermsOf(const analysis::RankRow& row) {
    return row.step_terms ? *row.step_terms : row.terms;
  }

  std::vector<std::size_t> RankOrder(bool& shortened) const {
    std::vector<std::size_t> order(a_.ranks.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    shortened = order.size() > kMaxRankRows;
    if (shortened) {
      std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
        const analysis::RankRow &p = a_.ranks[x], &q = a_.ranks[y];
        if (p.late_ns_median.value_or(0) != q.late_ns_median.value_or(0))
          return p.late_ns_median.value_or(0) > q.late_ns_median.value_or(0);
        return TermsOf(p).compute_ns > TermsOf(q).compute_ns;
      });
      // Ranks that a finding names come first.
      std::set<std::int32_t> named;
      for (const analysis::Straggler& straggler : a_.stragglers) named.insert(straggler.rank);
      std::stable_partition(order.begin(), order.end(),
                            [&](std::size_t i) { return named.contains(a_.ranks[i].rank); });
    }
    return order;
  }

  void Ranks() {
    if (a_.ranks.empty()) return;
    static constexpr RankColumn kColumns[] = {
        {"compute", [](const analysis::RankRow& r) { return TermsOf(r).compute_ns; }, true, true},
        {"transfer", [](const analysis::RankRow& r) { return TermsOf(r).exposed_transfer_ns; }, true},
        {"waiting", [](const analysis::RankRow& r) { return TermsOf(r).exposed_wait_ns; }, true},
        {"unsplit", [](const analysis::RankRow& r) { return TermsOf(r).exposed_unsplit_ns; }, false},
        {"copy", [](const analysis::RankRow& r) { return TermsOf(r).exposed_copy_ns; }, false, true},
        {"idle", [](const analysis::RankRow& r) { return TermsOf(r).idle_ns; }, true, true},
    };
    std::vector<const RankColumn*> columns;
    for (const RankColumn& column : kColumns)
      if (column.always || std::any_of(a_.ranks.begin(), a_.ranks.end(),
                                       [&](const analysis::RankRow& row) { return column.value(row) != 0; }))
        columns.push_back(&column);

    bool shortened = false;
    const std::vector<std::size_t> order = RankOrder(shortened);
    const std::size_t shown = shortened ? kWorstRanks : order.size();
    std::int64_t latest = 0;
    std::size_t name_columns = 12;
    for (std::size_t i = 0; i < shown; ++i) {
      const analysis::RankRow& row = a_.ranks[order[i]];
      latest = std::max(latest, row.late_ns_median.value_or(0));
      name_columns = std::max(name_columns, std::to_string(row.rank).size() + 2 + Columns(NodeName(row)));
    }
    // All of them in the step that STEP shows, or all of the whole window.
    const bool per_step = a_.summary.per_step;
    std::string head = "  " + Pad(fmt::format("RANKS  {}", per_step ? "ms/step" : "ms"), name_columns + 2);
    for (const RankColumn* column : columns) head += Pad(std::string(column->name), 10, true);
    if (a_.ranks.size() > 1) head += Pad("last", 9, true) + "  arrives late (median)";
    Line(Bold(head));
    for (std::size_t i = 0; i < shown; ++i) RankLine(a_.ranks[order[i]], columns, name_columns, latest);
    if (shortened) {
      std::int64_t low = INT64_MAX, high = INT64_MIN;
      for (std::size_t i = shown; i < order.size(); ++i) {
        low = std::min(low, TermsOf(a_.ranks[order[i]]).compute_ns);
        high = std::max(high, TermsOf(a_.ranks[order[i]]).compute_ns);
      }
      const bool known = std::none_of(a_.ranks.begin(), a_.ranks.end(),
                                      [](const analysis::RankRow& row) { return TermsOf(row).device_unknown; });
      Line(fmt::format(
          "  {}{}", analysis::Plural(static_cast<std::int64_t>(order.size() - shown), "other"),
          known && high > low ? fmt::format(" within {} of compute", analysis::Duration(high - low)) : std::string()));
    }
    Line();
  }

  static std::string Milliseconds(std::int64_t ns) {
    const double ms = static_cast<double>(ns) / 1e6;
    return fmt::format("{:.{}f}", ms, ns == 0 || ms >= 99.95 ? 0 : ms >= 9.995 ? 1 : 2);
  }

  static std::string NodeName(const analysis::RankRow& row) { return PrintedShort(Printed(row.node), kNameColumns); }

  void RankLine(const analysis::RankRow& row, const std::vector<const RankColumn*>& columns, std::size_t name_columns,
                std::int64_t latest) {
    std::string line = "  " + Pad(fmt::format("{}  {}", row.rank, NodeName(row)), name_columns + 2);
    // A rank without that step has nothing to be compared with the others.
    const bool known = row.step_terms.has_value() || !a_.summary.per_step;
    for (const RankColumn* column : columns) {
      const bool told = known && !(column->of_device && TermsOf(row).device_unknown);
      line += Pad(told ? Milliseconds(column->value(row)) : "-", 10, true);
    }
    if (a_.ranks.size() > 1) {
      line += Pad(row.last_fraction ? analysis::Percent(*row.last_fraction) : "-", 9, true) + "  ";
      const std::int64_t late = row.late_ns_median.value_or(0);
      if (late > 0 && latest > 0) {
        // In floating point: a damaged trace's times may be too large to multiply.
        const auto length =
            static_cast<std::size_t>(10.0 * static_cast<double>(std::min(late, latest)) / static_cast<double>(latest));
        line += (length > 0 ? Repeat(glyphs().late, length) + " " : "") + analysis::Duration(late);
      }
    }
    while (!line.empty() && line.back() == ' ') line.pop_back();
    Line(line);
  }

  void Collectives() {
    if (a_.collectives.empty()) return;
    const std::vector<CollectiveLine> lines = CollectiveLines(a_.collectives, kMaxCollectiveRows);
    Line(Bold("  " + Pad("COLLECTIVES", 15) + Pad("ranks", 12) + Pad("count", 9, true) + Pad("bytes", 9, true) +
              Pad("transfer", 10, true) + Pad("mean wait", 10, true) + Pad("longest", 10, true) +
              Pad("on rank", 8, true) + "  bus bandwidth"));
    for (std::size_t i = 0; i < std::min(lines.size(), kMaxCollectiveRows); ++i) {
      const CollectiveLine& one = lines[i];
      std::string group = one.groups > 1 ? fmt::format("{} x {}", one.groups, one.row->group.size())
                                         : analysis::RankList(one.row->group);
      if (Columns(group) > 11) group = group.substr(0, 8) + std::string(glyphs().rest);
      const auto time = [](const std::optional<std::int64_t>& ns) { return ns ? analysis::Duration(*ns) : "-"; };
      // If no rank waits, none is named.
      const bool waits = one.longest_wait_ns.value_or(0) > 0 && one.longest_wait_rank.has_value();
      std::string line =
          "  " + Pad(PrintedShort(one.row->op == "none" ? "unknown kind" : Printed(one.row->op), 14), 15) +
          Pad(group, 12) + Pad(analysis::Count(one.count), 9, true) +
          Pad(one.row->bytes ? analysis::Bytes(*one.row->bytes) : "-", 9, true) + Pad(time(one.transfer_ns), 10, true) +
          Pad(time(one.wait_ns), 10, true) + Pad(time(one.longest_wait_ns), 10, true) +
          Pad(waits ? fmt::format("{}", *one.longest_wait_rank) : "-", 8, true);
      line += "  " + (one.bus_bandwidth ? analysis::Bandwidth(*one.bus_bandwidth) : std::string("-"));
      if (one.censored > 0) line += fmt::format("  ({} end uncertain)", analysis::Count(one.censored));
      if (one.partial > 0)
        line += fmt::format("  ({} {} members)", analysis::Count(one.partial), one.partial == 1 ? "lacks" : "lack");
      if (one.grouped > 0) line += fmt::format("  ({} share a kernel)", analysis::Count(one.grouped));
      Line(line);
    }
    if (lines.size() > kMaxCollectiveRows)
      Line(fmt::format("  {} in analysis.json",
                       analysis::Plural(static_cast<std::int64_t>(lines.size() - kMaxCollectiveRows), "more row")));
    Line();
  }

  void Trust() {
    const analysis::Trust& t = a_.trust;
    std::string text;
    const auto add = [&](const std::string& part) {
      text += (text.empty() ? "" : fmt::format(" {} ", glyphs().dot)) + part;
    };
    if (a_.run.ranks > 1) {
      if (t.clock_error_ns_max)
        add(fmt::format("clock {}{} median, {}{} at most", glyphs().plus_minus,
                        analysis::Duration(t.clock_error_ns_p50.value_or(0)), glyphs().plus_minus,
                        analysis::Duration(*t.clock_error_ns_max)));
      else
        add("clock error unknown");
    }
    add(analysis::Plural(t.events, "event"));
    add(analysis::Count(t.dropped) + " dropped");
    if (a_.run.ranks > 1) {
      add(fmt::format("{} of {} unmatched", analysis::Count(t.unmatched_collectives),
                      analysis::Plural(t.collectives, "collective")));
      add(analysis::Plural(t.clock_violations, "clock violation"));
    }
    if (t.overhead_fraction) add("overhead " + analysis::Percent(*t.overhead_fraction));
    if (t.agent_cpu_fraction) add("agent " + analysis::Percent(*t.agent_cpu_fraction) + " CPU");
    Wrapped("                 ", text, {}, "  " + Bold("TRUST") + "          ");
    Losses();
  }

  // A loss that many ranks share is one line.
  void Losses() {
    struct Sum {
      const analysis::LossRow* loss;
      std::uint64_t count = 0;
      std::vector<std::int32_t> ranks;
      std::vector<std::string_view> details;
    };
    std::vector<Sum> sums;
    for (const analysis::LossRow& loss : a_.losses) {
      if (sums.empty() || sums.back().loss->name != loss.name) sums.push_back({&loss});
      sums.back().count += loss.count;
      if (loss.rank >= 0 && (sums.back().ranks.empty() || sums.back().ranks.back() != loss.rank))
        sums.back().ranks.push_back(loss.rank);
      std::vector<std::string_view>& details = sums.back().details;
      if (!loss.detail.empty() && std::find(details.begin(), details.end(), loss.detail) == details.end())
        details.push_back(loss.detail);
    }
    for (const Sum& sum : sums) {
      std::string text = sum.loss->sentence;
      if (!text.starts_with("no ")) text += ": " + analysis::Count(static_cast<std::int64_t>(sum.count));
      if (!sum.ranks.empty())
        text += fmt::format(" (rank{} {})", sum.ranks.size() == 1 ? "" : "s", analysis::ShortRankList(sum.ranks));
      for (std::size_t i = 0; i < std::min(sum.details.size(), kMaxDetails); ++i)
        text += "; " + std::string(sum.details[i]);
      if (sum.details.size() > kMaxDetails)
        text += fmt::format("; {} more in analysis.json", sum.details.size() - kMaxDetails);
      Wrapped("                 ", text, sum.loss->data_loss ? "33" : "2");
      if (!sum.loss->remedy.empty())
        Wrapped("                   ", std::string(glyphs().arrow) + " " + sum.loss->remedy, "2");
    }
  }

  const analysis::Analysis& a_;
};

}  // namespace

std::string RenderText(const analysis::Analysis& analysis, const TextOptions& options) {
  return Writer(analysis, options).Render();
}

std::string RenderExplanation(const analysis::Analysis& analysis, std::size_t number, const TextOptions&) {
  if (number == 0 || number > analysis.findings.size()) return {};
  const analysis::Finding& f = analysis.findings[number - 1];
  std::string text = fmt::format("{}  {}\n  {}\n  {}\n  {}\n\n", number, analysis::KindOf(f.id).name,
                                 Printed(f.headline), Printed(f.evidence), Printed(f.action));
  const auto cell = [](std::int64_t value) {
    return value == analysis::Evidence::kUnknown ? std::string("-") : std::to_string(value);
  };
  std::vector<std::size_t> widths;
  for (const std::string& column : f.explain.columns) widths.push_back(column.size());
  for (const auto& row : f.explain.rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], cell(row[i]).size());
  std::string line;
  for (std::size_t i = 0; i < f.explain.columns.size(); ++i) line += "  " + Pad(f.explain.columns[i], widths[i], true);
  text += line + "\n";
  for (std::size_t r = 0; r < f.explain.rows.size(); ++r) {
    const auto& row = f.explain.rows[r];
    line.clear();
    for (std::size_t i = 0; i < row.size(); ++i) line += "  " + Pad(cell(row[i]), widths[i], true);
    if (r < f.explain.names.size()) line += "  " + Printed(f.explain.names[r]);
    text += line + "\n";
  }
  return text;
}

}  // namespace lockstep::report
