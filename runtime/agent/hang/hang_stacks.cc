#include "runtime/agent/hang/hang_stacks.h"

#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/own_file.h"
#include "core/printed.h"
#include "core/rank_name.h"
#include "runtime/agent/rings/segment_entries.h"

namespace lockstep::agent {
namespace {

using Json = nlohmann::ordered_json;

// The others' agents look at about the same time, and names take a moment.
constexpr std::int64_t kFreshNs = 1'000'000'000, kLongestFreshNs = 10'000'000'000;
constexpr std::size_t kMostThreads = 64, kMostFrames = 64, kMostProcesses = 16;

std::string OneLine(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string StacksFile(std::int32_t slot) { return "stacks/" + RankName(slot) + ".txt"; }

std::string StacksJson(const StackSample& sample, const std::string& file) {
  Json threads = Json::array();
  for (const ThreadStack& thread : sample.threads) {
    if (threads.size() == kMostThreads) break;
    Json frames = Json::array();
    for (auto frame = thread.frames.rbegin(); frame != thread.frames.rend() && frames.size() < kMostFrames; ++frame)
      frames.push_back({frame->function, frame->file, frame->line,
                        std::string(frame->python ? "p" : "") + (frame->library ? "l" : "")});
    threads.push_back({{"thread", thread.thread},
                       {"name", thread.name},
                       {"main", thread.main},
                       {"missing", thread.why_short},
                       {"waits_for", thread.waits_for},
                       {"held_by", thread.held_by},
                       {"frames", std::move(frames)}});
  }
  return OneLine({{"at_ns", sample.at_ns}, {"file", file}, {"threads", std::move(threads)}});
}

std::string StacksText(const StackSample& sample) {
  std::string text = "process " + std::to_string(sample.process) + "\n";
  for (const ThreadStack& thread : sample.threads) {
    text += "\nthread " + std::to_string(thread.thread) + " " + Printed(thread.name) + (thread.main ? " (main)" : "") +
            "\n";
    for (auto frame = thread.frames.rbegin(); frame != thread.frames.rend(); ++frame) {
      text += "    " + Printed(frame->function);
      if (!frame->file.empty()) text += ", " + Printed(frame->file);
      if (frame->line != 0) text += ":" + std::to_string(frame->line);
      text += "\n";
    }
    if (!thread.waits_for.empty())
      text += "    (waits for " + thread.waits_for +
              (thread.held_by != 0 ? ", which thread " + std::to_string(thread.held_by) + " has" : "") + ")\n";
    if (!thread.why_short.empty()) text += "    (" + Printed(thread.why_short) + ")\n";
  }
  return text;
}

void HangStacks::Take(const SegmentView& segment, std::int64_t now_ns) {
  if (taken()) return;
  taken_ns_ = now_ns;
  if (!reader_) reader_.emplace(setup_.reader);
  std::size_t count = 0;
  for (const ProcessEntry& entry : UsedProcesses(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive || entry.pid <= 0) continue;
    if (count++ == kMostProcesses) break;
    if (reader_->Take(static_cast<pid_t>(entry.pid), StackReader::Which::kAllThreads) == 0)
      Keep(entry.pid, OneLine({{"why", reader_->why()}}));
  }
}

bool HangStacks::fresh(std::int64_t now_ns) const {
  if (!taken()) return false;
  const std::int64_t age_ns = now_ns - taken_ns_;
  return age_ns < kFreshNs || (reader_ && reader_->pending() != 0 && age_ns < kLongestFreshNs);
}

void HangStacks::Keep(std::int64_t process, const std::string& value) {
  setup_.keep("stack." + std::to_string(process) + "\t" + value + "\n");
  if (std::find(kept_.begin(), kept_.end(), process) == kept_.end()) kept_.push_back(process);
}

void HangStacks::Poll() {
  if (!reader_) return;
  bool any = false;
  for (const StackSample& sample : reader_->Ready()) {
    if (!taken()) continue;  // It has moved since.
    Keep(sample.process, StacksJson(sample, StacksFile(setup_.slot)));
    texts_[sample.process] = StacksText(sample);
    any = true;
  }
  if (!any) return;
  const std::string path = setup_.run_dir + "/" + StacksFile(setup_.slot);
  ::mkdir(path.substr(0, path.rfind('/')).c_str(), 0755);
  std::string text;
  for (const auto& [process, each] : texts_) text += (text.empty() ? "" : "\n") + each;
  ReplaceFile(path, text, 0644);
}

void HangStacks::Forget() {
  for (const std::int64_t process : std::exchange(kept_, {})) setup_.keep("stack." + std::to_string(process) + "\t\n");
  taken_ns_ = 0;
  texts_.clear();
}

}  // namespace lockstep::agent
