#pragma once
// The program that a command starts: `lockstep run [options] [--] PROGRAM ...`, `lockstep tune ...`.

#include <string>
#include <vector>

namespace lockstep::cli {

// The words after Lockstep's own options, set before the parser runs (SplitProgram in command.h).
std::vector<std::string>& Program();

}  // namespace lockstep::cli
