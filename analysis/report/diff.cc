#include "analysis/report/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "analysis/core/format.h"
#include "analysis/report/text_lines.h"
#include "analysis/report/text_table.h"
#include "core/printed.h"

namespace lockstep::report {
namespace {

using diff::Comparison;
using diff::MeasureResult;
using diff::Spread;
using diff::Verdict;
using Json = nlohmann::ordered_json;

std::string Value(const MeasureResult& result, const Spread& spread) {
  if (spread.count == 0) return "-";
  if (result.measure->fraction) return fmt::format("{:.1f} %", 100 * spread.median);
  return analysis::Duration(static_cast<std::int64_t>(std::llround(spread.median)));
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

// Of the limits that were asked for: what exit code 4 means.
std::string Regressions(const Comparison& c) {
  std::string text;
  for (const MeasureResult& result : c.measures)
    if (result.limit.asked && result.verdict == Verdict::kWorse)
      text += fmt::format("{}{} {} (limit {})", text.empty() ? "" : ", ", result.measure->name, Change(result),
                          result.limit.text);
  return text;
}

void Wrap(std::string& out, std::string_view indent, std::string_view sentence, std::size_t width) {
  for (const WrappedLine& line : SentenceLines(indent, indent, sentence, width))
    out.append(line.begin).append(line.text).append("\n");
}

Json ToJson(const Spread& spread, bool fraction) {
  if (spread.count == 0) return nullptr;
  const auto number = [&](double value) { return fraction ? Json(value) : Json(std::llround(value)); };
  const bool wide = spread.low < spread.high;
  return {{"median", number(spread.median)},
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
            {"reason", result.reason.empty() ? Json(nullptr) : Json(result.reason)},
            {"base", ToJson(result.base, fraction)},
            {"new", ToJson(result.now, fraction)},
            {"difference", number(result.difference.value, known)},
            {"difference_low", number(result.difference.low, wide)},
            {"difference_high", number(result.difference.high, wide)},
            {"relative", share(&diff::Difference::value, known)},
            {"relative_low", share(&diff::Difference::low, wide)},
            {"relative_high", share(&diff::Difference::high, wide)},
            {"limit", result.limit.text},
            {"fails", result.limit.asked}};
  return json;
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
  TextTable table(2, {{.head = "median over steps", .width = 22, .right = false, .lead = 0},
                      {.head = "base", .width = 10, .keep = 2},
                      {.head = "new", .width = 10, .keep = 3},
                      {.head = "change", .width = 13},
                      {.head = "interval", .width = 22, .right = false, .lead = 2, .keep = 1},
                      {.head = "verdict", .right = false}});
  for (const MeasureResult& result : c.measures) {
    const std::string verdict(Name(result.verdict));
    table.Add({std::string(result.measure->text), Value(result, result.base), Value(result, result.now), Change(result),
               IntervalText(result),
               result.verdict == Verdict::kWorse    ? paint("31", verdict)
               : result.verdict == Verdict::kBetter ? paint("32", verdict)
                                                    : verdict});
  }
  const TextTable::Laid laid = table.Lay(options.width);
  out += "\n" + laid.head + "\n";
  for (const std::string& row : laid.rows) out += row + "\n";
  Wrap(out, "  ", NotShown(laid.left_out, options.width), options.width);
  // If there are too few steps, all measures have the same reason.
  std::string last;
  for (const MeasureResult& result : c.measures) {
    if (result.verdict != Verdict::kCannotTell || result.reason == last) continue;
    std::string_view name = result.measure->text;
    while (name.starts_with(' ')) name.remove_prefix(1);
    Wrap(out, "    ", fmt::format("{}: {}", name, result.reason), options.width);
    last = result.reason;
  }
  if (!c.causes.empty()) {
    out += c.verdict == Verdict::kSame ? "\n  WHAT CHANGED\n" : "\n  WHY\n";
    for (const diff::Cause& cause : c.causes) Wrap(out, "  ", cause.sentence, options.width);
  }
  out += '\n';
  Wrap(out, "  ",
       c.regression                        ? "regression: " + Regressions(c)
       : c.verdict == Verdict::kCannotTell ? "undecided: these runs cannot show whether there is a regression"
                                           : std::string("no regression"),
       options.width);
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
        {{"kind", cause.kind},
         {"rank", cause.rank < 0 ? Json(nullptr) : Json(cause.rank)},
         {"what", cause.what},
         {"sentence", cause.sentence},
         {"change_ns_per_step", cause.change_ns ? Json(std::llround(*cause.change_ns)) : Json(nullptr)},
         {"interval_ns", cause.interval_ns ? Json::array({std::llround(cause.interval_ns->first),
                                                          std::llround(cause.interval_ns->second)})
                                           : Json(nullptr)}});
  json["remarks"] = c.remarks;
  // Labels are paths, which may contain any bytes.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string RenderDiffMarkdown(const Comparison& c) {
  std::string out =
      fmt::format("### Lockstep: {}\n\n{}\n\n", c.regression ? "regression" : Name(c.verdict), Escaped(c.sentence));
  out += "| median over steps | base | new | change | interval | verdict |\n|---|---:|---:|---:|---|---|\n";
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
  for (const std::string& remark : c.remarks) out += fmt::format("\n> note: {}\n", Escaped(remark));
  if (c.regression) out += fmt::format("\n{}\n", Escaped(Regressions(c)));
  out += fmt::format("\nbase: {} ({}), new: {} ({})\n", Escaped(c.base.label), Escaped(Facts(c.base)),
                     Escaped(c.now.label), Escaped(Facts(c.now)));
  return out;
}

}  // namespace lockstep::report
