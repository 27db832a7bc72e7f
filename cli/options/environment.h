#pragma once
// Flags from environment variables. A variable belongs to one command: LOCKSTEP_<FLAG> to `lockstep run`, in whose job
// scripts they are set, LOCKSTEP_<COMMAND>_<FLAG> to the others.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Gives every flag of `app` and its subcommands the name of its variable, as help and man show it. CLI11 would read the
// variables for all commands at once, and end the program if one is wrong, so this must be called after the command
// line was parsed.
void NameEnvironment(CLI::App& app);

struct Variables {
  // Parses a command line, without the program's name: throws as CLI11 does.
  std::function<void(CLI::App& root, const std::vector<std::string>& words)> parse;
  // Makes the commands. Called several times, each time with other flags set from variables.
  std::function<void(CLI::App& root)> add;
  // Returns what is wrong with a command line that the parser accepts; "" if nothing. May be empty.
  std::function<std::string(const std::vector<std::string>& words)> check;
};

// The words to add to those of a command line, from the variables that are set, not empty, and not overridden by a
// flag. A variable that the command does not accept is left out, with a line in `warnings` that contains its name, its
// value and the reason.
std::vector<std::string> WordsOfEnvironment(const std::vector<std::string>& words, const Variables& variables,
                                            std::vector<std::string>& warnings);

}  // namespace lockstep::cli
