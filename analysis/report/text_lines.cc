#include "analysis/report/text_lines.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "core/printed.h"

namespace lockstep::report {
namespace {

constexpr Glyphs kUnicode{"█", "▒", "░", "▓", "▚", "·", "█", "→", "·", "≤", "±", "…", "–"};
constexpr Glyphs kAscii{"#", "=", "-", "%", "c", ".", "#", "->", "|", "<=", "+-", "...", "-"};

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text(value);
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text.find("utf-8") != std::string::npos || text.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

std::size_t Columns(std::string_view text) { return PrintedColumns(text); }

std::string Pad(std::string text, std::size_t columns, bool right) {
  const std::size_t have = Columns(text);
  if (have >= columns) return text;
  return right ? std::string(columns - have, ' ') + text : text + std::string(columns - have, ' ');
}

std::string Repeat(std::string_view glyph, std::size_t n) {
  std::string text;
  while (n-- > 0) text += glyph;
  return text;
}

std::vector<std::string> LinesOf(std::string_view sentence, std::size_t columns) {
  std::vector<std::string> lines;
  const std::string clean = Printed(sentence);
  for (std::string_view text = clean; !text.empty();) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string word = PrintedShort(text.substr(0, space), kWordColumns);
    if (lines.empty() || (!lines.back().empty() && Columns(lines.back()) + 1 + Columns(word) > columns))
      lines.emplace_back();
    if (!lines.back().empty()) lines.back() += ' ';
    lines.back() += word;
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

TextLines::TextLines(const TextOptions& options) : options_(options), glyphs_(options.unicode ? kUnicode : kAscii) {}

std::string TextLines::Paint(std::string_view code, std::string_view text) const {
  return options_.color ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

void TextLines::Line(std::string_view text) {
  std::string line = PrintedLines(text, options_.color);
  for (std::size_t at = 0; (at = line.find('\n', at)) != std::string::npos;) line.replace(at, 1, "\\x0a");
  out_ += line;
  out_ += '\n';
}

void TextLines::Wrapped(std::string_view indent, std::string_view sentence, std::string_view paint,
                        std::string_view head) {
  std::string_view begin = head.empty() ? indent : head;
  const std::size_t taken = Columns(indent);
  for (const std::string& line : LinesOf(sentence, options_.width > taken ? options_.width - taken : 0)) {
    Line(std::string(begin) + (paint.empty() ? line : Paint(paint, line)));
    begin = indent;
  }
}

TextOptions TextOptions::ForFile(int fd) {
  TextOptions options;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  options.color = isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') &&
                  !(term != nullptr && std::string_view(term) == "dumb");
  options.unicode = LocaleIsUtf8();
  return options;
}

}  // namespace lockstep::report
