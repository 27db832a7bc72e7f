#pragma once
// One element of traceEvents, given its tokens, as an Event.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "merge/readers/kineto/trace_reader.h"
#include "merge/readers/kineto/unescape.h"

namespace lockstep::kineto {

enum class Walk : std::uint8_t { kWhole, kBroken, kRanOut };

enum class Verdict : std::uint8_t {
  kEvent,
  kEmpty,  // {}: some writers end with it so as not to care about the last comma.
  kUnreadable,
  kTimeInvalid,
  kPython,    // Not asked for.
  kBeginEnd,  // Phases B and E.
};

class EventWalker {
 public:
  EventWalker(Arena& arena, bool python_functions) : arena_(&arena), python_functions_(python_functions) {}

  // `tokens` as ScanElement lists them, from the element's '{' on; `end` is behind the
  // last one, and at least four more are readable there and hold the text's size. A
  // byte that is no JSON must lie behind the text. Moves `tokens` behind the element.
  Walk Take(const char* text, const std::uint32_t*& tokens, const std::uint32_t* end);

  // Of the element taken last.
  Verdict Judge(Event& event, bool& negative_duration);
  bool has_phase() const { return phase_.kind == Kind::kString; }

 private:
  enum class Kind : std::uint8_t { kNone, kString, kScalar, kContainer };
  struct Value {
    Kind kind = Kind::kNone;
    std::string_view raw;  // Without quotes.
  };
  struct Arguments {
    std::string_view text;
    Value correlation, external_id, device, context, stream, bytes, sequence_number;
  };

  bool TakeFields();
  bool TakeArguments();
  // `around`: how deep the value lies in the element.
  bool TakeValue(Value& value, std::size_t around);
  bool SkipValue(std::size_t around);
  bool SkipContainer(std::size_t around);
  bool TakeKey(std::string_view& key);
  std::string_view String() const;  // At a quote.
  bool Scalar(std::string_view& raw) const;
  static std::optional<std::int64_t> Time(const Value& value);
  static std::int64_t Id(const Value& value);
  bool Place(const Value& value, std::int64_t& number, std::string_view& text);

  Arena* arena_;
  bool python_functions_;
  const char* text_ = nullptr;
  const std::uint32_t* at_ = nullptr;
  Value phase_, category_, name_, pid_, tid_, begin_, duration_, id_;
  Arguments arguments_;
  bool empty_ = false;
};

}  // namespace lockstep::kineto
