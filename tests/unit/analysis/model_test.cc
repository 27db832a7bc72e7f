// The model of a report is described once: JSON, documentation and page agree with it.

#include "analysis/core/model.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <type_traits>

#include "analysis/report/json.h"

namespace lockstep::analysis {
namespace {

std::string ReadText(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What stands between the markers of a page is `made`; with LOCKSTEP_UPDATE_DOCS=1 it becomes that.
void ExpectGenerated(const std::string& page, const std::string& name, const std::string& made) {
  const std::filesystem::path path = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "docs" / page;
  const std::string begin = "<!-- " + name + ": begin -->\n", end = "<!-- " + name + ": end -->\n";
  std::string doc = ReadText(path);
  const std::size_t from = doc.find(begin) + begin.size(), to = doc.find(end);
  ASSERT_LT(from, to) << page;
  ASSERT_NE(to, std::string::npos) << page;
  if (std::getenv("LOCKSTEP_UPDATE_DOCS") != nullptr) {
    doc.replace(from, to - from, made);
    std::ofstream(path) << doc;
    return;
  }
  EXPECT_TRUE(doc.substr(from, to - from) == made)
      << "docs/" << page << " is out of date: run this test with LOCKSTEP_UPDATE_DOCS=1 and review the change";
}

template <typename T>
struct Element {
  using type = void;
};
template <typename T>
struct Element<std::vector<T>> {
  using type = T;
};
template <typename T>
struct Element<std::optional<T>> {
  using type = T;
};

template <typename T>
std::string TypeName() {
  using Of = typename Element<T>::type;
  if constexpr (std::is_same_v<T, bool>)
    return "true or false";
  else if constexpr (std::is_integral_v<T>)
    return "integer";
  else if constexpr (std::is_floating_point_v<T>)
    return "number";
  else if constexpr (std::is_same_v<T, LowHigh<double>> || std::is_same_v<T, LowHigh<std::int64_t>>)
    return "[low, high]";
  else if constexpr (std::is_same_v<T, NamedValues> || std::is_same_v<T, NamedFacts>)
    return "object";
  else if constexpr (std::is_same_v<T, RankValues>)
    return "array of objects";
  else if constexpr (std::is_same_v<T, std::optional<Of>>)
    return TypeName<Of>() + " or null";
  else if constexpr (std::is_same_v<T, std::vector<Of>>)
    return "array of " + TypeName<Of>() + (TypeName<Of>().starts_with("array") ? "" : "s");
  else if constexpr (model::Described<T>)
    return "object";
  else if constexpr (std::is_same_v<T, std::nullptr_t>)
    return "null";
  else
    return "string";
}

template <typename T>
void AddRows(std::string& text, std::set<std::string>& keys) {
  const T of{};
  VisitFields(of, [&](const char* key, const model::Form& form, const auto& value, const char* what) {
    using Value = std::decay_t<decltype(value)>;
    if (form.kind == model::Form::kHidden) return;
    if constexpr (model::Described<Value>) {
      if (form.kind == model::Form::kInline) return AddRows<Value>(text, keys);
    }
    EXPECT_TRUE(keys.insert(key).second) << key << " stands twice";
    EXPECT_NE(std::string(what), "") << key;
    std::string type =
        form.kind == model::Form::kHex || form.kind == model::Form::kRanks ? "string" : TypeName<Value>();
    if (form.kind == model::Form::kOrNull || form.kind == model::Form::kNotNegative) type += " or null";
    if (form.kind == model::Form::kSpread && !type.ends_with("or null")) type += " or null";
    if (form.kind == model::Form::kAbsentIfNegative) return;
    text += "| `" + std::string(key) + "` | " + type + " | " + std::string(what) + " |\n";
  });
}

template <typename T>
void AddStruct(std::string& text, std::string_view path, std::string_view what) {
  if (path.empty() && !std::is_same_v<T, Analysis>) return;  // Within others.
  text += "### " + (path.empty() ? std::string("The document") : "`" + std::string(path) + "`") + "\n\n";
  text += std::string(what) + ".\n\n| key | type | what it is |\n|---|---|---|\n";
  std::set<std::string> keys;
  AddRows<T>(text, keys);
  if constexpr (std::is_same_v<T, P2pPair>)
    text += "| `source` | integer | rank that sends |\n| `destination` | integer | rank that receives |\n";
  text += "\n";
}

std::string ModelMarkdown() {
  std::string document, rest;
#define LS_STRUCT(name, path, text) AddStruct<name>(std::is_same_v<name, Analysis> ? document : rest, path, text);
#define LS_FIELD(...)
#define LS_FIELD_FROM(...)
#define LS_DERIVED(...)
#define LS_CODE(...)
#define LS_END(...)
#include "analysis/core/model.def"
  return document + rest.substr(0, rest.size() - 1);
}

// A finding's rows of analysis/words/: what it says is the first one. What may be left out is; {facts} stay.
std::string FindingsMarkdown() {
  std::string text = "| id | says | shown when | price |\n|---|---|---|---|\n", rest;
  const auto end = [&] { text += std::exchange(rest, {}); };
  const auto finding = [&](const std::string& name, const std::string& shown_when, const std::string& price) {
    EXPECT_EQ(rest, "") << "no word stands under " << name;
    text += "| `" + name + "` | ";
    rest = " | " + shown_when + " | " + price + " |\n";
  };
  const auto word = [&](std::string says) {
    if (rest.empty()) return;
    says = std::regex_replace(says, std::regex("\\{\\[.*?\\]\\}"), "");
    says = std::regex_replace(says, std::regex("\\{[^{}|]*\\?([^{}|]*)\\|[^{}|]*\\}"), "$1");
    text += std::regex_replace(says, std::regex("\\{\\^?(\\w+)[^{}]*\\}"), "{$1}");
    end();
  };
#define LS_FINDING(id, name, label, same_time_as, shown_when, price) finding(name, shown_when, price);
#define LS_CAUSE(...)
#define LS_WORD(id, text) word(text);
#include "analysis/words/words.def"
#undef LS_FINDING
#undef LS_CAUSE
#undef LS_WORD
  return text;
}

TEST(ModelDoc, FieldsOfTheJson) { ExpectGenerated("analysis-json.md", "model", ModelMarkdown()); }
TEST(ModelDoc, KindsOfFindings) { ExpectGenerated("findings.md", "findings", FindingsMarkdown()); }

TEST(Findings, NamesAreUniqueAndBeginWithTheirLabel) {
  std::set<std::string_view> names;
  for (const FindingKind& kind : kFindingKinds) {
    EXPECT_TRUE(names.insert(kind.name).second) << kind.name;
    EXPECT_EQ(kind.name.substr(0, kind.name.find('.')), kind.label);
    // Those that price the same time name one of them.
    EXPECT_EQ(KindOf(kind.same_time_as).same_time_as, kind.same_time_as) << kind.name;
  }
}

TEST(ModelJson, HasTheKeysOfTheModel) {
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(report::RenderJson({}));
  std::vector<std::string> keys{"schema", "lockstep_version"}, written;
  VisitFields(Analysis{}, [&](const char* key, const model::Form& form, const auto&, const char*) {
    if (form.kind != model::Form::kHidden) keys.emplace_back(key);
  });
  for (const auto& [key, value] : json.items()) written.push_back(key);
  EXPECT_EQ(written, keys);
}

TEST(ModelJson, FactsEndInTheirUnit) {
  Analysis analysis;
  Finding finding;
  finding.said.headline = {Say(Word::kKernelsTake, {{"cost", Part{2'000'000, 20'000'000, true}},
                                                    {"wait", Part{2'000'000, 20'000'000, false}},
                                                    {"late", Ns{7}},
                                                    {"largest", Size{8}},
                                                    {"chance", Share{0.5}},
                                                    {"slow", Rate{1.4e9}},
                                                    {"ranks", Ranks{{0, 1, 2, 7}}},
                                                    {"hosts", Names{{"a", "{b}"}}},
                                                    {"steps", Num{9}},
                                                    {"name", std::string("x")},
                                                    {"bytes", Size{10}},
                                                    {"sure", true},
                                                    {"unknown", {}}})};
  analysis.findings.push_back(finding);
  const auto facts = nlohmann::ordered_json::parse(report::RenderJson(analysis))["findings"][0]["facts"];
  EXPECT_EQ(facts.dump(),
            R"({"cost_ns":2000000,"wait_share":0.1,"late_ns":7,"largest_bytes":8,"chance_share":0.5,)"
            R"("slow_bytes_per_s":1400000000,"ranks":"0-2,7","hosts":["a","{b}"],"steps":9,"name":"x","bytes":10})");
}

// Every name with an underscore that the page's sources read as a property is one that the page's data has: a key of
// the model, or a name that analysis/report/html writes. (Other names cannot be told from JavaScript's own.)
TEST(Page, ReadsOnlyWhatThereIs) {
  const std::filesystem::path report = std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "analysis/report";
  std::set<std::string> known;
  const auto add_matches = [&](const std::string& text, const std::regex& pattern) {
    for (std::sregex_iterator at(text.begin(), text.end(), pattern), end; at != end; ++at) known.insert((*at)[1]);
  };
  add_matches(ModelMarkdown(), std::regex("\\| `(\\w+)` \\|"));
  for (const auto& file : std::filesystem::directory_iterator(report / "html"))
    if (file.path().extension() == ".cc") add_matches(ReadText(file.path()), std::regex("\"([a-z]\\w*)\""));
  std::size_t reads = 0;
  const std::regex property("[\\w)\\]]\\??\\.([a-z][a-z0-9]*_\\w+)");
  for (const auto& file : std::filesystem::directory_iterator(report / "web/src")) {
    if (file.path().extension() != ".js") continue;
    const std::string text = ReadText(file.path());
    for (std::sregex_iterator at(text.begin(), text.end(), property), end; at != end; ++at, ++reads)
      EXPECT_TRUE(known.contains((*at)[1]))
          << file.path().filename() << " reads " << (*at)[1] << ", which the page's data does not have";
  }
  EXPECT_GT(reads, 50u);
}

}  // namespace
}  // namespace lockstep::analysis
