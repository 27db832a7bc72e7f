#include "analysis/report/html/shell.h"

#include "analysis/report/html/packed.h"

namespace lockstep::report {

extern const char kReportShellBytes[];  // Generated: cmake/EmbedFile.cmake.
extern const unsigned long kReportShellSize;

std::string_view ReportShell() { return {kReportShellBytes, kReportShellSize}; }

std::string FillShell(std::string_view shell, std::string_view title, std::string_view text, std::string_view data) {
  std::string page;
  page.reserve(shell.size() + data.size() + text.size() + 1024);
  // Filled in order of appearance, each once: inserted text is never searched.
  const auto fill = [&](std::string_view place, std::string_view with) {
    const std::size_t at = shell.find(place);
    if (at == std::string_view::npos) return;
    page += shell.substr(0, at);
    page += with;
    shell.remove_prefix(at + place.size());
  };
  fill("@LOCKSTEP_TITLE@", HtmlEscaped(title));
  fill("@LOCKSTEP_TEXT@", HtmlEscaped(text));
  fill("@LOCKSTEP_DATA@", data);
  page += shell;
  return page;
}

}  // namespace lockstep::report
