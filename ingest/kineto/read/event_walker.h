#pragma once
// Converts one element of traceEvents, given its tokens, to an Event.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "ingest/kineto/read/element_scan.h"
#include "ingest/kineto/read/trace_reader.h"
#include "ingest/kineto/read/unescape.h"

namespace lockstep::kineto {

enum class Walk : std::uint8_t { kWhole, kBroken, kRanOut };

enum class Verdict : std::uint8_t {
  kEvent,
  kEmpty,  // {}: some writers end with it, so that they need not treat the last comma differently.
  kUnreadable,
  kTimeInvalid,
  kPython,    // Not requested.
  kBeginEnd,  // Phases B and E.
};

class EventWalker {
 public:
  EventWalker(Arena& arena, bool python_functions) : arena_(&arena), python_functions_(python_functions) {}

  // `tokens` as ScanElement lists them, from the element's '{' on; `end` is after the last one, and at least four more
  // are readable there and hold the text's size. A byte that is not JSON must follow the text. Moves `tokens` past the
  // element.
  Walk Take(const char* text, const std::uint32_t*& tokens, const std::uint32_t* end);

  // The verdict on the element taken last.
  Verdict Judge(Event& event, bool& negative_duration);
  bool has_phase() const { return fields_[kPhase].kind == Kind::kString; }

 private:
  enum class Kind : std::uint8_t { kNone, kString, kScalar, kNumber, kContainer };
  struct Value {
    const char* data = nullptr;  // Without quotes; kString and kScalar.
    std::int64_t number = 0;     // kNumber: an id, or nanoseconds where a time is expected.
    std::uint32_t size = 0;
    Kind kind = Kind::kNone;
    std::string_view raw() const { return {data, size}; }
    bool plain() const { return kind == Kind::kString || kind == Kind::kScalar; }
  };
  enum Field : std::uint8_t { kPhase, kCategory, kName, kPid, kTid, kBegin, kDuration, kId, kFields };
  enum Argument : std::uint8_t { kCorrelation, kExternalId, kDevice, kContext, kStream, kBytes, kSequence, kArguments };

  bool TakeFields();
  bool TakeArguments();
  // `around`: how deep the value is in the element. Null: it is not needed.
  bool TakeValue(Value* value, std::size_t around);
  bool TakeId(Value& value, std::size_t around);
  bool TakeTime(Value& value);
  bool SkipContainer(std::size_t around);
  // At a key: moves to its value and returns the key's first byte. Null: there is no value.
  const char* TakeKey();
  bool EndsScalar(const char* end) const { return end == text_ + at_[1] || IsBlank(*end); }
  std::string_view String() const;  // At a quote.
  const char* ScalarEnd() const;    // Null if it is not a scalar.
  static std::optional<std::int64_t> Time(const Value& value);
  static std::int64_t Id(const Value& value);
  bool Place(const Value& value, std::int64_t& number, std::string_view& text);

  Arena* arena_;
  bool python_functions_;
  const char* text_ = nullptr;
  const std::uint32_t* at_ = nullptr;
  Value fields_[kFields], arguments_[kArguments];
  std::string_view arguments_text_;
  bool empty_ = false;
};

}  // namespace lockstep::kineto
