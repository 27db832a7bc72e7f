#pragma once
// Makes text from other sources (names in traces, host names, paths, arguments, messages of
// other programs) safe to show. A terminal executes control sequences in it, a right-to-left
// mark reverses the words around it, and a line end in a name makes lines that Lockstep did not
// print.
//
// Everything that Lockstep shows goes through here: cli/output/out.h and
// runtime/agent/rundir/say.h are the only ways to standard output and error.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// Returns one line that is safe to show. Control characters, DEL and bytes that are not UTF-8 become \x1b and the like;
// C1 controls, marks of direction, line and paragraph separators, invisible characters and noncharacters become \u202e
// and the like. Visible characters, letters of all languages, their marks and emoji stay as they are.
std::string Printed(std::string_view text);

// The same for several lines: \n stays, and with `colors` the sequences that Lockstep's renderers make
// (SGR: \x1b[1;31m) stay as well.
std::string PrintedLines(std::string_view text, bool colors);

// Columns that `text`, which went through here, takes on a terminal: 2 for wide letters and emoji, 0 for marks.
std::size_t PrintedColumns(std::string_view text);

// Returns `text` itself if it fits, else its begin and its end with ".." between them in at most so many columns (at
// least 6), because names may differ at either end.
std::string PrintedShort(std::string_view text, std::size_t columns);

// The begin of `text` in at most so many bytes, without cutting a character in two.
std::string_view BeginOf(std::string_view text, std::size_t bytes);

// JSON whose strings hold the same text, with every character that Printed would escape written as a \u
// escape.
std::string PrintedJson(std::string_view json);

// A name as a cell of a CSV file, quoted as RFC 4180 requires. CSV has no escapes: control characters are escaped as by
// Printed, and a text that a spreadsheet would take for a formula (=, +, -, @ at the begin) gets an apostrophe before
// it.
std::string PrintedCsv(std::string_view text);

}  // namespace lockstep
