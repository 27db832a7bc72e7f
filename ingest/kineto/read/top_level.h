#pragma once
// Parses the part of a trace outside traceEvents, in pieces of any size.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::kineto {

class TopLevel {
 public:
  enum class State : std::uint8_t {
    kStart,      // Only blanks so far.
    kInside,     // In the object.
    kEvents,     // After the '[' of traceEvents or of a bare array: the events are not passed to Feed.
    kDone,       // The object or the bare array is closed.
    kBroken,     // The text is not JSON; Feed takes nothing more.
    kNotATrace,  // The first byte begins neither an object nor an array.
  };

  // Takes bytes up to where the state becomes kEvents, kBroken or kNotATrace; returns how many. After the end it takes
  // everything and remembers where non-blank bytes were.
  std::size_t Feed(std::string_view text);
  // The array has ended; the next byte is behind its ']'.
  void EventsEnded();
  // Everything so far was part of damage: continues as inside the array.
  void AssumeEvents();

  State state() const { return state_; }
  bool bare_array() const { return bare_; }
  std::uint64_t arrays() const { return arrays_; }  // Named traceEvents.
  // The number of bytes taken, and of those before the first that should not follow the end.
  bool trailing() const { return trailing_; }
  std::uint64_t trailing_offset() const { return trailing_offset_; }
  FileFacts& facts() { return facts_; }

 private:
  enum class Want : std::uint8_t { kKeyOrEnd, kKey, kInKey, kColon, kValue, kInValue, kAfter };

  // Returns false if the byte cannot follow what was before it.
  bool Take(char c);
  bool TakeValueByte(char c);
  void EndValue();

  FileFacts facts_;
  State state_ = State::kStart;
  Want want_ = Want::kKeyOrEnd;
  bool bare_ = false, in_string_ = false, escaped_ = false, scalar_ = false, kept_ = false, trailing_ = false;
  std::uint64_t depth_ = 0, arrays_ = 0, taken_ = 0, trailing_offset_ = 0;
  std::string key_, value_;
};

}  // namespace lockstep::kineto
