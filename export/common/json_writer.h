#pragma once
// The one way in which exporters write JSON: value by value into a text, because the events of a run are far too many
// for a document in memory.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "export/common/text.h"

namespace lockstep::exporters {

// Appends to `out`, which may be emptied between two calls (OutFile does that). It sets commas, quotes and escapes.
// Whether keys and brackets match is the caller's business. Thread: one at a time.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out) {}

  // `line`: a line break and an indentation; each element then begins with it. Without it elements follow each other
  // on one line.
  void BeginObject(std::string_view line = {}) { Begin('{', line); }
  void BeginArray(std::string_view line = {}) { Begin('[', line); }
  // `line` is put before the bracket.
  void EndObject(std::string_view line = {}) { End('}', line); }
  void EndArray(std::string_view line = {}) { End(']', line); }

  // `key` is one of ours: it needs no escapes.
  void Key(std::string_view key) {
    Separate();
    // In one piece: an event has a dozen keys.
    const std::size_t at = out_.size();
    out_.resize(at + key.size() + 4);
    char* to = out_.data() + at;
    *to = '"';
    std::memcpy(to + 1, key.data(), key.size());
    std::memcpy(to + 1 + key.size(), "\": ", 3);
    after_key_ = true;
  }
  void TextKey(std::string_view key) {
    Separate();
    AppendJsonText(out_, key);
    out_ += ": ";
    after_key_ = true;
  }

  void Text(std::string_view text) {
    Separate();
    AppendJsonText(out_, text);
  }
  // A text of ours, which needs no escapes.
  void Word(std::string_view word) {
    Separate();
    out_ += '"';
    out_ += word;
    out_ += '"';
  }
  void Int(std::int64_t value) {
    Separate();
    AppendInt(out_, value);
  }
  void Unsigned(std::uint64_t value) {
    Separate();
    AppendUnsigned(out_, value);
  }
  // Nanoseconds, written as microseconds.
  void Microseconds(std::int64_t ns) {
    Separate();
    AppendMicroseconds(out_, ns);
  }

  void Text(std::string_view key, std::string_view text) {
    Key(key);
    Text(text);
  }
  void Word(std::string_view key, std::string_view word) {
    Key(key);
    Word(word);
  }
  void Int(std::string_view key, std::int64_t value) {
    Key(key);
    Int(value);
  }
  void Unsigned(std::string_view key, std::uint64_t value) {
    Key(key);
    Unsigned(value);
  }
  void Microseconds(std::string_view key, std::int64_t ns) {
    Key(key);
    Microseconds(ns);
  }

 private:
  static constexpr std::size_t kMostDepth = 8;
  struct Level {
    std::string_view line;
    bool empty = true;
  };

  void Begin(char bracket, std::string_view line) {
    Separate();
    out_ += bracket;
    levels_[++depth_] = {line};
  }
  void End(char bracket, std::string_view line) {
    out_ += line;
    out_ += bracket;
    --depth_;
  }
  // What comes between the text so far and the next key or element.
  void Separate() {
    if (after_key_ || depth_ == 0) {
      after_key_ = false;
      return;
    }
    Level& level = levels_[depth_];
    if (level.line.empty()) {
      if (!level.empty) out_.append(", ", 2);
    } else {
      if (!level.empty) out_ += ',';
      out_ += level.line;
    }
    level.empty = false;
  }

  std::string& out_;
  std::array<Level, kMostDepth> levels_{};
  std::size_t depth_ = 0;
  bool after_key_ = false;
};

}  // namespace lockstep::exporters
