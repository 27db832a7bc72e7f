#pragma once
// The page without its data: web/dist/shell.html, embedded into the program when it is built.

#include <string_view>

namespace lockstep::report {

std::string_view ReportShell();
// Returns the shell with these inserted. `title` and `text` are text, `data` is inserted as it is.
std::string FillShell(std::string_view shell, std::string_view title, std::string_view text, std::string_view data);

}  // namespace lockstep::report
