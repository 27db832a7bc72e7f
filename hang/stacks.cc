#include "hang/stacks.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/printed.h"

namespace lockstep::hang {
namespace {

using analysis::Clause;
using analysis::Clauses;
using analysis::Fact;
using analysis::If;
using analysis::Index;
using analysis::Num;
using analysis::Ranks;
using analysis::Say;
using analysis::Word;

constexpr std::size_t kMostBriefs = 3, kBriefFrames = 5;

// What is said of a stack that several ranks have alike: functions, and the place of the job's own code, once.
std::vector<Frame> BriefFrames(const Thread& thread) {
  const std::vector<Frame> frames = FramesThatMatter(thread, kBriefFrames);
  // What it is asleep in says little where it is known what was called.
  const std::size_t first = frames.size() > 2 && frames[0].library && frames[1].library && !frames[2].library ? 1 : 0;
  std::vector<Frame> brief;
  bool placed = false;
  for (std::size_t i = first; i < frames.size(); ++i) {
    Frame& frame = brief.emplace_back(Frame{.function = frames[i].function});
    if (placed || frames[i].library || frames[i].line <= 0) continue;
    frame.file = frames[i].file;
    frame.line = frames[i].line;
    placed = true;
  }
  return brief;
}

Fact FileOf(const Frame& frame) { return {"file", Printed(frame.file)}; }
Fact LineOf(const Frame& frame) { return {"line", If(frame.line > 0, Index{frame.line})}; }

// "MPI_Allreduce <- reduce <- main (train.cc:88)".
Clauses SayBrief(const std::vector<Frame>& frames) {
  Clauses callee;
  for (const Frame& frame : frames)
    callee = {{Say(Word::kHangCaller,
                   {{"callee", callee}, {"function", Printed(frame.function)}, FileOf(frame), LineOf(frame)})}};
  return callee;
}

}  // namespace

Clause SayFrame(const Frame& frame) {
  return Say(Word::kHangFrame, {{"function", Printed(frame.function)}, FileOf(frame), LineOf(frame)});
}

Clause SayFrameOfStack(const Frame& frame) {
  return Say(Word::kHangFrameOfStack, {{"frame", Clauses{{SayFrame(frame)}}}});
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

const Frame* PlaceOf(const RankFacts& facts) {
  const Thread* thread = MainThread(facts);
  if (thread == nullptr) return nullptr;
  const auto find = [&](auto&& wanted) -> const Frame* {
    const auto at = std::find_if(thread->frames.begin(), thread->frames.end(), wanted);
    return at == thread->frames.end() ? nullptr : &*at;
  };
  const Frame* own = find([](const Frame& frame) { return !frame.library && frame.line > 0; });
  return own != nullptr ? own : find([](const Frame& frame) { return frame.python; });
}

std::vector<Clause> BriefStacks(const Progress& progress, const std::vector<std::int32_t>& ranks, bool others) {
  std::map<std::vector<Frame>, std::vector<std::int32_t>> alike;
  for (const std::int32_t rank : ranks)
    if (const RankFacts* facts = FactsOf(progress, rank); facts != nullptr)
      if (const Thread* thread = MainThread(*facts); thread != nullptr) alike[BriefFrames(*thread)].push_back(rank);
  std::vector<std::pair<std::vector<Frame>, std::vector<std::int32_t>>> stacks(alike.begin(), alike.end());
  std::stable_sort(stacks.begin(), stacks.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::vector<Clause> lines;
  for (std::size_t i = 0; i < std::min(kMostBriefs, stacks.size()); ++i) {
    const auto& [frames, stand] = stacks[i];
    const Fact stack{"stack", SayBrief(frames)};
    lines.push_back(others && stand.size() > 1
                        ? Say(Word::kHangOthersStand, {{"others", Num{static_cast<std::int64_t>(stand.size())}}, stack})
                        : Say(Word::kHangRanksStand, {{"ranks", Ranks{stand}}, stack}));
  }
  if (stacks.size() > kMostBriefs)
    lines.push_back(
        Say(Word::kHangMoreStacks, {{"more", Num{static_cast<std::int64_t>(stacks.size() - kMostBriefs)}}}));
  return lines;
}

std::vector<Clause> HolderOf(const RankFacts& facts, const Thread& thread, std::size_t most) {
  if (thread.waits_for.empty()) return {};
  const auto holder = std::find_if(facts.threads.begin(), facts.threads.end(), [&](const Thread& each) {
    return thread.held_by != 0 && each.number == thread.held_by;
  });
  const bool there = holder != facts.threads.end();
  std::vector<Clause> lines = {Say(Word::kHangLock, {{"rank", Index{facts.rank}},
                                                     {"lock", Printed(thread.waits_for)},
                                                     {"thread", If(thread.held_by != 0, Index{thread.held_by})},
                                                     {"name", there ? Printed(holder->name) : std::string()},
                                                     {"holder_unknown", thread.held_by == 0},
                                                     {"stack_known", there}})};
  if (!there) return lines;
  for (const Frame& frame : FramesThatMatter(*holder, most)) lines.push_back(SayFrameOfStack(frame));
  return lines;
}

}  // namespace lockstep::hang
