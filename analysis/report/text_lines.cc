#include "analysis/report/text_lines.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

#include "core/printed.h"
#include "core/wrap.h"

namespace lockstep::report {
namespace {

constexpr Glyphs kUnicode{"█", "▄", "▒", "░", "▓", "▚", "·", "█", "→", "·", "≤", "±", "…", "–"};
constexpr Glyphs kAscii{"#", "b", "=", "-", "%", "c", ".", "#", "->", "|", "<=", "+-", "...", "-"};

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

// Narrower lines hold no number beside its name; in wider ones a sentence is hard to follow.
constexpr unsigned kLeastWidth = 40, kMostWidth = 240;

unsigned WidthOfTerminal(int fd, unsigned otherwise) {
  winsize size{};
  unsigned columns = ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  if (const char* told = std::getenv("COLUMNS"); columns == 0 && told != nullptr)
    std::from_chars(told, told + std::string_view(told).size(), columns);
  return columns == 0 ? otherwise : std::clamp(columns, kLeastWidth, kMostWidth);
}

// Words of other programs may have any length.
std::string WithShortWords(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    out += PrintedShort(text.substr(0, space), kWordColumns);
    const std::size_t next = std::min(text.find_first_not_of(' ', space), text.size());
    out.append(next - space, ' ');
    text.remove_prefix(next);
  }
  return out;
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

std::vector<WrappedLine> SentenceLines(std::string_view head, std::string_view indent, std::string_view sentence,
                                       std::size_t columns) {
  const std::string clean = WithShortWords(Printed(sentence));
  return clean.empty() ? std::vector<WrappedLine>() : WrapLines(head, indent, clean, columns);
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
  for (const WrappedLine& line : SentenceLines(head.empty() ? indent : head, indent, sentence, options_.width))
    Line(line.begin + (paint.empty() ? line.text : Paint(paint, line.text)));
}

TextOptions TextOptions::ForFile(int fd) {
  TextOptions options;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  options.color = isatty(fd) == 1 && (no_color == nullptr || *no_color == '\0') &&
                  !(term != nullptr && std::string_view(term) == "dumb");
  options.unicode = LocaleIsUtf8();
  options.terminal = isatty(fd) == 1;
  if (options.terminal) options.width = WidthOfTerminal(fd, options.width);
  return options;
}

}  // namespace lockstep::report
