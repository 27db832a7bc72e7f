#pragma once
// What an agent and its `lockstep-stacks` say to each other. A file in memory that both have holds the request, and
// then the answer in its place; a socket says how long each is (SizeLine). The program is the agent's own, of the same
// build.
//
// Request: StackRequest, the lines of /proc/PID/maps that matter, and for each thread ThreadRequest and its stack.
// Answer: lines. "T\tTHREAD\tWHAT IS MISSING" and behind it the thread's frames, innermost first:
// "F\tMODULE\tFUNCTION\tSOURCE\tLINE\tMARK", mark "e" for a call of Python's loop, "s" for what is to be left out.

#include <cstdint>
#include <string>

#include "runtime/agent/stacks/thread_stop.h"

namespace lockstep::agent {

struct StackRequest {
  std::uint32_t process = 0, threads = 0;
  std::uint64_t maps_bytes = 0;
};

struct ThreadRequest {
  std::uint32_t thread = 0;
  std::uint32_t all_registers = 0;  // 0: those of the stack and of the place only.
  Registers registers;
  std::uint64_t stack_begin = 0, stack_bytes = 0;
};

inline std::string SizeLine(std::uint64_t bytes) { return std::to_string(bytes) + "\n"; }

// Where the program finds the file.
inline constexpr int kRequestFile = 3;

}  // namespace lockstep::agent
