#include "analysis/report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "analysis/choose_findings.h"
#include "analysis/core/format.h"
#include "analysis/report/text_lines.h"
#include "analysis/report/text_table.h"
#include "analysis/report/text_tables.h"
#include "core/printed.h"

namespace lockstep::report {
namespace {

constexpr std::size_t kMaxDetails = 3;
// Where a finding's price begins, and its words.
constexpr std::size_t kPriceAt = 76, kEvidenceAt = 16;
// The longest step is shown beside p99 where it is so many times as long, otherwise p99 is enough.
constexpr double kFarBeyond = 1.25;
constexpr std::string_view kTrustIndent = "                 ", kBelowTrust = "                   ";
constexpr std::string_view kExplain = " (--explain trust)";
constexpr std::size_t kRoomForMore = std::string_view("noted: ; 99 more").size() + kExplain.size();

class Writer : private TextLines {
 public:
  Writer(const analysis::Analysis& analysis, const TextOptions& options) : TextLines(options), a_(analysis) {}

  std::string Render() {
    Header();
    Hang();
    Verdict();
    if (a_.summary.terms.Sum() > 0) StepBar();
    Findings();
    RanksTable(a_, *this);
    CollectivesTable(a_, *this);
    Trust();
    NameLosses();
    return Take();
  }

  std::string RenderTrust() {
    Trust();
    ExplainLosses();
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

  // Before anything else: what steps cost is of no interest to who looks for a hang.
  void Hang() {
    for (const std::string& line : a_.hang) {
      const std::size_t indent = std::min(line.find_first_not_of(' '), line.size());
      Wrapped("  " + std::string(indent, ' '), std::string_view(line).substr(indent), indent == 0 ? "1" : "");
    }
    if (!a_.hang.empty()) Line();
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
              {glyphs().unsplit, "exposed, unsplit", t.exposed_unsplit_ns},
              {"?", "not known (GPU not recorded)", t.Sum() - t.ExposedComm()}};
    return {{glyphs().compute, "compute", t.compute_ns},
            {glyphs().blocked, "blocked", t.blocked_ns},
            {glyphs().transfer, "exposed transfer", t.exposed_transfer_ns},
            {glyphs().wait, "waiting", t.exposed_wait_ns},
            {glyphs().unsplit, a_.wait_only && a_.mostly_posted ? "exposed, moved in Wait" : "exposed, unsplit",
             t.exposed_unsplit_ns},
            {glyphs().copy, "exposed copy", t.exposed_copy_ns},
            {glyphs().idle, "idle", t.idle_ns}};
  }

  void StepBar() {
    const analysis::Summary& s = a_.summary;
    const std::int64_t whole = s.terms.Sum();
    if (s.per_step) {
      std::string spread;
      const auto add = [&](std::string_view name, const analysis::OptInt& ns) {
        spread += fmt::format("{}{} {}", spread.empty() ? "" : fmt::format(" {} ", glyphs().dot), name,
                              analysis::Duration(ns.value_or(0)));
      };
      if (s.job_step_ns_min < s.job_step_ns_max) {
        add("median", s.job_step_ns_median);
        add(s.job_step_ns_p10 ? "p10" : "shortest", s.job_step_ns_p10 ? s.job_step_ns_p10 : s.job_step_ns_min);
        if (s.job_step_ns_p99) add("p99", s.job_step_ns_p99);
        if (!s.job_step_ns_p99 ||
            static_cast<double>(*s.job_step_ns_max) >= kFarBeyond * static_cast<double>(*s.job_step_ns_p99))
          add("longest", s.job_step_ns_max);
        spread = "   (" + spread + ")";
      }
      Wrapped("        ", analysis::Duration(whole) + " mean" + spread, {}, "  " + Bold("STEP") + "  ");
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
    Wrapped("  ", Overlap());
    ReplayedOverlap();
    const std::string_view in = s.terms.device_unknown ? "the hosts spend" : "idle includes";
    if (s.input_ns * 100 > whole)
      Wrapped("  ", fmt::format("{} {} {}", in, analysis::Duration(s.input_ns),
                                s.terms.device_unknown ? "in input" : "of input"));
    MpiPart(in, "MPI-IO", &analysis::RankRow::mpi_io_ns, s.mpi_io_ns);
    MpiPart(in, "one-sided MPI", &analysis::RankRow::mpi_rma_ns, s.mpi_rma_ns);
    MpiPart(in, "MPI_Init and MPI_Finalize", &analysis::RankRow::mpi_setup_ns, s.mpi_setup_ns);
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
    Wrapped("  ", fmt::format("{} {} in {}; most on rank {}: {} of its time", in, analysis::Duration(mean), what,
                              most->rank, analysis::Percent(share(*most))));
  }

  // Uses the largest remainder, so that the bar has its exact length; every part that exists gets a column.
  std::string Bar(const std::vector<Part>& parts, std::int64_t whole) const {
    const std::size_t all = width() <= 100 ? std::min(70u, width() - 2) : width() - 30;
    std::vector<std::size_t> columns(parts.size(), 0);
    std::size_t used = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const double exact = static_cast<double>(all) * static_cast<double>(std::max<std::int64_t>(0, parts[i].ns)) /
                           static_cast<double>(whole);
      columns[i] = static_cast<std::size_t>(exact);
      if (columns[i] == 0 && parts[i].ns * 200 > whole) columns[i] = 1;
      used += columns[i];
    }
    const std::size_t largest =
        static_cast<std::size_t>(std::max_element(columns.begin(), columns.end()) - columns.begin());
    if (used < all) columns[largest] += all - used;
    if (used > all) columns[largest] -= used - all;
    std::string bar;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::string piece = Repeat(parts[i].glyph, columns[i]);
      bar += parts[i].name == "waiting" && !piece.empty() ? Paint("31", piece) : piece;
    }
    return bar;
  }

