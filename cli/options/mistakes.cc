#include "cli/options/mistakes.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>
#include <string_view>

#include "cli/options/command.h"
#include "cli/options/described.h"
#include "cli/options/help_format.h"
#include "cli/options/program.h"
#include "cli/options/similar.h"
#include "cli/output/out.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// CLI11's own list contains the commands that were found in the words only, which a filter lifts.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* below) { return !below->get_name().empty(); });
}

// Without "=VALUE".
std::string NameIn(const std::string& word) { return word.substr(0, word.find('=')); }

bool IsOption(const std::string& word) { return word.size() > 1 && word[0] == '-' && word != "--"; }

std::vector<std::string> LongNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

// How the command is called with this option: "lockstep export --steps A:B".
std::string CallWith(const CLI::App& app, const std::string& name) {
  std::string call = PathOf(app) + " --" + name;
  if (const CLI::Option* option = app.get_option_no_throw("--" + name);
      option != nullptr && option->get_items_expected_max() > 0)
    call += " " + (option->get_type_name().empty() ? "VALUE" : option->get_type_name());
  return StartsProgram(app.get_name()) ? call + " -- PROGRAM" : call;
}

Error UnknownOption(const CLI::App& root, const CLI::App& owner, const CLI::App& meant, const std::string& word) {
  const std::string name = NameIn(word), bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  Error error{ErrorCode::kUsage, "there is no option " + name, PathOf(owner),
              PathOf(owner) + " --help lists its options"};
  if (&owner == &root && &meant != &root && meant.get_option_no_throw(name) != nullptr) {
    error.what = name + " is an option of " + PathOf(meant) + ", and stands before it";
    error.hint = CallWith(meant, meant.get_option_no_throw(name)->get_lnames()[0]);
    return error;
  }
  const std::string nearest = Nearest(bare, LongNames(owner));
  if (!nearest.empty()) {
    error.hint = CallWith(owner, nearest);
    return error;
  }
  if (owner.get_name() == "run") {
    error.hint = UsageOf(owner);
    for (const char* of_launchers : {"-n", "-np", "-N", "--np", "--ntasks"})
      if (name == of_launchers) error.hint = "mpirun " + name + " 4 lockstep run -- PROGRAM";
    return error;
  }
  for (const CLI::App* other : CommandsOf(root))
    if (name.starts_with("--") && other->get_option_no_throw(name) != nullptr) {
      error.what += "; " + PathOf(*other) + " has one";
      break;
    }
  return error;
}

Error UnknownCommand(const CLI::App& root, const std::string& word) {
  Error error{ErrorCode::kUsage, "there is no command " + word, PathOf(root),
              PathOf(root) + " --help lists the commands"};
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(root)) names.push_back(command->get_name());
  const std::size_t commands = names.size();
  for (const std::string& flag : LongNames(root)) names.push_back(flag);
  std::error_code ignored;
  if (const std::string nearest = Nearest(word, names); !nearest.empty()) {
    const bool command =
        std::find(names.begin(), names.end(), nearest) - names.begin() < static_cast<std::ptrdiff_t>(commands);
    error.hint = PathOf(root) + (command ? " " : " --") + nearest;
  } else if (fs::is_regular_file(word, ignored) && ::access(word.c_str(), X_OK) == 0) {
    error.hint = PathOf(root) + " run -- " + word;
  } else if (fs::exists(word, ignored)) {
    error.hint = PathOf(root) + " analyze " + word;
  }
  return error;
}

