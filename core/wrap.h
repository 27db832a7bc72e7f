#pragma once
// Breaks texts at spaces, so that no word is broken by the terminal.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Columns of a text that went through Printed and may have been given colours, which take none.
std::size_t PaintedColumns(std::string_view text);

struct WrappedLine {
  std::string begin;  // Indentation or head.
  std::string text;
};

// `text`, one line that went through Printed, in lines of at most `columns`. The first one begins with `head`, each
// other one with `indent`. A word is never broken: one that does not fit behind the indentation begins further left,
// and one of more than `columns` has a line of its own. Spaces at which a line ends are left out, others are kept.
std::vector<WrappedLine> WrapLines(std::string_view head, std::string_view indent, std::string_view text,
                                   std::size_t columns);

// The same as a text; each line ends with \n.
std::string WrapText(std::string_view head, std::string_view indent, std::string_view text, std::size_t columns);

// Complete lines, with colours or without: those that fit stay as they are, the others are broken. A line goes on below
// its last column, which begins behind two spaces or more ("  name    what it is"); of a line without columns, two
// spaces further right than it begins.
std::string WrapLongLines(std::string_view lines, std::size_t columns);

}  // namespace lockstep
