#include "analysis/report/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "analysis/core/format.h"
#include "core/timeline_tables.h"
#include "core/version.h"

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;  // Keys in the order written: same analysis, same bytes.

template <analysis::model::Described T>
void AddFields(Json& to, const T& value);
Json ToJson(const analysis::Evidence& evidence);

Json ToJson(analysis::FindingId id) { return analysis::KindOf(id).name; }
Json ToJson(analysis::StragglerKind kind) { return analysis::NameOf(kind); }
Json ToJson(analysis::CauseId cause) { return analysis::NameOf(cause); }
Json ToJson(const analysis::NamedValues& values) {
  Json json = Json::object();
  for (const auto& [name, value] : values) json[name] = value;
  return json;
}
Json ToJson(const analysis::RankValues& values) {
  Json json = Json::array();
  for (const auto& [rank, value] : values) json.push_back({{"rank", rank}, {"slowdown", value}});
  return json;
}
// Keys end in the unit of their value. Flags only choose between words.
Json ToJson(const analysis::NamedFacts& facts) {
  using namespace analysis;
  Json json = Json::object();
  for (const auto& [name, value] : facts.all) {
    const auto set = [&](std::string_view unit, const auto& field) {
      std::string key(name);
      if ("_" + key != unit && !key.ends_with(unit)) key += unit;
      json[key] = field;
    };
    std::visit(
        [&](const auto& field) {
          using T = std::decay_t<decltype(field)>;
          if constexpr (std::is_same_v<T, Ns>) return set("_ns", field.value);
          if constexpr (std::is_same_v<T, Size>) return set("_bytes", field.bytes);
          if constexpr (std::is_same_v<T, Rate>) return set("_bytes_per_s", std::llround(field.bytes_per_s));
          if constexpr (std::is_same_v<T, Share>) return set("_share", field.value);
          if constexpr (std::is_same_v<T, Part>)
            return field.per_step ? set("_ns", field.ns)
                                  : set("_share", static_cast<double>(field.ns) /
                                                      static_cast<double>(std::max<std::int64_t>(1, field.whole_ns)));
          if constexpr (std::is_same_v<T, Ranks>) return set("", RankList(field.values));
          if constexpr (std::is_same_v<T, Names>) return set("", field.values);
          if constexpr (requires { field.value; }) return set("", field.value);
          if constexpr (std::is_same_v<T, std::string>)
            if (!field.empty()) set("", field);
        },
        value);
  }
  return json;
}
template <typename T>
Json ToJson(const T& value) {
  if constexpr (analysis::model::Described<T>) {
    Json json = Json::object();
    AddFields(json, value);
    return json;
  } else {
    return value;
  }
}
template <typename T>
Json ToJson(const std::optional<T>& value) {
  return value ? ToJson(*value) : Json(nullptr);
}
template <typename T>
Json ToJson(const std::vector<T>& values) {
  Json json = Json::array();
  for (const T& value : values) json.push_back(ToJson(value));
  return json;
}

Json ToJson(const analysis::Evidence& evidence) {
  // --explain shows the whole list.
  static constexpr std::size_t kMostRows = 50;
  const auto first = [](const auto& values) {
    return Json(
        std::vector(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(std::min(values.size(), kMostRows))));
  };
  Json json{{"columns", evidence.columns}, {"rows", first(evidence.rows)}};
  for (Json& row : json["rows"])
    for (Json& cell : row)
      if (cell == analysis::Evidence::kUnknown) cell = nullptr;
  if (!evidence.names.empty()) json["names"] = first(evidence.names);
  return json;
}

template <typename T>
bool HasNoWidth(const analysis::LowHigh<T>& interval) {
  return interval.first == interval.second;
}
template <typename T>
bool HasNoWidth(const std::optional<analysis::LowHigh<T>>& interval) {
  return interval && HasNoWidth(*interval);
}

