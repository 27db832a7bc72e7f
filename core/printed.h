#pragma once
// How text that somebody else wrote (names in traces, host names, paths, arguments,
// words of other programs) stands in what a person reads. A terminal takes
// sequences in it for commands, a right-to-left mark turns the words around it, and
// a line end in a name makes lines that we never said.
//
// All that Lockstep shows goes through here: cli/output/out.h and runtime/agent/rundir/say.h are
// the only ways to standard output and error.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// One line, safe to show: what is no visible character of valid UTF-8 becomes visible. Control characters, DEL and
// bytes that are no UTF-8 as \x1b; C1 controls, marks of direction, line and paragraph separators, invisible and
// unassigned-for-ever characters as \u202e. Letters of all languages, their marks and emoji stay as they are.
std::string Printed(std::string_view text);

// The same for lines that were put together: \n stays, and with `colors` the sequences that our own renderers make
// (SGR: \x1b[1;31m) stay as well.
std::string PrintedLines(std::string_view text, bool colors);

// Columns that `text`, which went through here, takes on a terminal: 2 for wide letters and emoji, 0 for marks.
std::size_t PrintedColumns(std::string_view text);

// `text` itself, or its begin and its end with ".." between them in at most so many columns (at least 6): what tells
// names apart may be at either end.
std::string PrintedShort(std::string_view text, std::size_t columns);

// The begin of `text` in at most so many bytes, no character cut in two.
std::string_view BeginOf(std::string_view text, std::size_t bytes);

// JSON whose strings hold the same as before and no character that a terminal obeys: those that Printed makes visible
// become \u escapes.
std::string PrintedJson(std::string_view json);

// A name as a cell of a CSV file, quoted where RFC 4180 wants it. CSV has no escapes: control characters are made
// visible as by Printed, and what a spreadsheet would take for a formula (=, +, -, @ at the begin) gets an
// apostrophe before it.
std::string PrintedCsv(std::string_view text);

}  // namespace lockstep
