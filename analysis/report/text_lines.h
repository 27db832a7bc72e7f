#pragma once
// Prepares the report's lines for a terminal: its glyphs, colours and width, and removal of control sequences.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/report/text.h"
#include "core/wrap.h"

namespace lockstep::report {

struct Glyphs {
  std::string_view compute, blocked, transfer, wait, unsplit, copy, idle, late, arrow, dot, at_most, plus_minus, rest,
      minus;
};

// Of a word in a sentence: a longer one is cut.
inline constexpr std::size_t kWordColumns = 300;

// Columns that a terminal needs for it.
std::size_t Columns(std::string_view text);
// Filled with spaces up to so many columns, on the left if `right`; a longer text stays as it is.
std::string Pad(std::string text, std::size_t columns, bool right = false);
std::string Repeat(std::string_view glyph, std::size_t n);
// A sentence of anybody's words, made safe and broken at spaces as WrapLines does.
std::vector<WrappedLine> SentenceLines(std::string_view head, std::string_view indent, std::string_view sentence,
                                       std::size_t columns);

// A text that grows line by line.
class TextLines {
 public:
  explicit TextLines(const TextOptions& options);

  const Glyphs& glyphs() const { return glyphs_; }
  unsigned width() const { return options_.width; }
  // `code`: of ANSI, "1" bold; the text itself where there are no colours.
  std::string Paint(std::string_view code, std::string_view text) const;
  std::string Bold(std::string_view text) const { return Paint("1", text); }
  // Adds one line whatever the text contains; the terminal executes nothing in it but our colours.
  void Line(std::string_view text = {});
  // Breaks at spaces so that no line passes the width. Each line begins with `indent`, the first one with `head` if
  // that is given.
  void Wrapped(std::string_view indent, std::string_view sentence, std::string_view paint = {},
               std::string_view head = {});
  // Returns all lines and clears them.
  std::string Take() { return std::move(out_); }

 private:
  const TextOptions options_;
  const Glyphs& glyphs_;
  std::string out_;
};

}  // namespace lockstep::report
