#pragma once
// A stretch of traceEvents as events. What an element is follows from the text alone,
// not from where it was cut into stretches, so that every way of cutting gives the same.

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

// What goes on from one stretch to the next. As it is, the stretch begins where an
// element or the array's end is expected.
struct StretchState {
  bool lost = false;            // Behind damage: look for an event's start first, ...
  std::uint32_t lost_from = 0;  // ... from this byte of the text on.
  bool doubtful = false;        // Nothing since the last damage was surely an event: a ']' may be one of args.
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
  Tally between;         // Places with bytes between elements that belong to none.
  std::size_t used = 0;  // Bytes of the text; the rest goes before the next stretch.
  bool ended = false;    // At the array's ']', which is used.
  bool cut = false;      // Last stretch: it ends inside an element.
  StretchState state;    // Behind it.

  void Clear();
  // An element, at this byte, that no event can be made of.
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
  bool TakeElement(std::string_view text, std::size_t begin, const Scan& scan, EventWalker& walker, Stretch& out);

  bool python_functions_;
  std::unique_ptr<simdjson::internal::dom_parser_implementation> stage_;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace lockstep::kineto
