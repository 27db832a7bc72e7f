#pragma once
// A subcommand is one file: it declares its flags on a CLI::App and leaves the
// function to run in `chosen`. The list of all is cli/commands.def.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace lockstep::cli {

// Exit codes of every command but `run` (whose code is the application's).
enum ExitCode : int {
  kOk = 0,
  kFailed = 1,      // What was asked for could be done and was not: no space, no permission, too little memory.
  kUsage = 2,       // What was given cannot be used: a wrong flag, or no run and no trace that can be read.
  kIncomplete = 3,  // Input incomplete or suspicious; results were still written.
  kRegression = 4,  // `diff`: it is slower than it may be.
  kHang = 4,        // `hang`: something hangs.
  kBlocked = 5,
};

// The exit code of a command that ends with an error of this kind.
ExitCode ExitCodeOf(ErrorCode code);

// The action of a command: returns its exit code, or the error with which it ends, which main.cc prints.
using Chosen = std::function<Result<int>()>;

#define LS_COMMAND(name) void Add##name(CLI::App& root, Chosen& chosen);
#include "cli/commands.def"
#undef LS_COMMAND

// `lockstep run [options] [--] PROGRAM ...`, and `tune`: keeps PROGRAM and its arguments (program.h) and returns how
// many of argc are Lockstep's own. The others must not reach the parser, because the program's options are not ours.
int SplitProgram(CLI::App& root, int argc, char** argv);

// What is wrong with a command line of `lockstep run` that the parser accepts, given without the program; "" if
// nothing. Used for variables only: a wrong flag ends the command.
std::string TroubleOfRun(const std::vector<std::string>& words);

// "error: what" / "  where" / "  try: hint" on stderr. Returns the exit code for the error.
int PrintError(const Error& error);

// Validators of numbers. CLI11's own ones print the largest double, 309 digits, in their message.
CLI::Validator AboveZero();
CLI::Validator NotNegative();

// "110:310" -> 110 and 309: the end is not included, as in `lockstep run --steps`. Either end may be left out
// (-1: no bound); "" is neither. kUsage for anything else.
struct StepRange {
  std::int64_t first = -1, last = -1;
};
Result<StepRange> ParseSteps(std::string_view text);

// "0-3,7" -> 0, 1, 2, 3, 7 (core/rank_list.h); kUsage, naming the flag, for anything else.
Result<std::vector<std::int32_t>> ParseRanks(std::string_view text, const std::string& flag);

// "3 records were dropped (ranks 0, 4 and 2 more)": a loss that these ranks share; without ranks: of the run as a
// whole.
std::string CountOnRanks(std::uint64_t count, std::string_view sentence, const std::vector<std::int32_t>& ranks);

// Whether the directory holds anything of a run, complete or not.
bool HoldsRun(const std::string& path);

// kIo if this user may not read what is there.
Status MayBeRead(const std::string& path);

// RUN argument -> directory: "" or "latest" means lockstep.out/latest under the current directory. kNotFound contains
// what was looked for and what to do: there is nothing, or something that is no run.
Result<std::string> ResolveRun(const std::string& run);

}  // namespace lockstep::cli