// f(key, value) for each key of the JSON.
template <analysis::model::Described T, typename F>
void VisitJson(const T& of, F&& f) {
  VisitFields(of, [&](const char* key, const analysis::model::Form& form, const auto& value, const char*) {
    using Value = std::decay_t<decltype(value)>;
    using enum analysis::model::Form::Kind;
    if (form.kind == kHidden) return;
    if constexpr (requires { HasNoWidth(value); }) {
      if (form.kind == kSpread && HasNoWidth(value)) return f(key, nullptr);
    }
    if constexpr (std::is_same_v<T, analysis::IdentityTerms>) {
      if (of.device_unknown && !analysis::KnownWithoutDevice(key)) return f(key, nullptr);
    }
    if constexpr (analysis::model::Described<Value>) {
      if (form.kind == kInline) return VisitJson(value, f);
    }
    if constexpr (requires { value.empty(); }) {
      if (form.kind == kOrNull && value.empty()) return f(key, nullptr);
    }
    if constexpr (std::is_same_v<Value, std::vector<std::int32_t>>) {
      if (form.kind == kRanks) return f(key, analysis::RankList(value));
    }
    if constexpr (std::is_same_v<Value, std::uint64_t>) {
      if (form.kind == kHex) return f(key, fmt::format("0x{:016x}", value));
    }
    if constexpr (std::is_signed_v<Value> && std::is_integral_v<Value>) {
      if (form.kind == kOrNull && value == 0) return f(key, nullptr);
      if (form.kind == kNotNegative && value < 0) return f(key, nullptr);
      if (form.kind == kAbsentIfNegative && value < 0) return;
    }
    // Of sentences the texts are written that are made of them.
    if constexpr (!std::is_same_v<Value, analysis::Said> && !std::is_same_v<Value, std::vector<analysis::Clause>>)
      f(key, value);
  });
}

template <analysis::model::Described T>
void AddFields(Json& to, const T& value) {
  VisitJson(value, [&](const char* key, const auto& field) { to[key] = ToJson(field); });
}

Json SummaryOf(const analysis::Analysis& a) {
  Json json = ToJson(a.summary);
  if (a.run.ranks == 0 && a.summary.terms.Sum() == 0)
#define LS_TERM_(name) #name,
    for (const char* key : {LS_IDENTITY(LS_TERM_) "comm_ns", "hidden_comm_ns"}) json[key] = nullptr;
#undef LS_TERM_
  return json;
}

Json ReplayOf(const analysis::Analysis& a) {
  Json json{{"skipped", a.replay || a.replay_skipped.empty() ? Json(nullptr) : Json(a.replay_skipped)}};
  if (a.replay) AddFields(json, *a.replay);
  return json;
}

template <typename T>
constexpr bool kListOfStructs = false;
template <analysis::model::Described T>
constexpr bool kListOfStructs<std::vector<T>> = true;

// The document as Json::dump(1) would write it, but key by key and lists row by row:
// a tree of 100,000 cells takes several hundred MB.
class Document {
 public:
  void Add(std::string_view key, const Json& value) {
    Key(key);
    Value(value, 1);
  }
  template <typename Row>
  void AddList(std::string_view key, const std::vector<Row>& rows) {
    Key(key);
    if (rows.empty()) {
      text_ += "[]";
      return;
    }
    bool first = true;
    for (const auto& row : rows) {
      text_ += first ? "[\n  " : ",\n  ";
      first = false;
      Value(ToJson(row), 2);
    }
    text_ += "\n ]";
  }
  std::string Take() {
    text_ += "\n}\n";
    return std::move(text_);
  }

 private:
  void Key(std::string_view key) {
    text_ += text_.empty() ? "{\n \"" : ",\n \"";
    text_ += key;
    text_ += "\": ";
  }
  void Value(const Json& value, std::size_t depth) {
    // Texts come from the application (host names, commands): invalid UTF-8 must not end the report.
    const std::string dumped = value.dump(1, ' ', false, Json::error_handler_t::replace);
    for (std::size_t at = 0; at < dumped.size();) {
      const std::size_t end = std::min(dumped.find('\n', at), dumped.size() - 1) + 1;
      text_.append(dumped, at, end - at);
      if (text_.back() == '\n') text_.append(depth, ' ');
      at = end;
    }
  }

  std::string text_;
};

}  // namespace

std::string RenderJson(const analysis::Analysis& a) {
  Document json;
  json.Add("schema", kAnalysisSchema);
  json.Add("lockstep_version", LOCKSTEP_VERSION);
  VisitJson(a, [&](const std::string_view key, const auto& value) {
    using Value = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<Value, analysis::Summary>)
      json.Add(key, SummaryOf(a));
    else if constexpr (std::is_same_v<Value, std::optional<analysis::ReplayFacts>>)
      json.Add(key, ReplayOf(a));
    else if constexpr (kListOfStructs<Value>)
      json.AddList(key, value);
    else
      json.Add(key, ToJson(value));
  });
  return json.Take();
}

}  // namespace lockstep::report
