#include "cli/options/program.h"

#include <cstring>

#include "cli/options/command.h"

namespace lockstep::cli {

std::vector<std::string>& Program() {
  static std::vector<std::string> words;
  return words;
}

// CLI11 2.1 passes words after "--" of a subcommand to its parent and, without "--", parses the program's options as
// ours.
int SplitProgram(CLI::App& root, int argc, char** argv) {
  if (argc < 2 || !StartsProgram(argv[1])) return argc;
  const CLI::App* command = root.get_subcommand(argv[1]);
  int at = 2;
  for (; at < argc; ++at) {
    const std::string word = argv[at];
    if (word == "--" || word.size() < 2 || word[0] != '-') break;
    const bool is_long = word[1] == '-';
    const std::size_t equals = word.find('=');
    // Short flags may stand together: -qo DIR.
    std::size_t letter = 1;
    for (;; ++letter) {
      const CLI::Option* option =
          command->get_option_no_throw(is_long ? word.substr(0, equals) : std::string("-") + word[letter]);
      if (option == nullptr) return argc;  // The parser reports the error.
      const bool last = is_long || letter + 1 == word.size();
      const bool attached = is_long ? equals != std::string::npos : !last;
      if (option->get_items_expected_max() > 0) at += attached ? 0 : 1;
      if (last || option->get_items_expected_max() > 0) break;
    }
  }
  if (at >= argc) return argc;
  const int ours = at;
  if (std::strcmp(argv[at], "--") == 0) ++at;
  Program().assign(argv + at, argv + argc);
  return ours;
}

}  // namespace lockstep::cli
