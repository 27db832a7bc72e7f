#pragma once
// What a command line that cannot be understood is answered with: what is wrong in it, where, and the line that was
// probably meant.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "core/result.h"

namespace lockstep::cli {

// `words`: the command line, without the program's name, that `root` has just refused with `error`.
Error MistakeIn(const CLI::App& root, const CLI::ParseError& error, const std::vector<std::string>& words);

// Prints help and version on standard output, a mistake on standard error. Returns the exit code.
int ShowParseError(const CLI::App& root, const CLI::ParseError& error, const std::vector<std::string>& words);

// For who gave no command: what to do next, on standard error. Returns the exit code.
int ShowNextSteps();

}  // namespace lockstep::cli
