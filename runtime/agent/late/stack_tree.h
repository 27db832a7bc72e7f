#pragma once
// Stacks as they go to the spool: a tree of frames in which each stack is the number of its innermost frame, so that a
// function's name is written once however many samples it is in.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/agent/spool/spool_writer.h"
#include "runtime/agent/stacks/stack_reader.h"

namespace lockstep::agent {

class StackTree {
 public:
  // The number of this stack (outermost frame first); 0: it has no frames.
  std::uint32_t Add(std::span<const StackFrame> frames);

  // The lines of frames that were added since the last call, in pieces that fit a block of the spool, with how many
  // frames each holds.
  struct Lines {
    std::string text;
    std::uint64_t frames = 0;
  };
  std::vector<Lines> TakeLines();
  // Writes these. `unwritten` is told how many frames are not in the spool.
  void Write(SpoolWriter& spool, SpoolReserve reserve, const std::function<void(std::uint64_t)>& unwritten);

 private:
  // Parent, and what distinguishes its callees.
  std::map<std::pair<std::uint32_t, std::string>, std::uint32_t> numbers_;
  std::vector<Lines> lines_;
};

}  // namespace lockstep::agent
