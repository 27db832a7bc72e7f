#include "cli/options/described.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> ValuesIn(const std::string& type) {
  const std::size_t open = type.find('{'), close = type.find('}', open + 1);
  const bool listed = open != std::string::npos && close != std::string::npos;
  if (!listed && type.find('|') == std::string::npos) return {};
  return CLI::detail::split(listed ? type.substr(open + 1, close - open - 1) : type, listed ? ',' : '|');
}

}  // namespace

std::vector<std::string> ValuesTaken(const CLI::Option& option) {
  return option.get_items_expected_max() > 0 ? ValuesIn(option.get_type_name()) : std::vector<std::string>();
}

namespace {

DescribedFlag Describe(const CLI::Option& option) {
  DescribedFlag flag;
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (flag.names.empty()) {
    flag.positional = true;
    flag.names.push_back(option.get_single_name());
  }
  if (option.get_items_expected_max() > 0) flag.value = option.get_type_name();
  flag.values = ValuesTaken(option);
  flag.help = option.get_description();
  flag.environment = option.get_envname();
  return flag;
}

void Add(const CLI::App& app, const std::string& path, std::vector<DescribedCommand>& to) {
  DescribedCommand command{path, app.get_description(), app.get_footer(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) command.flags.push_back(Describe(*option));
  const auto below = app.get_subcommands([](const CLI::App* each) { return !each->get_name().empty(); });
  for (const CLI::App* each : below) command.below.push_back(each->get_name());
  to.push_back(std::move(command));
  for (const CLI::App* each : below) Add(*each, path.empty() ? each->get_name() : path + " " + each->get_name(), to);
}

}  // namespace

std::vector<DescribedCommand> Describe(const CLI::App& root) {
  std::vector<DescribedCommand> commands;
  Add(root, "", commands);
  return commands;
}

}  // namespace lockstep::cli
