#include "analysis/run/job_name.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "core/own_file.h"
#include "core/shell_words.h"

namespace lockstep::analysis {
namespace {

// What an interpreter runs: its switches that take a word, in a cluster of letters ("-uW ignore", "-Wignore").
struct Interpreter {
  std::string_view name, with_word, code, module;  // Prefix of the program's name; letters.
};
constexpr Interpreter kInterpreters[] = {
    {"python", "WX", "c", "m"},  // Python/getopt.c, CPython 3.13.
    {"bash", "oO", "c", ""},
    {"sh", "o", "c", ""},
    {"perl", "", "eE", ""},
};

}  // namespace

std::string JobName(std::string_view command) {
  const std::vector<std::string> words = ShellWords(command);
  if (words.empty()) return {};
  const std::string first(BaseName(words[0]));
  const auto* interpreter = std::find_if(std::begin(kInterpreters), std::end(kInterpreters), [&](const auto& each) {
    return first.starts_with(each.name) && (each.name == "python" || first == each.name);
  });
  if (interpreter == std::end(kInterpreters)) return first;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--check-hash-based-pycs" || word == "--rcfile" || word == "--init-file") ++i;
    if (word.starts_with("--")) continue;
    if (word.size() < 2 || word[0] != '-') return word == "-" ? first : std::string(BaseName(word));
    const std::size_t at =
        word.find_first_of(fmt::format("{}{}{}", interpreter->with_word, interpreter->code, interpreter->module), 1);
    if (at == std::string::npos) continue;
    if (interpreter->code.find(word[at]) != std::string_view::npos) return first;
    const bool attached = at + 1 < word.size();
    if (interpreter->module.find(word[at]) != std::string_view::npos)
      return attached ? word.substr(at + 1) : i + 1 < words.size() ? words[i + 1] : first;
    if (!attached) ++i;
  }
  return first;
}

}  // namespace lockstep::analysis
