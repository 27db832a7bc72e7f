#pragma once
// How --help is laid out: for the terminal's width, with a usage line that can be copied.

#include <CLI/CLI.hpp>
#include <string>

namespace lockstep::cli {

// "lockstep import kineto".
std::string PathOf(const CLI::App& app);

// "lockstep diff [OPTIONS] BASE [NEW]"; of `run` with what follows its options.
std::string UsageOf(const CLI::App& app);

// For `app` and the subcommands that are added to it afterwards.
void UseHelpFormat(CLI::App& app);

}  // namespace lockstep::cli
