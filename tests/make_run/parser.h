#pragma once
// The description's lines, word by word; shared by the parts of the parser.

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "make_run/spec.h"

namespace lockstep::make_run {

std::vector<std::string> Words(std::string_view line);  // Without the comment.
std::vector<std::string> Split(const std::string& text, char separator);

// One line: the words that stand alone, and the key=value ones. What nobody asks for is an error.
class Line {
 public:
  Line(std::vector<std::string> words) : words_(std::move(words)), used_(words_.size(), false) {
    if (!words_.empty()) used_[0] = true;
  }
  const std::string& verb() const { return words_[0]; }
  // The next unused plain word.
  std::optional<std::string> Plain() {
    for (std::size_t i = 1; i < words_.size(); ++i)
      if (!used_[i] && words_[i].find('=') == std::string::npos) {
        used_[i] = true;
        return words_[i];
      }
    return std::nullopt;
  }
  std::optional<std::string> Key(std::string_view key) {
    for (std::size_t i = 1; i < words_.size(); ++i)
      if (!used_[i] && words_[i].size() > key.size() && words_[i].compare(0, key.size(), key) == 0 &&
          words_[i][key.size()] == '=') {
        used_[i] = true;
        return words_[i].substr(key.size() + 1);
      }
    return std::nullopt;
  }
  template <typename Parse, typename T>
  void Read(const std::optional<std::string>& text, Parse parse, T* out) {
    if (text && !parse(*text, out)) Fail("cannot read '" + *text + "'");
  }
  template <typename T>
  void Int(const std::optional<std::string>& text, T* out) {
    if (!text) return;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *out);
    if (error != std::errc() || end != text->data() + text->size()) Fail("not a number: '" + *text + "'");
  }
  std::string Need(std::optional<std::string> text, std::string_view what) {
    if (!text) Fail("needs " + std::string(what));
    return text.value_or("");
  }
  void Fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }
  std::string Finish() {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (!used_[i]) Fail("unknown word '" + words_[i] + "'");
    return error_;
  }

 private:
  std::vector<std::string> words_;
  std::vector<bool> used_;
  std::string error_;
};

class Parser {
 public:
  // `file_name`: what other files are named relative to.
  Parser(Spec* spec, std::string_view file_name) : spec_(*spec), file_name_(file_name) {
    spec_.comms.push_back({.name = "world"});
  }

  std::string Directive(Line& line);
  std::string Operation(Line& line, std::vector<Op>* body);

 private:
  std::size_t Comm(Line& line) {
    const auto name = line.Key("comm");
    if (!name) return 0;
    for (std::size_t i = 0; i < spec_.comms.size(); ++i)
      if (spec_.comms[i].name == *name) return i;
    line.Fail("unknown communicator '" + *name + "'");
    return 0;
  }
  void Kineto(Line& line);
  void Resampled(Line& line);
  void Steps(Line& line, StepRange* range) {
    line.Int(line.Key("every"), &range->every);
    if (range->every < 1) line.Fail("every= needs a positive number");
    const auto text = line.Key("steps");
    if (!text) return;
    const auto parts = Split(*text, '-');
    line.Int(parts[0], &range->first);
    range->last = range->first;
    if (parts.size() > 1) line.Int(parts[1], &range->last);
  }
  bool CollectiveOperation(Line& line, std::vector<Op>* body);
  bool GpuOperation(Line& line, std::vector<Op>* body);
  bool MessageOperation(Line& line, std::vector<Op>* body);
  std::string OneOperation(Line& line, std::vector<Op>* body);
  bool Pattern(Line& line, std::vector<Op>* body);
  void Backward(Line& line, const Op& op, const std::string& buckets, std::vector<Op>* body);

  Spec& spec_;
  const std::string file_name_;
};

}  // namespace lockstep::make_run
