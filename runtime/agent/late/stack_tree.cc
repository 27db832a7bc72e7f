#include "runtime/agent/late/stack_tree.h"

#include <algorithm>

#include "core/printed.h"

namespace lockstep::agent {
namespace {

constexpr std::size_t kMostTreeDepth = 256;  // Of a stack: of a deep recursion its outer half and its inner half.
constexpr std::size_t kMostNumbers = 65536;  // Deeper frames of further stacks are left out.
constexpr std::size_t kMostNameBytes = 512;
constexpr std::size_t kMostLinesBytes = 32 * 1024;

// Of names that come from the program, and must not end a field.
std::string Field(const std::string& text) { return std::string(BeginOf(Printed(text), kMostNameBytes)); }

}  // namespace

std::uint32_t StackTree::Add(std::span<const StackFrame> frames) {
  std::uint32_t at = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    if (frames.size() > kMostTreeDepth && i == kMostTreeDepth / 2) i = frames.size() - kMostTreeDepth / 2;
    const StackFrame& frame = frames[i];
    std::string line = std::to_string(std::max(frame.line, 0)) + (frame.python ? "\t1" : "\t0") +
                       (frame.library ? "\t1\t" : "\t0\t") + Field(frame.file) + "\t" + Field(frame.function) + "\n";
    const auto known = numbers_.find({at, line});
    if (known != numbers_.end()) {
      at = known->second;
      continue;
    }
    if (numbers_.size() >= kMostNumbers) return at;
    const auto number = static_cast<std::uint32_t>(numbers_.size() + 1);
    if (lines_.empty() || lines_.back().text.size() > kMostLinesBytes) lines_.emplace_back();
    lines_.back().text += std::to_string(number) + "\t" + std::to_string(at) + "\t" + line;
    lines_.back().frames += 1;
    numbers_.emplace(std::pair(at, std::move(line)), number);
    at = number;
  }
  return at;
}

std::vector<StackTree::Lines> StackTree::TakeLines() { return std::exchange(lines_, {}); }

void StackTree::Write(SpoolWriter& spool, SpoolReserve reserve, const std::function<void(std::uint64_t)>& unwritten) {
  for (const Lines& lines : TakeLines())
    if (!spool.Append({SpoolKind::kStacks}, lines.text, reserve)) unwritten(lines.frames);
}

}  // namespace lockstep::agent
