#pragma once
// The only functions through which a command writes to standard output and error (a test searches for others). Names in
// the output may come from other programs; they are made safe here (core/printed.h), so that no command can forget it.

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/printed.h"

namespace lockstep::cli {

namespace out {

// Texts become one safe line each, whatever they contain; numbers stay.
template <typename T>
decltype(auto) Clean(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    return Printed(std::string_view(value));
  } else {
    return (value);
  }
}

template <typename... Args>
std::string Format(fmt::format_string<Args...> format, const Args&... args) {
  return [&](const auto&... clean) {
    return fmt::vformat(fmt::string_view(format), fmt::make_format_args(clean...));
  }(Clean(args)...);
}

}  // namespace out

// The errno with which standard output first did not accept something; 0: it accepted everything.
int OutputError();

// Both return false if the system did not accept everything. `text` consists of complete lines; control characters
// other than line ends and our colours are escaped even so.
bool ShowText(std::string_view text);
bool ShowNote(std::string_view text);  // On standard error.

// Lines that nobody has laid out yet: on a terminal they are broken at its width, elsewhere each stays one line, for
// other programs.
bool ShowLines(std::string_view text);
bool NoteLines(std::string_view text);

// Formats and shows: Show("{}: {} ranks\n", path, ranks). The format is ours and may hold line ends, the texts in it
// may not.
template <typename... Args>
bool Show(fmt::format_string<Args...> format, const Args&... args) {
  return ShowLines(out::Format<Args...>(format, args...));
}
template <typename... Args>
bool Note(fmt::format_string<Args...> format, const Args&... args) {
  return NoteLines(out::Format<Args...>(format, args...));
}

// For texts that are all our own and contain line ends: manual, completion.
template <typename... Args>
bool ShowOwn(fmt::format_string<Args...> format, Args&&... args) {
  return ShowText(fmt::format(format, std::forward<Args>(args)...));
}

// The same values as in `json`; characters that control a terminal are written as \u escapes.
bool ShowJson(std::string_view json);
// Bytes for another program: a page of HTML.
bool ShowData(std::string_view data);

// A line on a terminal that the next one replaces; "" removes it. Otherwise (`terminal` false) a line of its own.
void ShowProgress(std::string_view line, bool terminal);

}  // namespace lockstep::cli
