#pragma once
// Parses a stretch of traceEvents into events. Where elements begin and end follows from the text alone, not from where
// it was cut into stretches, so every way of cutting gives the same result.

#include <simdjson.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "ingest/kineto/read/trace_reader.h"
#include "ingest/kineto/read/unescape.h"

namespace lockstep::kineto {

// Writable bytes that must follow a text; the first of them is set to '\0'.
inline constexpr std::size_t kPadding = simdjson::SIMDJSON_PADDING;

// State that passes from one stretch to the next. By default the stretch begins where an element or the array's end is
// expected.
struct StretchState {
  bool lost = false;            // After damage: search for an event's start first, ...
  std::uint32_t lost_from = 0;  // ... from this byte of the text on.
  bool doubtful = false;        // Nothing since the last damage was certainly an event: a ']' may belong to args.
  bool operator==(const StretchState&) const = default;
};

struct Scan;
class EventWalker;

struct Tally {
  std::uint64_t count = 0, first = 0;  // first: offset in the text.
  void Add(std::size_t at) {
    if (count++ == 0) first = at;
  }
};

struct Stretch {
  std::vector<Event> events;
  Arena arena;
  std::uint64_t elements = 0;
  Tally unreadable, time_invalid, negative_duration, python, begin_end;
  Tally replaced;        // Events with bytes that are no text.
  Tally between;         // Positions with bytes between elements that belong to none of them.
  std::size_t used = 0;  // Bytes of the text that were used; the rest is prepended to the next stretch.
  bool ended = false;    // At the array's ']', which was used.
  bool cut = false;      // Last stretch: it ends inside an element.
  StretchState state;    // The state after it.

  void Clear();
  // Counts an element at this byte from which no event can be made.
  void AddUnreadable(std::size_t at) {
    ++elements;
    unreadable.Add(at);
  }
};

// One per thread of work. Not thread-safe.
class BatchParser {
 public:
  explicit BatchParser(bool python_functions) : python_functions_(python_functions) {}

  // `last`: no text follows.
  void Parse(std::string_view text, StretchState state, bool last, Stretch& out);
  // The same without simdjson's first stage, whatever the text holds.
  void ParseSlowly(std::string_view text, StretchState state, bool last, Stretch& out);

 private:
  bool ParseQuickly(std::string_view text, bool last, Stretch& out);
  bool TakeElement(std::string_view text, std::size_t begin, const Scan& scan, EventWalker& walker, Stretch& out,
                   std::size_t place);

  bool python_functions_;
  std::unique_ptr<simdjson::internal::dom_parser_implementation> stage_;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace lockstep::kineto
