#pragma once
// Members of an event's `args`, straight from their JSON text. Kineto writes some
// twenty keys per kernel, all on the top level: a scan costs less than a parser's
// document, and text that is broken ends it instead of failing the event.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::ingest {

// Walks `{"key": value, ...}`; nested values come whole.
class ArgsCursor {
 public:
  explicit ArgsCursor(std::string_view json) : at_(json.data()), end_(json.data() + json.size()) { Enter(); }
  // Returns false at the end or where the text is not an object any more. Keys are without quotes, string values with
  // quotes; escapes are not resolved.
  bool Next(std::string_view& key, std::string_view& value);

 private:
  void Enter();
  void SkipBlanks() {
    while (at_ < end_ && (*at_ == ' ' || *at_ == '\n' || *at_ == '\t' || *at_ == '\r')) ++at_;
  }
  bool SkipString();

  const char *at_, *end_;
};

// Value of one key, "" if absent.
std::string_view ArgOf(std::string_view json, std::string_view key);

// A number, quoted or not; digits after the point are cut. `fallback` if it is none or does not fit.
std::int64_t IntOf(std::string_view value, std::int64_t fallback);
std::uint64_t UnsignedOf(std::string_view value, std::uint64_t fallback);

// Text without its quotes; escapes resolved into `scratch` where there are any.
std::string_view TextOf(std::string_view value, std::string& scratch);

// "[0, 1, 2]", quoted or not -> numbers. `cut`: whether the list contains "...", because Kineto keeps only the first 30
// ranks of a group.
std::vector<std::int64_t> IntsOf(std::string_view value, bool* cut = nullptr);

}  // namespace lockstep::ingest
