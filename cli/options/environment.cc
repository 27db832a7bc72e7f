#include "cli/options/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "cli/options/similar.h"
#include "core/env.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kPrefix = "LOCKSTEP_";
// As a variable it would prevent every program of a session from running.
constexpr std::string_view kFlagOnly = "--print-env";
constexpr std::size_t kLongestShown = 160;

std::string Capitals(std::string_view text) {
  std::string name;
  for (const char c : text)
    name += c == '-' || c == ' ' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

// "" if it has none: hidden and positional ones, and those that every command has.
std::string VariableOf(const CLI::Option& option, const std::string& path) {
  if (option.get_lnames().empty() || option.get_group().empty()) return "";
  const std::string& flag = option.get_lnames()[0];
  if (flag == "help" || flag == "version" || "--" + flag == kFlagOnly) return "";
  return std::string(kPrefix) + (path == "run" ? "" : Capitals(path) + "_") + Capitals(flag);
}

void NameVariables(CLI::App& app, const std::string& path) {
  for (CLI::App* below : app.get_subcommands({}))
    NameVariables(*below, path.empty() ? below->get_name() : path + " " + below->get_name());
  if (path.empty()) return;
  for (CLI::Option* option : app.get_options())
    if (const std::string name = VariableOf(*option, path); !name.empty()) option->envname(name);
}

// For messages: a variable may contain any bytes.
std::string Shown(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, kLongestShown)) shown += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kLongestShown ? shown + "..." : shown;
}

// The innermost command in the words, and how many words it takes.
std::pair<CLI::App*, std::size_t> CommandOf(CLI::App& root, const std::vector<std::string>& words) {
  CLI::App* app = &root;
  std::size_t at = 0;
  for (; at < words.size(); ++at) {
    const auto below = app->get_subcommands([&](const CLI::App* each) { return each->get_name() == words[at]; });
    if (below.empty()) break;
    app = below[0];
  }
  return {app, at};
}

// "--clock: x not in {a,b}" -> "x not in {a,b}"
std::string WithoutFlag(std::string text, const std::string& flag) {
  const std::string prefix = flag + ": ";
  if (text.starts_with(prefix)) text.erase(0, prefix.size());
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

struct Variable {
  std::string name, value, flag;
  std::string word() const { return flag + "=" + value; }
};

class Reader {
 public:
  Reader(const std::vector<std::string>& words, const Variables& how) : words_(words), how_(how) {}

  std::vector<std::string> Run(std::vector<std::string>& warnings) {
    CLI::App root;
    how_.add(root);
    const auto [command, depth] = CommandOf(root, words_);
    if (depth == 0) return {};
    std::string path;
    for (std::size_t i = 0; i < depth; ++i) path += (i == 0 ? "" : " ") + words_[i];
    try {
      how_.parse(root, words_);
    } catch (const CLI::ParseError&) {
      return {};  // The next parser reports the error; variables do not change it.
    }
    // The words are complete, because another `lockstep run` has read the variables.
    if (const CLI::Option* whole = command->get_option_no_throw("--no-variables");
        whole != nullptr && whole->count() > 0)
      return {};
    std::vector<Variable> waiting = Set(*command, path);
    std::vector<std::string> taken;
    // One may require another, so this is repeated until none is accepted any more.
    for (bool any = true; any;) {
      any = false;
      for (std::size_t i = 0; i < waiting.size();) {
        if (!Trouble(taken, waiting[i]).empty()) {
          ++i;
          continue;
        }
        taken.push_back(waiting[i].word());
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(i));
        any = true;
      }
    }
    for (const Variable& bad : waiting)
      warnings.push_back(bad.name + "=" + Shown(bad.value) + " is ignored: " + Shown(Trouble(taken, bad)));
    Unknown(root, *command, path, warnings);
    return taken;
  }

 private:
  // The variables of the command that are set and that no flag overrides.
  std::vector<Variable> Set(const CLI::App& command, const std::string& path) {
    std::vector<Variable> set;
    for (const CLI::Option* option : command.get_options()) {
      const std::string name = VariableOf(*option, path);
      const char* value = name.empty() || option->count() > 0 ? nullptr : std::getenv(name.c_str());
      if (value != nullptr && *value != '\0') set.push_back({name, value, "--" + option->get_lnames()[0]});
    }
    return set;
  }

  std::string Trouble(const std::vector<std::string>& taken, const Variable& variable) {
    std::vector<std::string> words = words_;
    words.insert(words.end(), taken.begin(), taken.end());
    words.push_back(variable.word());
    CLI::App root;
    how_.add(root);
    try {
      how_.parse(root, words);
    } catch (const CLI::Success&) {
    } catch (const CLI::ParseError& error) {
      return WithoutFlag(error.what(), variable.flag);
    }
    return how_.check ? how_.check(words) : "";
  }

  // Finds names that no command has and that are probably mistakes: a misspelt variable of `run`, or a flag's name
  // without its command (LOCKSTEP_JOBS). Other names may belong to other programs.
  static void Unknown(CLI::App& root, const CLI::App& command, const std::string& path,
                      std::vector<std::string>& warnings) {
    NameVariables(root, "");
    std::vector<std::string> known(std::begin(env::kInternal), std::end(env::kInternal)), of_run;
    const auto add = [&](const CLI::App& app, auto&& self) -> void {
      for (const CLI::Option* option : app.get_options())
        if (!option->get_envname().empty()) (app.get_name() == "run" ? of_run : known).push_back(option->get_envname());
      for (const CLI::App* below : app.get_subcommands([](const CLI::App*) { return true; })) self(*below, self);
    };
    add(root, add);
    for (char** at = environ; *at != nullptr; ++at) {
      const std::string_view entry = *at, name = entry.substr(0, entry.find('='));
      if (!name.starts_with(kPrefix) || entry.size() <= name.size() + 1) continue;
      const auto is = [&](const std::string& other) { return other == name; };
      if (std::any_of(known.begin(), known.end(), is) || std::any_of(of_run.begin(), of_run.end(), is)) continue;
      if (path != "run") {
        if (const std::string meant = WithoutCommand(name, command); !meant.empty())
          warnings.push_back(Shown(name) + " is not a variable of any command; " + meant + " is");
        continue;
      }
      for (const std::string& meant : of_run) {
        const std::size_t most = name.size() - kPrefix.size() < 6 ? 1 : 2;
        if (EditDistance(name, meant) > most) continue;
        warnings.push_back(Shown(name) + " is not a variable of lockstep run; " + meant + " is");
        break;
      }
    }
  }

  // The variable of the command whose flag has this name: LOCKSTEP_JOBS -> LOCKSTEP_ANALYZE_JOBS. "" if there is none.
  static std::string WithoutCommand(std::string_view name, const CLI::App& command) {
    for (const CLI::Option* option : command.get_options())
      if (!option->get_envname().empty() && std::string(kPrefix) + Capitals(option->get_lnames()[0]) == name)
        return option->get_envname();
    return "";
  }

  const std::vector<std::string>& words_;
  const Variables& how_;
};

}  // namespace

void NameEnvironment(CLI::App& app) { NameVariables(app, ""); }

std::vector<std::string> WordsOfEnvironment(const std::vector<std::string>& words, const Variables& variables,
                                            std::vector<std::string>& warnings) {
  // An agent starts with each rank, mostly without any variable; the code below needs several parsers.
  bool any = false;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at)
    any = any || std::string_view(*at).starts_with(kPrefix);
  if (!any) return {};
  return Reader(words, variables).Run(warnings);
}

}  // namespace lockstep::cli