// The parser's words, in one line and without its capital.
std::string WordsOf(const CLI::ParseError& error) {
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (text.size() > 1 && (text[1] == ' ' || std::islower(static_cast<unsigned char>(text[1])) != 0))
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

// How an option is typed, short where it can be, with what it takes: "-o RUN".
std::string Typed(const CLI::Option& option) {
  const std::string name = option.get_snames().empty() ? "--" + option.get_lnames()[0] : "-" + option.get_snames()[0];
  return name + " " + (option.get_type_name().empty() ? "VALUE" : option.get_type_name());
}

// The call as it was typed, with the options that it lacks: those that are required, and the one that `what` begins
// with. "" if it cannot be typed as it is shown, or names a program.
std::string Completed(const CLI::App& root, const CLI::App& app, const std::string& what,
                      const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=,+@%-";
  std::string call = PathOf(root);
  for (const std::string& word : words) {
    if (word.empty() || word == "--" || word.find_first_not_of(kPlain) != std::string::npos) return {};
    call += " " + word;
  }
  const std::string named = what.substr(0, what.find_first_of(" :"));
  const CLI::Option* last = words.empty() || !IsOption(words.back()) ? nullptr : app.get_option_no_throw(words.back());
  if (last != nullptr && last->get_items_expected_max() > 0)
    call += " " + (last->get_type_name().empty() ? std::string("VALUE") : last->get_type_name());
  else
    last = nullptr;
  for (const CLI::Option* option : app.get_options())
    if (!option->get_positional() && option != last && option->count() == 0 &&
        (option->get_required() || option == app.get_option_no_throw(named)))
      call += " " + Typed(*option);
  return StartsProgram(app.get_name()) ? call + " -- PROGRAM" : call;
}

// The call as it was typed, with the value that was meant: of an option that takes one of a list. "" if none is near.
std::string WithNearestValue(const CLI::App& root, const CLI::App& app, const std::string& what,
                             std::vector<std::string> words) {
  const std::string name = what.substr(0, what.find_first_of(" :"));
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option == nullptr) return {};
  const std::vector<std::string> values = ValuesTaken(*option);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool joined = words[i].starts_with(name + "=");
    if (!joined && (words[i] != name || i + 1 == words.size())) continue;
    const std::string nearest = Nearest(joined ? words[i].substr(name.size() + 1) : words[i + 1], values);
    if (nearest.empty()) return {};
    words[joined ? i : i + 1] = joined ? name + "=" + nearest : nearest;
    return Completed(root, app, "", words);
  }
  return {};
}

}  // namespace

Error MistakeIn(const CLI::App& root, const CLI::ParseError& error, const std::vector<std::string>& words) {
  std::vector<const CLI::App*> parsed = {&root};
  while (!parsed.back()->get_subcommands().empty()) parsed.push_back(parsed.back()->get_subcommands().front());
  const CLI::App& innermost = *parsed.back();

  // "-json" is read as the letters j, s, o and n.
  for (const std::string& word : words) {
    if (word == "--") break;
    if (word.size() < 3 || word[0] != '-' || word[1] == '-') continue;
    if (innermost.get_option_no_throw("-" + NameIn(word)) == nullptr) continue;
    return {ErrorCode::kUsage, "there is no option " + NameIn(word) + " with one dash", PathOf(innermost),
            CallWith(innermost, NameIn(word).substr(1))};
  }
  // The innermost first: what follows "--" is left to the outermost.
  for (const bool options : {true, false})
    for (auto at = parsed.rbegin(); at != parsed.rend(); ++at) {
      const CLI::App& owner = **at;
      for (const std::string& word : owner.remaining()) {
        if (options && IsOption(word)) return UnknownOption(root, owner, innermost, word);
        if (options || IsOption(word) || word == "--") continue;
        if (&owner == &root && !CommandsOf(root).empty() && (&innermost == &root || word == words.front()))
          return UnknownCommand(root, word);
        return {ErrorCode::kUsage, "it is not clear what " + word + " is for", PathOf(innermost), UsageOf(innermost)};
      }
    }
  std::string what = WordsOf(error), hint;
  if (what.starts_with("--") && (what.ends_with(" is required") || what.ends_with(" missing")))
    hint = Completed(root, innermost, what, words);
  if (hint.empty()) hint = WithNearestValue(root, innermost, what, words);
  if (hint.empty()) hint = UsageOf(innermost);
  if (what == "files is required") {
    what = "no trace files were named";
    hint = PathOf(innermost) + " FILES -o RUN";
  }
  if (what == "places is required") what = "no run directory was named";
  return {ErrorCode::kUsage, std::move(what), PathOf(innermost), std::move(hint)};
}

int ShowParseError(const CLI::App& root, const CLI::ParseError& error, const std::vector<std::string>& words) {
  if (error.get_exit_code() != 0) return PrintError(MistakeIn(root, error, words));
  std::ostringstream text, trouble;
  root.exit(error, text, trouble);
  return ShowText(text.str()) ? kOk : kFailed;
}

int ShowNextSteps() {
  std::error_code ignored;
  const fs::path latest = fs::path("lockstep.out") / "latest";
  const bool any = fs::exists(latest, ignored);
  const fs::path target = fs::read_symlink(latest, ignored);
  Note(
      "lockstep finds what makes a multi-rank training job slower than it should be. Next:\n"
      "  mpirun -np 4 lockstep run -- ./app    {}\n",
      any ? "record a job again" : "record a job; the verdict is shown at its end");
  if (any)
    Note("  lockstep analyze                      the verdict on the latest run here{}\n",
         ignored || target.empty() ? std::string() : ", " + target.string());
  Note(
      "  lockstep analyze traces/*.json.gz     the verdict on traces of torch.profiler\n"
      "  lockstep doctor                       whether jobs on this machine can be recorded\n"
      "  lockstep --help                       all commands\n");
  return kUsage;
}

}  // namespace lockstep::cli
