#pragma once
// Everything that any report shows, built once by Analyze() and rendered many times: text, JSON and HTML differ in form
// only. The structs and their fields are listed in model.def.

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/core/findings.h"
#include "analysis/words/render.h"

namespace lockstep::analysis {

using OptInt = std::optional<std::int64_t>;
using OptReal = std::optional<double>;
template <typename T>
using LowHigh = std::pair<T, T>;
using NamedValues = std::vector<std::pair<std::string, double>>;
using RankValues = std::vector<std::pair<std::int32_t, double>>;

// When a rank is late: in most steps, in some of them, or from one step on.
enum class StragglerKind : std::uint8_t { kPersistent, kTransient, kDrifting };
inline constexpr std::array<std::string_view, 3> kStragglerKindNames{"persistent", "transient", "drifting"};
constexpr std::string_view NameOf(StragglerKind kind) { return kStragglerKindNames[static_cast<std::size_t>(kind)]; }

// Why a rank is late (straggler_cause.h).
enum class CauseId : std::uint8_t {
  kUnknown,
  kStarved,    // Ready to run, but without a core.
  kInput,      // It loads data for longer.
  kClock,      // Its GPU's clock is lower.
  kKernel,     // Some of its kernels take longer.
  kCompute,    // It computes for longer.
  kWaiting,    // Its longer compute is time off the CPU that it caused itself.
  kHost,       // Its GPU waits for its host.
  kImbalance,  // It is given more work in some steps.
  kPeriodic,   // It does something every few steps.
};
inline constexpr std::array<std::string_view, 10> kCauseNames{"unknown", "starved", "input", "clock",     "kernel",
                                                              "compute", "waiting", "host",  "imbalance", "gc"};
constexpr std::string_view NameOf(CauseId cause) { return kCauseNames[static_cast<std::size_t>(cause)]; }

#define LS_STRUCT(name, path, text) struct name {
#define LS_FIELD(type, name, form, text) type name{};
#define LS_FIELD_FROM(type, name, value, form, text) type name = value;
#define LS_DERIVED(key, value, text)
#define LS_CODE(...) __VA_ARGS__
#define LS_END(name)                            \
  bool operator==(const name&) const = default; \
  }                                             \
  ;
#include "analysis/core/model.def"
#undef LS_STRUCT
#undef LS_FIELD
#undef LS_FIELD_FROM
#undef LS_DERIVED
#undef LS_CODE
#undef LS_END

// Whether the term of this name is known for a rank whose device was not recorded.
constexpr bool KnownWithoutDevice(std::string_view term) {
  return term != "compute_ns" && term != "exposed_copy_ns" && term != "idle_ns";
}

// How a member is written to JSON: under its own name or `key`.
namespace model {

struct Form {
  enum Kind : std::uint8_t {
    kSame,              // The value; null if it is an empty optional.
    kOrNull,            // Null if it is empty or 0.
    kNotNegative,       // Null below 0.
    kAbsentIfNegative,  // No key below 0.
    kHex,               // Text: 64 bits do not fit a number of JavaScript.
    kRanks,             // "0-7".
    kSpread,            // An interval of a statistic: null without a width, which would claim that nothing varies.
    kInline,            // Its own members are written in its place.
    kHidden,            // Not in JSON.
  } kind;
  const char* key = nullptr;
};
inline constexpr Form Same{Form::kSame}, OrNull{Form::kOrNull}, NotNegative{Form::kNotNegative},
    AbsentIfNegative{Form::kAbsentIfNegative}, Hex{Form::kHex}, Ranks{Form::kRanks}, Spread{Form::kSpread},
    Inline{Form::kInline}, Hidden{Form::kHidden};
constexpr Form As(const char* key) { return {Form::kSame, key}; }
constexpr Form OrNullAs(const char* key) { return {Form::kOrNull, key}; }

}  // namespace model

// VisitFields(struct, f): f(key, form, value, text) for each field and derived key, in the order of JSON.
#define LS_STRUCT(name, path, text)           \
  template <typename F>                       \
  void VisitFields(const name& self, F&& f) { \
    (void)self;
#define LS_FIELD(type, name, form, text) \
  f((model::form).key != nullptr ? (model::form).key : #name, model::form, self.name, text);
#define LS_FIELD_FROM(type, name, value, form, text) LS_FIELD(type, name, form, text)
#define LS_DERIVED(key, value, text) f(#key, model::Same, value, text);
#define LS_CODE(...)
#define LS_END(name) }
#include "analysis/core/model.def"
#undef LS_STRUCT
#undef LS_FIELD
#undef LS_FIELD_FROM
#undef LS_DERIVED
#undef LS_CODE
#undef LS_END

namespace model {

struct Ignore {
  template <typename... Args>
  void operator()(Args&&...) const {}
};

// A struct that is listed in model.def.
template <typename T>
concept Described = requires(const T& value) {
  VisitFields(value, Ignore());
};

}  // namespace model

}  // namespace lockstep::analysis
