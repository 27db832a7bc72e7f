// lockstep completion: writes a shell's functions that complete commands, flags and what these take.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/tables/engine/table.h"
#include "cli/options/command.h"
#include "cli/options/described.h"
#include "cli/output/out.h"

namespace lockstep::cli {
namespace {

std::vector<std::string> FlagWords(const DescribedCommand& command) {
  std::vector<std::string> names;
  for (const DescribedFlag& flag : command.flags)
    if (!flag.positional) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

// What may follow a flag; empty: anything, or nothing.
std::vector<std::string> OfferedFor(const DescribedFlag& flag) {
  if (std::find(flag.names.begin(), flag.names.end(), "--table") == flag.names.end()) return flag.values;
  std::vector<std::string> names{"help", "columns"};
  for (const tables::TableKind& kind : tables::TableKinds()) names.emplace_back(kind.name);
  return names;
}

// The flags that take a value, for a `case` of the shell by command and flag: " analyze --csv"|...; those of one list
// of values together. `values` is given that list, empty for those that may be anything, of which files are offered.
template <typename Each>
void EachWithValue(const std::vector<DescribedCommand>& commands, Each&& each) {
  std::map<std::vector<std::string>, std::vector<std::string>> patterns;
  for (const DescribedCommand& command : commands)
    for (const DescribedFlag& flag : command.flags)
      for (const std::string& name : flag.names)
        if (!flag.positional && !flag.value.empty())
          patterns[OfferedFor(flag)].push_back((command.path.empty() ? "" : "' " + command.path + "'") + "' " + name +
                                               "'");
  for (const auto& [values, names] : patterns) each(fmt::format("{}", fmt::join(names, "|")), values);
}

// In single quotes.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out + "'";
}

// Words are completed up to `--`: the words after it belong to the program.
void Bash(const std::vector<DescribedCommand>& commands) {
  ShowOwn(
      "_lockstep() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} path= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case ${{COMP_WORDS[i]}} in --) compopt -o default; return ;; -*) continue ;; esac\n"
      "    case \"$path ${{COMP_WORDS[i]}}\" in\n");
  for (const DescribedCommand& command : commands)
    if (!command.path.empty())
      ShowOwn("      {}) path={} ;;\n", Quoted(" " + command.path), Quoted(" " + command.path));
  // Bash takes the = of --flag=value for a word of its own.
  ShowOwn(
      "    esac\n  done\n"
      "  local before=${{COMP_WORDS[COMP_CWORD-1]}}\n"
      "  if [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi\n"
      "  if [[ $word == = ]]; then word=; fi\n"
      "  case \"$path $before\" in\n");
  EachWithValue(commands, [](const std::string& patterns, const std::vector<std::string>& values) {
    if (values.empty())
      ShowOwn("    {}) compopt -o default; return ;;\n", patterns);
    else
      ShowOwn("    {}) COMPREPLY=($(compgen -W '{}' -- \"$word\")); return ;;\n", patterns, fmt::join(values, " "));
  });
  ShowOwn("  esac\n  case $path in\n");
  for (const DescribedCommand& command : commands)
    ShowOwn("    {}) COMPREPLY=($(compgen -W '{} {}' -- \"$word\")) ;;\n",
            Quoted(command.path.empty() ? "" : " " + command.path), fmt::join(command.below, " "),
            fmt::join(FlagWords(command), " "));
  ShowOwn(
      "  esac\n"
      "  [[ $word != -* ]] && compopt -o default\n"
      "}}\n"
      "complete -F _lockstep lockstep\n");
}

// `path` is a variable of zsh: the search path as a list. A file of $fpath is run as the function that it defines,
// once.
void Zsh(const std::vector<DescribedCommand>& commands) {
  ShowOwn(
      "#compdef lockstep\n"
      "_lockstep() {{\n"
      "  local at= word\n"
      "  for word in ${{words[2,CURRENT-1]}}; do\n"
      "    case $word in --) _default; return ;; -*) continue ;; esac\n"
      "    case \"$at $word\" in\n");
  for (const DescribedCommand& command : commands)
    if (!command.path.empty()) ShowOwn("      {}) at={} ;;\n", Quoted(" " + command.path), Quoted(" " + command.path));
  ShowOwn("    esac\n  done\n  case \"$at ${{words[CURRENT-1]}}\" in\n");
  EachWithValue(commands, [](const std::string& patterns, const std::vector<std::string>& values) {
    if (values.empty())
      ShowOwn("    {}) _files; return ;;\n", patterns);
    else
      ShowOwn("    {}) compadd -- {}; return ;;\n", patterns, fmt::join(values, " "));
  });
  ShowOwn("  esac\n  local -a found\n  case $at in\n");
  for (const DescribedCommand& command : commands) {
    ShowOwn("    {}) found=(", Quoted(command.path.empty() ? "" : " " + command.path));
    // A colon ends the word.
    const auto entry = [](std::string_view word, std::string_view help) {
      ShowOwn(" {}", Quoted(fmt::format("{}:{}", word, help)));
    };
    for (const std::string& name : command.below) {
      const std::string path = command.path.empty() ? name : command.path + " " + name;
      const auto at =
          std::find_if(commands.begin(), commands.end(), [&](const DescribedCommand& c) { return c.path == path; });
      entry(name, at == commands.end() ? "" : at->help);
    }
    for (const DescribedFlag& flag : command.flags)
      if (!flag.positional)
        for (const std::string& name : flag.names) entry(name, flag.help);
    ShowOwn(" ) ;;\n");
  }
  ShowOwn(
      "  esac\n"
      "  _describe -o 'lockstep' found\n"
      "  [[ $PREFIX == -* ]] || _files\n"
      "}}\n"
      "if [[ $funcstack[1] == _lockstep ]]; then _lockstep \"$@\"; else compdef _lockstep lockstep; fi\n");
}

void Fish(const std::vector<DescribedCommand>& commands) {
  for (const DescribedCommand& command : commands) {
    std::string condition = command.path.empty() ? "__fish_use_subcommand" : "";
    for (std::size_t begin = 0; begin < command.path.size();) {
      const std::size_t end = std::min(command.path.find(' ', begin), command.path.size());
      condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                               command.path.substr(begin, end - begin));
      begin = end + 1;
    }
    for (const std::string& name : command.below)
      ShowOwn("complete -c lockstep -n {} -a {}\n", Quoted(condition), name);
    for (const DescribedFlag& flag : command.flags) {
      if (flag.positional) continue;
      ShowOwn("complete -c lockstep -n {}", Quoted(condition));
      for (const std::string& name : flag.names)
        ShowOwn(" {} {}", name.starts_with("--") ? "-l" : "-s", name.substr(name.starts_with("--") ? 2 : 1));
      const std::vector<std::string> values = OfferedFor(flag);
      ShowOwn("{} -d {}\n",
              flag.value.empty() ? ""
              : values.empty()   ? std::string(" -r")
                                 : fmt::format(" -r -f -a '{}'", fmt::join(values, " ")),
              Quoted(flag.help));
    }
  }
}

}  // namespace

void AddCompletion(CLI::App& root, Chosen& chosen) {
  CLI::App* app = root.add_subcommand("completion", "Print a shell's completion of commands and flags");
  app->footer(
      "Examples:\n"
      "  source <(lockstep completion bash)\n"
      "  lockstep completion zsh > ~/.zsh/completions/_lockstep\n"
      "  lockstep completion fish > ~/.config/fish/completions/lockstep.fish");
  auto shell = std::make_shared<std::string>();
  app->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");
  app->callback([&root, &chosen, shell] {
    chosen = [&root, shell] {
      const auto commands = Describe(root);
      *shell == "bash" ? Bash(commands) : *shell == "zsh" ? Zsh(commands) : Fish(commands);
      return std::fflush(stdout) == 0 ? static_cast<int>(kOk) : static_cast<int>(kFailed);
    };
  });
}

}  // namespace lockstep::cli
