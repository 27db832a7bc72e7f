#pragma once
// Flags from environment variables. A variable belongs to the command whose flag it stands for: LOCKSTEP_<FLAG> to
// `lockstep run`, in whose job scripts they are set, LOCKSTEP_<COMMAND>_<FLAG> to the others.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::cli {

// Gives every flag of `app` and of what is below it the name of its variable, as help and man show it. CLI11 would read
// it, for all commands at once, and end the program over one that is wrong: so after the command line was parsed.
void NameEnvironment(CLI::App& app);

struct Variables {
  // A command line as the parser takes it, without the program's name: throws as CLI11 does.
  std::function<void(CLI::App& root, const std::vector<std::string>& words)> parse;
  // Makes the commands. Called several times: each time other variables of the flags.
  std::function<void(CLI::App& root)> add;
  // What is wrong with a command line that the parser takes; "" nothing. May be empty.
  std::function<std::string(const std::vector<std::string>& words)> check;
};

// Words to add to those of a command line, from the variables that are set, not empty, and not overruled by a flag. One
// that the command does not take is left out, with a line in `warnings` that says which, its value, and why.
std::vector<std::string> WordsOfEnvironment(const std::vector<std::string>& words, const Variables& variables,
                                            std::vector<std::string>& warnings);

}  // namespace lockstep::cli