  std::string Overlap() const {
    const analysis::Summary& s = a_.summary;
    if (s.comm_high_ns <= 0 && s.comm_ns <= 0 && s.per_step && a_.trust.collectives > 0)
      return "no communication in the steps";
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
    std::string text =
        cost > 0 ? fmt::format("without communication a replayed step is {} shorter", analysis::Duration(cost))
                 : "without communication a replayed step is as long";
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

  std::string Price(const analysis::Finding& finding) const {
    const std::string most = finding.upper_bound ? std::string(glyphs().at_most) + " " : "";
    if (finding.saves_ns_per_step)
      return fmt::format("{}{}  {}", most, analysis::Duration(*finding.saves_ns_per_step),
                         analysis::Percent(*finding.saves_ns_per_step, analysis::WholeOf(a_, finding)));
    return finding.saves_share ? most + analysis::Percent(*finding.saves_share) : "no price";
  }

  // Prices stand below one another, as far to the right as they fit.
  void Findings() {
    if (a_.findings.empty()) return;
    const std::string title = a_.summary.per_step ? "saves per step" : "saves of the time";
    std::size_t widest = title.size();
    for (const analysis::Finding& f : a_.findings) widest = std::max(widest, Columns(Price(f)));
    const std::size_t price_at = std::min<std::size_t>(kPriceAt, width() - std::min<std::size_t>(widest, width() - 1));
    const std::string indent(kEvidenceAt, ' ');
    Line("  " + Bold("WHAT TO FIX") + std::string(price_at - std::min<std::size_t>(13, price_at), ' ') + Bold(title));
    for (std::size_t i = 0; i < a_.findings.size(); ++i) {
      const analysis::Finding& f = a_.findings[i];
      const std::string kind(analysis::KindOf(f.id).label), price = Price(f);
      const std::string head = fmt::format("  {}  {} ", i + 1, Pad(kind, 10));
      const std::string brief = PrintedShort(Printed(f.brief), kWordColumns);
      // One line as long as that fits, even if the price moves to the right.
      const bool fits = std::max(Columns(head + brief), price_at - 1) + 1 + Columns(price) <= width();
      std::vector<WrappedLine> lines = WrapLines(head, indent, brief, fits ? SIZE_MAX : price_at - 1);
      for (std::size_t k = 0; k < lines.size(); ++k) {
        const std::string line = lines[k].begin + lines[k].text;
        Line(k == 0 ? Pad(line, price_at - 1) + " " + price : line);
      }
      Wrapped(indent, f.evidence);
      Wrapped(indent, std::string(glyphs().arrow) + " " + f.action);
    }
    if (!a_.additivity.empty()) Wrapped("     ", a_.additivity);
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
    if (a_.impossible_findings > 0)
      add(fmt::format("{} left out: {} price exceeds the whole", analysis::Plural(a_.impossible_findings, "finding"),
                      a_.impossible_findings == 1 ? "its" : "their"));
    if (t.overhead_fraction) add("overhead " + analysis::Percent(*t.overhead_fraction));
    if (t.agent_cpu_fraction)
      add("agent " + analysis::Percent(*t.agent_cpu_fraction) + " CPU");
    else if (t.agent_cpu_ns)
      add("agent " + analysis::Duration(*t.agent_cpu_ns) + " CPU");
    Wrapped(kTrustIndent, text, {}, "  " + Bold("TRUST") + "          ");
  }

  // A loss that many ranks share is one.
  struct SumOfLoss {
    const analysis::LossRow* loss;
    std::uint64_t count = 0;
    std::vector<std::int32_t> ranks;
    std::vector<std::string_view> details;

    std::string Text() const {
      std::string text = loss->sentence;
      if (!text.starts_with("no ")) text += ": " + analysis::Count(static_cast<std::int64_t>(count));
      return text;
    }
  };

  std::vector<SumOfLoss> Losses() const {
    std::vector<SumOfLoss> sums;
    for (const analysis::LossRow& loss : a_.losses) {
      if (sums.empty() || sums.back().loss->name != loss.name) sums.push_back({.loss = &loss});
      SumOfLoss& sum = sums.back();
      sum.count += loss.count;
      if (loss.rank >= 0 && (sum.ranks.empty() || sum.ranks.back() != loss.rank)) sum.ranks.push_back(loss.rank);
      if (!loss.detail.empty() && std::find(sum.details.begin(), sum.details.end(), loss.detail) == sum.details.end())
        sum.details.push_back(loss.detail);
    }
    return sums;
  }

  // All that was lost is named; of the rest what one line holds.
  void NameLosses() {
    std::string lost, notes;
    std::int64_t more = 0;
    for (const SumOfLoss& sum : Losses()) {
      std::string& list = sum.loss->data_loss ? lost : notes;
      const std::string text = (list.empty() ? "" : "; ") + sum.Text();
      if (sum.loss->data_loss || kTrustIndent.size() + Columns(notes + text) + kRoomForMore <= width())
        list += text;
      else
        ++more;
    }
    if (!notes.empty()) notes = "noted: " + notes + (more > 0 ? fmt::format("; {} more", more) : "");
    if (notes.empty() && more > 0) notes = analysis::Plural(more, "note");
    std::string& last = notes.empty() ? lost : notes;
    if (!last.empty()) last += kExplain;
    if (!lost.empty()) Wrapped(kTrustIndent, "lost or in doubt: " + lost, "33");
    if (!notes.empty()) Wrapped(kTrustIndent, notes, "2");
  }

  void ExplainLosses() {
    const std::vector<SumOfLoss> losses = Losses();
    if (losses.empty()) Wrapped(kTrustIndent, "nothing was lost or guessed");
    for (const SumOfLoss& sum : losses) {
      std::string text = sum.Text();
      if (!sum.ranks.empty())
        text += fmt::format(" (rank{} {})", sum.ranks.size() == 1 ? "" : "s", analysis::ShortRankList(sum.ranks));
      for (std::size_t i = 0; i < std::min(sum.details.size(), kMaxDetails); ++i)
        text += "; " + std::string(sum.details[i]);
      if (sum.details.size() > kMaxDetails)
        text += fmt::format("; {} more in analysis.json", sum.details.size() - kMaxDetails);
      Wrapped(kTrustIndent, text, sum.loss->data_loss ? "33" : "2");
      if (!sum.loss->remedy.empty()) Wrapped(kBelowTrust, std::string(glyphs().arrow) + " " + sum.loss->remedy, "2");
    }
  }

  const analysis::Analysis& a_;
};

}  // namespace

std::string RenderText(const analysis::Analysis& analysis, const TextOptions& options) {
  return Writer(analysis, options).Render();
}

std::string RenderTrust(const analysis::Analysis& analysis, const TextOptions& options) {
  return Writer(analysis, options).RenderTrust();
}

std::string RenderExplanation(const analysis::Analysis& analysis, std::size_t number, const TextOptions& shown) {
  // Elsewhere than on a terminal each sentence and row is one line, for other programs.
  TextOptions options = shown;
  if (!options.terminal) options.width = UINT32_MAX;
  if (number == 0 || number > analysis.findings.size()) return {};
  const analysis::Finding& f = analysis.findings[number - 1];
  TextLines out(options);
  out.Line(fmt::format("{}  {}", number, analysis::KindOf(f.id).name));
  for (const std::string* sentence : {&f.headline, &f.evidence, &f.action}) out.Wrapped("  ", *sentence);
  out.Line();
  const auto cell = [](std::int64_t value) {
    return value == analysis::Evidence::kUnknown ? std::string("-") : std::to_string(value);
  };
  // The first columns say of what a row is.
  std::vector<TextColumn> columns;
  for (const std::string& name : f.explain.columns)
    columns.push_back({.head = name,
                       .lead = 2,
                       .keep = columns.empty() ? TextColumn::kAlways : 100 - static_cast<int>(columns.size())});
  const bool named = !f.explain.names.empty();
  if (named) columns.push_back({.right = false, .lead = 2});
  TextTable table(0, std::move(columns));
  for (std::size_t r = 0; r < f.explain.rows.size(); ++r) {
    std::vector<std::string> cells;
    for (const std::int64_t value : f.explain.rows[r]) cells.push_back(cell(value));
    cells.resize(f.explain.columns.size());
    if (r < f.explain.names.size()) cells.push_back(Printed(f.explain.names[r]));
    table.Add(std::move(cells));
  }
  const TextTable::Laid laid = table.Lay(options.width);
  out.Line(laid.head);
  for (const std::string& row : laid.rows) out.Line(row);
  out.Wrapped("  ", NotShown(laid.left_out, options.width), "2");
  return out.Take();
}

}  // namespace lockstep::report
