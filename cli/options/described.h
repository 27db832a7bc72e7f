#pragma once
// The commands and flags of `--help`, for the man page and the shells' completions, which are generated from them.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

struct DescribedFlag {
  std::vector<std::string> names;  // "-o", "--output"; of a positional argument its name alone.
  std::string value;               // "FILE", "" if it takes none.
  // What it takes, where its help lists that ("{auto,off}", "on|off"); else empty.
  std::vector<std::string> values;
  std::string help;
  std::string environment;  // LOCKSTEP_..., "" if it has none.
  bool positional = false;
};

struct DescribedCommand {
  std::string path;  // "import kineto"; "" of the program itself.
  std::string help, footer;
  std::vector<DescribedFlag> flags;
  std::vector<std::string> below;  // Names of its own commands.
};

// What an option takes, where its help lists that; else empty.
std::vector<std::string> ValuesTaken(const CLI::Option& option);

// The program first, then its commands in the order in which they are listed, each followed by its own subcommands.
std::vector<DescribedCommand> Describe(const CLI::App& root);

}  // namespace lockstep::cli
