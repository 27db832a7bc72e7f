#include "core/wrap.h"

#include <algorithm>

#include "core/printed.h"

namespace lockstep {
namespace {

// The length of a colour (ESC [ ... m) at the begin of `text`, which takes no column; 0 if there is none.
std::size_t ColorLength(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

// Where the last column of `line` begins if that is in its first half, in bytes.
std::size_t LastColumn(std::string_view line, std::size_t columns) {
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  std::size_t begin = 0;
  for (std::size_t at = first; (at = line.find("  ", at)) != std::string_view::npos;) {
    at = std::min(line.find_first_not_of(' ', at), line.size());
    if (at < line.size() && PaintedColumns(line.substr(0, at)) <= columns / 2) begin = at;
  }
  return begin;
}

}  // namespace

std::size_t PaintedColumns(std::string_view text) {
  std::size_t columns = 0;
  while (!text.empty()) {
    if (const std::size_t color = ColorLength(text); color > 0) {
      text.remove_prefix(color);
      continue;
    }
    const std::size_t plain = std::min(text.find('\x1b', 1), text.size());
    columns += PrintedColumns(text.substr(0, plain));
    text.remove_prefix(plain);
  }
  return columns;
}

std::vector<WrappedLine> WrapLines(std::string_view head, std::string_view indent, std::string_view text,
                                   std::size_t columns) {
  std::vector<WrappedLine> lines;
  std::string_view begin = head;
  std::string line;
  std::size_t used = 0;
  bool empty = true;  // The line has no word yet.
  const auto end_line = [&] {
    lines.push_back({std::string(begin), std::move(line)});
    line.clear();
    begin = indent;
    empty = true;
  };
  while (!text.empty()) {
    const std::size_t gap = std::min(text.find_first_not_of(' '), text.size());
    const std::string_view rest = text.substr(gap);
    const std::string_view word = rest.substr(0, std::min(rest.find(' '), rest.size()));
    text = rest.substr(word.size());
    if (word.empty()) break;
    const std::size_t wide = PaintedColumns(word);
    if (!empty && used + gap + wide > columns) end_line();
    if (empty) {
      used = PaintedColumns(begin);
      const bool blank = begin.find_first_not_of(' ') == std::string_view::npos;
      if (used + wide > columns && !blank) {  // The head stands alone.
        end_line();
        used = PaintedColumns(begin);
      }
      if (used + wide > columns) begin = begin.substr(0, columns > wide ? std::min(begin.size(), columns - wide) : 0);
      used = PaintedColumns(begin) + wide;
      line = word;
      empty = false;
    } else {
      line.append(gap, ' ').append(word);
      used += gap + wide;
    }
  }
  if (!empty || lines.empty()) end_line();
  return lines;
}

std::string WrapText(std::string_view head, std::string_view indent, std::string_view text, std::size_t columns) {
  std::string out;
  for (const WrappedLine& line : WrapLines(head, indent, text, columns)) {
    std::string whole = line.begin + line.text;
    whole.erase(whole.find_last_not_of(' ') + 1);
    out += whole + "\n";
  }
  return out;
}

std::string WrapLongLines(std::string_view lines, std::size_t columns) {
  std::string out;
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    const bool ended = end < lines.size();
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (PaintedColumns(line) <= columns) {
      out += line;
      if (ended) out += '\n';
      continue;
    }
    const std::size_t first = line.find_first_not_of(' ');
    const std::size_t at = std::max(LastColumn(line, columns), first);
    const std::size_t hanging = at > first ? PaintedColumns(line.substr(0, at)) : first + 2;
    std::string wrapped = WrapText(line.substr(0, at), std::string(hanging, ' '), line.substr(at), columns);
    if (!ended) wrapped.pop_back();
    out += wrapped;
  }
  return out;
}

}  // namespace lockstep
