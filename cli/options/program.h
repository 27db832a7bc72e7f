#pragma once
// The program that a command starts: `lockstep run [options] [--] PROGRAM ...`, `lockstep tune ...`.

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// Whether the words behind a command's options are a program and its arguments.
constexpr bool StartsProgram(std::string_view command) { return command == "run" || command == "tune"; }

// The words after Lockstep's own options, set before the parser runs (SplitProgram in command.h).
std::vector<std::string>& Program();

}  // namespace lockstep::cli
