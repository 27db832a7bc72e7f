#pragma once
// The page without its data: web/dist/shell.html, put into the program when it is built.

#include <string_view>

namespace lockstep::report {

std::string_view ReportShell();
// The shell with these in their places. `title` and `text` as text, `data` as it stands.
std::string FillShell(std::string_view shell, std::string_view title, std::string_view text, std::string_view data);

}  // namespace lockstep::report
