#include "cli/options/help_format.h"

#include <unistd.h>

#include <memory>
#include <vector>

#include "analysis/report/text.h"
#include "cli/options/program.h"
#include "core/wrap.h"

namespace lockstep::cli {
namespace {

// Narrower terminals get what a flag does below its name.
constexpr std::size_t kBesideFrom = 76;

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return WrapLongLines(Formatter::make_description(app), Width());
  }
  std::string make_usage(const CLI::App* app, std::string) const override {
    return WrapText("Usage: ", "    ", UsageOf(*app), Width());
  }
  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string text = "\n" + WrapText("", "  ", group + ":", Width());
    for (const CLI::Option* option : options) text += make_option(option, is_positional);
    return text;
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return Entry(make_option_name(option, is_positional) + make_option_opts(option), make_option_desc(option), 6);
  }
  std::string make_subcommand(const CLI::App* app) const override {
    return Entry(app->get_display_name(true), app->get_description(), 14);
  }
  std::string make_footer(const CLI::App* app) const override {
    return WrapLongLines(Formatter::make_footer(app), Width());
  }

 private:
  static std::size_t Width() { return report::TextOptions::ForFile(STDOUT_FILENO).width; }

  std::string Entry(const std::string& name, const std::string& what, std::size_t narrow) const {
    const std::size_t width = Width(), column = width >= kBesideFrom ? get_column_width() : narrow;
    const std::string indent(column, ' ');
    std::string head = "  " + name;
    if (what.empty() || head.size() >= column) {
      std::string lines = WrapText("  ", std::string(10, ' '), name, width);
      return what.empty() ? lines : lines + WrapText(indent, indent, what, width);
    }
    head.resize(column, ' ');
    return WrapText(head, indent, what, width);
  }
};

}  // namespace

std::string PathOf(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : PathOf(*app.get_parent()) + " " + app.get_name();
}

std::string UsageOf(const CLI::App& app) {
  std::string usage = PathOf(app);
  if (!app.get_options([](const CLI::Option* option) { return option->nonpositional(); }).empty())
    usage += " [OPTIONS]";
  for (const CLI::Option* option : app.get_options([](const CLI::Option* each) { return each->get_positional(); })) {
    // "SHELL:{bash,zsh,fish}", and what CLI11 calls a text of any kind.
    std::string name = option->get_type_name().substr(0, option->get_type_name().find(':'));
    if (name.empty() || name == "TEXT") name = option->get_single_name();
    if (option->get_expected_max() > 1) name += "...";
    usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  if (!app.get_subcommands([](const CLI::App* below) { return !below->get_name().empty(); }).empty())
    usage += app.get_require_subcommand_min() == 0 ? " [SUBCOMMAND]" : " SUBCOMMAND";
  if (app.get_parent() != nullptr && StartsProgram(app.get_name())) usage += " -- PROGRAM [ARGUMENTS]";
  return usage;
}

void UseHelpFormat(CLI::App& app) { app.formatter(std::make_shared<HelpFormat>()); }

}  // namespace lockstep::cli
