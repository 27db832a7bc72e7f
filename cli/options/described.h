#pragma once
// The commands and their flags as `--help` knows them, for what is generated from the same
// data: the man page and the shells' completions.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace lockstep::cli {

struct DescribedFlag {
  std::vector<std::string> names;  // "-o", "--output"; of a positional argument its name alone.
  std::string value;               // "FILE", "" if it takes none.
  std::string help;
  std::string environment;  // LOCKSTEP_..., "" if there is none.
  bool positional = false;
};

struct DescribedCommand {
  std::string path;  // "import kineto"; "" of the program itself.
  std::string help, footer;
  std::vector<DescribedFlag> flags;
  std::vector<std::string> below;  // Names of its own commands.
};

// The program first, then its commands in the order in which they are listed, each followed by its own.
std::vector<DescribedCommand> Describe(const CLI::App& root);

}  // namespace lockstep::cli
