#include "analysis/words/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "analysis/core/format.h"

namespace lockstep::analysis {
namespace {

#define LS_FINDING(...)
#define LS_CAUSE(...)
#define LS_WORD(id, text) +1
constexpr std::size_t kWords = 0
#include "analysis/words/words.def"
    ;
#undef LS_WORD

constexpr auto kTexts = [] {
  std::array<std::string_view, kWords> texts;
#define LS_WORD(id, text) texts[static_cast<std::size_t>(Word::id)] = text;
#include "analysis/words/words.def"
#undef LS_WORD
  return texts;
}();
#undef LS_FINDING
#undef LS_CAUSE

template <typename... Each>
struct Overloaded : Each... {
  using Each::operator()...;
};

std::string PartText(const Part& part, std::string_view form) {
  if (form == "ns") return part.per_step ? Duration(part.ns) : Percent(part.ns, part.whole_ns);
  if (!part.per_step) return Percent(part.ns, part.whole_ns) + " of the time";
  return fmt::format("{} of each {} step{}", Duration(part.ns), Duration(part.whole_ns),
                     part.intermittent ? " on average (not in every step)" : "");
}

std::string RanksText(const Ranks& ranks, std::string_view form) {
  const std::vector<std::int32_t>& values = ranks.values;
  if (form == "list" || (form == "short" && ranks.all)) return RankList(values);
  if (form == "short") return ShortRankList(values);
  std::string names = ranks.all ? (values.size() == 1 ? "rank " : "ranks ") + RankList(values) : RankNames(values);
  return form == "numbers" ? names.substr(names.find(' ') + 1) : names;
}

std::string ValueText(const Value& value, std::string_view form) {
  const std::string noun(form);
  return std::visit(
      Overloaded{
          [](std::monostate) { return std::string(); },
          [](Ns ns) { return Duration(ns.value); },
          [&](Num n) {
            return form.empty() ? Count(n.value) : form == "nth" ? Ordinal(n.value) : Plural(n.value, noun.c_str());
          },
          [](Index index) { return std::to_string(index.value); },
          [&](MeanNum n) { return form.empty() ? Mean(n.value) : PluralOfMean(n.value, noun.c_str()); },
          [&](Real real) { return fmt::format(fmt::runtime("{:" + noun + "}"), real.value); },
          [](Share share) { return Percent(share.value); },
          [](Size size) { return Bytes(size.bytes); },
          [](Rate rate) { return Bandwidth(rate.bytes_per_s); },
          [](Probability p) { return p.value < 0.001 ? std::string("< 0.001") : fmt::format("{:.3f}", p.value); },
          [&](const Ranks& ranks) { return RanksText(ranks, form); },
          [&](const Names& names) { return Listed(names.values, form == "or" ? " or " : " and "); },
          [&](const Part& part) { return PartText(part, form); },
          [](const std::string& text) { return text; },
          [](bool) { return std::string(); },
          [&](const Clauses& clauses) {
            if (form != "comma") return Joined(clauses.all);
            Names names;
            for (const Clause& clause : clauses.all) names.values.push_back(Rendered(clause));
            return Listed(names.values, ", ");
          },
      },
      value);
}

bool IsKnown(const Value& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value)) return !text->empty();
  if (const auto* clauses = std::get_if<Clauses>(&value)) return !clauses->all.empty();
  if (const auto* names = std::get_if<Names>(&value)) return !names->values.empty();
  if (const auto* ranks = std::get_if<Ranks>(&value)) return !ranks->values.empty();
  return !std::holds_alternative<std::monostate>(value);
}

bool IsOne(const Value& value) {
  return std::visit(Overloaded{[](Num n) { return n.value == 1; }, [](Index n) { return n.value == 1; },
                               [](MeanNum n) { return Mean(n.value) == "1"; },
                               [](const Ranks& ranks) { return ranks.values.size() == 1; },
                               [](const Names& names) { return names.values.size() == 1; },
                               [&](const auto&) { return IsKnown(value); }},
                    value);
}

class Renderer {
 public:
  explicit Renderer(const Clause& clause) : facts_(clause.facts), rest_(TextOf(clause.word)) {}

  std::string Whole() {
    bool known = true;
    return Until("", known);
  }

 private:
  // Up to `end`, which is taken; `known`: whether all facts in it are.
  std::string Until(std::string_view end, bool& known) {
    std::string text;
    while (!rest_.empty()) {
      if (!end.empty() && rest_.starts_with(end)) {
        rest_.remove_prefix(end.size());
        return text;
      }
      if (rest_.starts_with("{[")) {
        rest_.remove_prefix(2);
        bool inner = true;
        const std::string part = Until("]}", inner);
        if (inner) text += part;
      } else if (rest_.front() == '{') {
        const std::size_t close = rest_.find('}');
        text += Placeholder(rest_.substr(1, close - 1), known);
        rest_.remove_prefix(std::min(close, rest_.size() - 1) + 1);
      } else {
        text += rest_.front();
        rest_.remove_prefix(1);
      }
    }
    return text;
  }

  std::string Placeholder(std::string_view inside, bool& known) const {
    const bool capital = inside.starts_with('^');
    if (capital) inside.remove_prefix(1);
    const std::size_t mark = inside.find_first_of(":?");
    const std::string_view name = inside.substr(0, mark);
    const auto at = std::ranges::find(facts_, name, &Fact::name);
    if (at == facts_.end()) {
      known = false;
      return fmt::format("{{{}}}", name);
    }
    const std::string_view after = mark == std::string_view::npos ? "" : inside.substr(mark + 1);
    std::string text;
    if (mark != std::string_view::npos && inside[mark] == '?') {
      const std::size_t bar = after.find('|');
      text = IsOne(at->value) ? after.substr(0, bar) : after.substr(bar + 1);
    } else {
      known &= IsKnown(at->value);
      text = ValueText(at->value, after);
    }
    if (capital && !text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
    return text;
  }

  const std::vector<Fact>& facts_;
  std::string_view rest_;
};

void AddFacts(const std::vector<Clause>& clauses, std::vector<Fact>& facts) {
  for (const Clause& clause : clauses)
    for (const Fact& fact : clause.facts) {
      if (const auto* nested = std::get_if<Clauses>(&fact.value))
        AddFacts(nested->all, facts);
      else if (!std::holds_alternative<std::monostate>(fact.value) &&
               std::ranges::find(facts, fact.name, &Fact::name) == facts.end())
        facts.push_back(fact);
    }
}

}  // namespace

std::string_view TextOf(Word word) { return kTexts[static_cast<std::size_t>(word)]; }

std::string Rendered(const Clause& clause) { return Renderer(clause).Whole(); }

std::string Concatenated(const std::vector<Clause>& clauses) {
  std::string text;
  for (const Clause& clause : clauses) text += Rendered(clause);
  return text;
}

std::string Joined(const std::vector<Clause>& clauses) {
  std::string text;
  for (const Clause& clause : clauses) {
    const std::string next = Rendered(clause);
    if (!text.empty() && !next.empty() && std::string_view(",.;:").find(next.front()) == std::string_view::npos)
      text += "; ";
    text += next;
  }
  return text;
}

NamedFacts FactsOf(const Said& said) {
  NamedFacts facts;
  for (const auto* clauses : {&said.headline, &said.evidence, &said.action}) AddFacts(*clauses, facts.all);
  return facts;
}

}  // namespace lockstep::analysis
