#include "analysis/report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/core/format.h"
#include "analysis/report/text_lines.h"
#include "analysis/report/text_table.h"
#include "analysis/words/render.h"
#include "core/function_name.h"
#include "core/printed.h"

namespace lockstep::report {
namespace {

using diff::Comparison;
using diff::MeasureResult;
using diff::Spread;
using diff::Verdict;
using Json = nlohmann::ordered_json;

std::string NameOf(const diff::Measure& measure) { return std::string(TextOf(measure.text)); }

std::string Value(const MeasureResult& result, const Spread& spread) {
  if (spread.count == 0) return "-";
  if (result.measure->fraction) return fmt::format("{:.1f} %", 100 * spread.center);
  return analysis::Duration(static_cast<std::int64_t>(std::llround(spread.center)));
}

std::string Signed(double value, bool fraction) {
  if (fraction) return fmt::format("{:+.1f} points", 100 * value);
  return (value > 0 ? "+" : "") + analysis::Duration(static_cast<std::int64_t>(std::llround(value)));
}

std::string Change(const MeasureResult& result) {
  if (result.base.count == 0 || result.now.count == 0) return "-";
  if (result.relative && !result.measure->fraction) return fmt::format("{:+.1f} %", 100 * result.relative->value);
  return Signed(result.difference.value, result.measure->fraction);
}

// Of two runs without steps all that was recorded is compared.
bool OfSteps(const Comparison& c) { return c.base.steps > 0 || c.now.steps > 0; }
std::string_view OverWhat(const Comparison& c) { return OfSteps(c) ? "mean over steps" : "mean over ranks"; }

// Steps that are all alike, or one alone, tell of no spread.
bool HasInterval(const MeasureResult& result) {
  return result.base.count > 0 && result.now.count > 0 && result.difference.low < result.difference.high;
}

std::string IntervalText(const MeasureResult& result) {
  if (!HasInterval(result)) return "";
  std::string low = Signed(result.difference.low, result.measure->fraction), unit;
  std::string high = Signed(result.difference.high, result.measure->fraction);
  if (result.relative && !result.measure->fraction) {
    low = fmt::format("{:+.1f}", 100 * result.relative->low);
    high = fmt::format("{:+.1f}", 100 * result.relative->high);
    unit = " %";
  }
  return low == high ? low + unit : low + " to " + high + unit;
}

std::string Facts(const diff::RunSample& run) {
  std::string text = run.job;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  add(analysis::Plural(run.ranks, "rank"));
  for (const std::string& gpu : run.gpu_names) add(gpu);
  add(analysis::Plural(run.steps, "step"));
  return text;
}

// Of the limits that were asked for: what exit code 4 means or, if nothing is beyond its limit, what is within it.
std::string Regressions(const Comparison& c) {
  std::string text;
  for (const MeasureResult& result : c.measures)
    if (result.limit.asked && result.verdict == Verdict::kWorse && result.beyond_limit == c.regression)
      text += fmt::format("{}{} {} (limit {})", text.empty() ? "" : ", ", result.measure->name, Change(result),
                          result.limit.text);
  return text;
}

std::string LastLine(const Comparison& c) {
  const std::string what = Regressions(c);
  if (c.regression) return "regression: " + what;
  if (c.verdict == Verdict::kCannotTell) return "undecided: these runs cannot show whether there is a regression";
  return what.empty() ? "no regression" : "no regression: " + what;
}

void Wrap(std::string& out, std::string_view indent, std::string_view sentence, std::size_t width) {
  for (const WrappedLine& line : SentenceLines(indent, indent, sentence, width))
    out.append(line.begin).append(line.text).append("\n");
}

Json ToJson(const Spread& spread, bool fraction) {
  if (spread.count == 0) return nullptr;
  const auto number = [&](double value) { return fraction ? Json(value) : Json(std::llround(value)); };
  const bool wide = spread.low < spread.high;
  return {{"mean", number(spread.center)},
          {"low", wide ? number(spread.low) : Json(nullptr)},
          {"high", wide ? number(spread.high) : Json(nullptr)},
          {"count", spread.count}};
}

Json ToJson(const MeasureResult& result) {
  const bool known = result.base.count > 0 && result.now.count > 0, fraction = result.measure->fraction;
  const bool wide = HasInterval(result);
  const auto number = [&](double value, bool shown) -> Json {
    if (!shown) return nullptr;
    return fraction ? Json(value) : Json(std::llround(value));
  };
  const auto share = [&](double diff::Difference::*part, bool shown) -> Json {
    return shown && result.relative ? Json((*result.relative).*part) : Json(nullptr);
  };
  Json json{{"name", result.measure->name},
            {"verdict", Name(result.verdict)},
            {"reason", result.reason ? Json(Rendered(*result.reason)) : Json(nullptr)},
            {"base", ToJson(result.base, fraction)},
            {"new", ToJson(result.now, fraction)},
            {"difference", number(result.difference.value, known)},
            {"difference_low", number(result.difference.low, wide)},
            {"difference_high", number(result.difference.high, wide)},
            {"relative", share(&diff::Difference::value, known)},
            {"relative_low", share(&diff::Difference::low, wide)},
            {"relative_high", share(&diff::Difference::high, wide)},
            {"limit", result.limit.text},
            {"beyond_limit", result.beyond_limit},
            {"fails", result.limit.asked}};
  return json;
}

// ---- Kernels, operators and ranges ----

using diff::NameResult;

constexpr std::size_t kMostNamesShown = 12, kNameWidth = 23;

// The counts and times of a name as cells: base, new, base, new, change.
std::array<std::string, 5> Cells(const NameResult& result) {
  const auto count = [](const Spread& launches) -> std::string {
    if (launches.count == 0) return "-";
    const double n = launches.center;
    return std::fabs(n - std::round(n)) < 0.005 ? analysis::Count(std::llround(n)) : fmt::format("{:.2f}", n);
  };
  const auto time = [](const Spread& ns) {
    return ns.count == 0 ? std::string("-") : analysis::Duration(static_cast<std::int64_t>(std::llround(ns.center)));
  };
  const bool both = result.base_ns.count > 0 && result.now_ns.count > 0 && result.base_ns.center > 0;
  return {count(result.base_launches), count(result.now_launches), time(result.base_ns), time(result.now_ns),
          both ? fmt::format("{:+.1f} %", 100 * result.difference_ns.value / result.base_ns.center) : "-"};
}

std::string NameOf(const NameResult& result, std::size_t bytes) {
  return fmt::format("{} {}", Noun(result.kind), PrintedShort(ShortFunction(result.name, bytes), bytes));
}

// "2 more: --json lists them. As before: 41 kernels and 210 operators"; "" if there is nothing to add.
std::string RestOfNames(const std::vector<NameResult>& rows, std::size_t shown) {
  std::size_t changed = 0, open = 0;
  std::array<std::int64_t, diff::kNameKinds> same{};
  for (const NameResult& row : rows) {
    changed += row.Changed();
    open += row.verdict == diff::NameVerdict::kCannotTell;
    same[static_cast<std::size_t>(row.kind)] += row.verdict == diff::NameVerdict::kSame;
  }
  std::vector<std::string> parts;
  if (changed > shown)
    parts.push_back(fmt::format("{} that changed less: --json lists them",
                                analysis::Plural(static_cast<std::int64_t>(changed - shown), "further name")));
  std::string as_before;
  for (std::size_t kind = 0; kind < same.size(); ++kind)
    if (same[kind] > 0)
      as_before += (as_before.empty() ? "as before: " : ", ") +
                   analysis::Plural(same[kind], Noun(static_cast<diff::NameKind>(kind)));
  if (!as_before.empty()) parts.push_back(as_before);
  if (open > 0)
    parts.push_back(fmt::format("not decided: {}", analysis::Plural(static_cast<std::int64_t>(open), "name")));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : "; ") + part;
  return text;
}

std::string NamesText(const Comparison& c, const TextOptions& options) {
  if (c.names.rows.empty()) return "";
  TextTable table(2, {{.head = "by name, of a rank and step", .width = kNameWidth, .right = false, .lead = 0},
                      {.head = "base count", .width = 11, .keep = 1},
                      {.head = "new count", .width = 10, .keep = 2},
                      {.head = "base time", .width = 10, .keep = 3},
                      {.head = "new time", .width = 10, .keep = 4},
                      {.head = "change", .width = 9},
                      {.head = "", .right = false, .lead = 2}});
  std::size_t shown = 0;
  for (const NameResult& row : c.names.rows) {
    if (!row.Changed() || shown == kMostNamesShown) break;
    ++shown;
    const auto [base, now, base_time, now_time, change] = Cells(row);
    table.Add({NameOf(row, kNameWidth), base, now, base_time, now_time, change, std::string(Name(row.verdict))});
  }
  std::string out = "\n";
  if (shown > 0) {
    const TextTable::Laid laid = table.Lay(options.width);
    out += laid.head + "\n";
    for (const std::string& row : laid.rows) out += row + "\n";
    Wrap(out, "  ", NotShown(laid.left_out, options.width), options.width);
  }
  Wrap(out, "  ", RestOfNames(c.names.rows, shown), options.width);
  return out;
}

Json NamesJson(const Comparison& c) {
  Json rows = Json::array();
  for (const NameResult& row : c.names.rows) {
    const auto side = [](const Spread& launches, const Spread& ns) -> Json {
      if (launches.count == 0) return nullptr;
      return {{"per_step", launches.center}, {"ns_per_step", std::llround(ns.center)}};
    };
    const diff::Difference& d = row.difference_ns;
    rows.push_back(
        {{"kind", Noun(row.kind)},
         {"name", row.name},
         {"verdict", Name(row.verdict)},
         {"base", side(row.base_launches, row.base_ns)},
         {"new", side(row.now_launches, row.now_ns)},
         {"change_per_step", row.now_launches.center - row.base_launches.center},
         {"change_ns_per_step", std::llround(d.value)},
         {"interval_ns", d.low < d.high ? Json::array({std::llround(d.low), std::llround(d.high)}) : Json(nullptr)}});
  }
  return rows;
}

Json RunJson(const diff::RunSample& run) {
  return {{"label", run.label},
          {"job", run.job},
          {"lockstep_version", run.lockstep_version},
          {"ranks", run.ranks},
          {"nodes", run.nodes > 0 ? Json(run.nodes) : Json(nullptr)},
          {"gpu_ranks", run.gpu_ranks},
          {"gpu_names", run.gpu_names},
          {"steps", run.steps},
          {"steps_kind", run.steps_kind.empty() ? Json(nullptr) : Json(run.steps_kind)},
          {"incomplete", run.incomplete}};
}

// Text for a cell of a table. Names must not create links or pictures either.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : Printed(text)) {
    if (std::string_view("|<*_`\\[]").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string RenderDiffText(const Comparison& c, const TextOptions& options) {
  const auto paint = [&](std::string_view code, const std::string& text) {
    return options.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
  };
  std::string out;
  const auto add = [&](std::string_view head, std::string_view text) {
    for (const WrappedLine& line : SentenceLines(head, "      ", text, options.width))
      out.append(line.begin).append(line.text).append("\n");
  };
  add("base  ", c.base.label);
  add("      ", Facts(c.base));
  add("new   ", c.now.label);
  add("      ", Facts(c.now));
  out += '\n';
  Wrap(out, "  ", c.sentence, options.width);
  for (const std::string& remark : c.remarks) Wrap(out, "  ", "note: " + remark, options.width);
  TextTable table(2, {{.head = std::string(OverWhat(c)), .width = 22, .right = false, .lead = 0},
                      {.head = "base", .width = 10, .keep = 2},
                      {.head = "new", .width = 10, .keep = 3},
                      {.head = "change", .width = 13},
                      {.head = "interval", .width = 22, .right = false, .lead = 2, .keep = 1},
                      {.head = "verdict", .right = false}});
  for (const MeasureResult& result : c.measures) {
    const std::string verdict(Name(result.verdict));
    const bool whole = &result == &c.measures.front() && !OfSteps(c);
    table.Add({whole ? std::string("recording") : (result.measure->inner ? "  " : "") + NameOf(*result.measure),
               Value(result, result.base), Value(result, result.now), Change(result), IntervalText(result),
               result.verdict == Verdict::kWorse    ? paint("31", verdict)
               : result.verdict == Verdict::kBetter ? paint("32", verdict)
                                                    : verdict});
  }
  const TextTable::Laid laid = table.Lay(options.width);
  out += "\n" + laid.head + "\n";
  for (const std::string& row : laid.rows) out += row + "\n";
  Wrap(out, "  ", NotShown(laid.left_out, options.width), options.width);
  // If there are too few steps, all measures have the same reason.
  std::optional<analysis::Clause> last;
  for (const MeasureResult& result : c.measures) {
    if (result.verdict != Verdict::kCannotTell || result.reason == last) continue;
    Wrap(out, "    ", fmt::format("{}: {}", NameOf(*result.measure), result.reason ? Rendered(*result.reason) : ""),
         options.width);
    last = result.reason;
  }
  if (!c.causes.empty()) {
    out += c.verdict == Verdict::kSame ? "\n  WHAT CHANGED\n" : "\n  WHY\n";
    for (const diff::Cause& cause : c.causes) Wrap(out, "  ", cause.sentence, options.width);
  }
  out += NamesText(c, options);
  out += '\n';
  Wrap(out, "  ", LastLine(c), options.width);
  return out;
}

std::string RenderDiffJson(const Comparison& c) {
  Json json{{"schema", kDiffSchema},  {"verdict", Name(c.verdict)},   {"regression", c.regression},
            {"sentence", c.sentence}, {"incomplete", c.incomplete()}, {"base", RunJson(c.base)},
            {"new", RunJson(c.now)}};
  json["measures"] = Json::array();
  for (const MeasureResult& result : c.measures) json["measures"].push_back(ToJson(result));
  json["causes"] = Json::array();
  for (const diff::Cause& cause : c.causes)
    json["causes"].push_back(
        {{"kind", Name(cause.kind)},
         {"rank", cause.rank < 0 ? Json(nullptr) : Json(cause.rank)},
         {"what", cause.what},
         {"sentence", cause.sentence},
         {"change_ns_per_step", cause.change_ns ? Json(std::llround(*cause.change_ns)) : Json(nullptr)},
         {"interval_ns", cause.interval_ns ? Json::array({std::llround(cause.interval_ns->first),
                                                          std::llround(cause.interval_ns->second)})
                                           : Json(nullptr)}});
  json["names"] = NamesJson(c);
  json["remarks"] = c.remarks;
  // Labels are paths, which may contain any bytes.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string RenderDiffMarkdown(const Comparison& c) {
  std::string out =
      fmt::format("### Lockstep: {}\n\n{}\n\n", c.regression ? "regression" : Name(c.verdict), Escaped(c.sentence));
  out += fmt::format("| {} | base | new | change | interval | verdict |\n|---|---:|---:|---:|---|---|\n", OverWhat(c));
  for (const MeasureResult& result : c.measures) {
    const std::string verdict(Name(result.verdict));
    out += fmt::format("| {} | {} | {} | {} | {} | {} |\n", Escaped(result.measure->name), Value(result, result.base),
                       Value(result, result.now), Change(result), IntervalText(result),
                       result.verdict == Verdict::kWorse ? "**" + verdict + "**" : verdict);
  }
  if (!c.causes.empty()) {
    out += '\n';
    for (const diff::Cause& cause : c.causes) out += "- " + Escaped(cause.sentence) + "\n";
  }
  std::size_t shown = 0;
  for (const NameResult& row : c.names.rows) {
    if (!row.Changed() || shown == kMostNamesShown) break;
    if (shown++ == 0)
      out +=
          "\n| of a rank and step | count, base | new | time, base | new | change | "
          "|\n|---|---:|---:|---:|---:|---:|---|\n";
    const auto [base, now, base_time, now_time, change] = Cells(row);
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", Escaped(NameOf(row, 60)), base, now, base_time,
                       now_time, change, Name(row.verdict));
  }
  if (const std::string rest = RestOfNames(c.names.rows, shown); !rest.empty()) out += "\n" + rest + "\n";
  for (const std::string& remark : c.remarks) out += fmt::format("\n> note: {}\n", Escaped(remark));
  if (c.regression) out += fmt::format("\n{}\n", Escaped(Regressions(c)));
  out += fmt::format("\nbase: {} ({}), new: {} ({})\n", Escaped(c.base.label), Escaped(Facts(c.base)),
                     Escaped(c.now.label), Escaped(Facts(c.now)));
  return out;
}

}  // namespace lockstep::report
