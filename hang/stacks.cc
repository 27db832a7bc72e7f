#include "hang/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/core/format.h"
#include "core/printed.h"

namespace lockstep::hang {
namespace {

constexpr std::size_t kMostBriefs = 3, kBriefFrames = 5;

std::string LineOfFile(const Frame& frame) {
  return Printed(frame.file) + (frame.line > 0 ? fmt::format(":{}", frame.line) : "");
}

// "MPI_Allreduce <- reduce <- main, train.cc:88": the place of the job's own code, once.
std::string BriefText(const Thread& thread) {
  const std::vector<Frame> frames = FramesThatMatter(thread, kBriefFrames);
  // What it is asleep in says little where it is known what was called.
  const std::size_t first = frames.size() > 2 && frames[0].library && frames[1].library && !frames[2].library ? 1 : 0;
  std::string text;
  bool placed = false;
  for (std::size_t i = first; i < frames.size(); ++i) {
    text += (text.empty() ? "" : " <- ") + Printed(frames[i].function);
    if (placed || frames[i].library || frames[i].line <= 0) continue;
    text += " (" + LineOfFile(frames[i]) + ")";
    placed = true;
  }
  return text;
}

}  // namespace

std::string FrameText(const Frame& frame) {
  return Printed(frame.function) + (frame.file.empty() ? "" : ", " + LineOfFile(frame));
}

const Thread* MainThread(const RankFacts& facts) {
  const auto main =
      std::find_if(facts.threads.begin(), facts.threads.end(), [](const Thread& each) { return each.main; });
  if (main != facts.threads.end()) return main->frames.empty() ? nullptr : &*main;
  return facts.threads.size() == 1 && !facts.threads[0].frames.empty() ? facts.threads.data() : nullptr;
}

std::vector<Frame> FramesThatMatter(const Thread& thread, std::size_t most) {
  std::vector<Frame> frames;
  const std::vector<Frame>& all = thread.frames;
  const auto own = std::find_if(all.begin(), all.end(), [](const Frame& frame) { return !frame.library; });
  if (own == all.end()) return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(most, all.size()))};
  if (own != all.begin()) frames.push_back(all.front());
  if (own - all.begin() > 1) frames.push_back(*(own - 1));
  for (auto frame = own; frame != all.end() && frames.size() < most; ++frame)
    if (!frame->library) frames.push_back(*frame);
  return frames;
}

std::string PlaceOf(const RankFacts& facts) {
  const Thread* thread = MainThread(facts);
  if (thread == nullptr) return "";
  const auto find = [&](auto&& wanted) {
    const auto at = std::find_if(thread->frames.begin(), thread->frames.end(), wanted);
    return at == thread->frames.end() ? std::string() : FrameText(*at);
  };
  const std::string own = find([](const Frame& frame) { return !frame.library && frame.line > 0; });
  return own.empty() ? find([](const Frame& frame) { return frame.python; }) : own;
}

std::vector<std::string> BriefStacks(const Progress& progress, const std::vector<std::int32_t>& ranks, bool others) {
  std::map<std::string, std::vector<std::int32_t>> alike;
  for (const std::int32_t rank : ranks)
    if (const RankFacts* facts = FactsOf(progress, rank); facts != nullptr)
      if (const Thread* thread = MainThread(*facts); thread != nullptr) alike[BriefText(*thread)].push_back(rank);
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> stacks(alike.begin(), alike.end());
  std::stable_sort(stacks.begin(), stacks.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < std::min(kMostBriefs, stacks.size()); ++i) {
    const std::size_t count = stacks[i].second.size();
    const std::string who =
        others && count > 1 ? fmt::format("{} others", count) : analysis::RankNames(stacks[i].second);
    lines.push_back(who + ": " + stacks[i].first);
  }
  if (stacks.size() > kMostBriefs)
    lines.push_back(
        fmt::format("and {} more", analysis::Plural(static_cast<std::int64_t>(stacks.size() - kMostBriefs), "stack")));
  return lines;
}

std::vector<std::string> HolderOf(const RankFacts& facts, const Thread& thread, std::size_t most) {
  if (thread.waits_for.empty()) return {};
  const std::string what = fmt::format("rank {} waits for {}", facts.rank, Printed(thread.waits_for));
  const auto holder = std::find_if(facts.threads.begin(), facts.threads.end(), [&](const Thread& each) {
    return thread.held_by != 0 && each.number == thread.held_by;
  });
  if (holder == facts.threads.end())
    return {what + (thread.held_by == 0 ? "; who has it is not known"
                                        : fmt::format(", which its thread {} has", thread.held_by))};
  std::vector<std::string> lines = {
      fmt::format("{}, which its thread {} ({}) has:", what, holder->number, Printed(holder->name))};
  for (const Frame& frame : FramesThatMatter(*holder, most)) lines.push_back("  " + FrameText(frame));
  return lines;
}

}  // namespace lockstep::hang
