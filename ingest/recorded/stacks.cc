#include "ingest/recorded/stacks.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace lockstep::recorded {
namespace {

using StackJson = nlohmann::json;

// Null for anything that is not there or of another type: the file may be damaged.
std::string TextIn(const StackJson& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : "";
}

bool FrameOf(const StackJson& json, hang::Frame& frame) {
  if (!json.is_array() || json.size() != 4 || !json[0].is_string() || !json[1].is_string() ||
      !json[2].is_number_integer() || !json[3].is_string())
    return false;
  const std::string marks = json[3].get<std::string>();
  frame = {.function = json[0].get<std::string>(),
           .file = json[1].get<std::string>(),
           .line = json[2].get<std::int32_t>(),
           .python = marks.find('p') != std::string::npos,
           .library = marks.find('l') != std::string::npos};
  return true;
}

}  // namespace

void TakeStacks(std::string_view text, hang::RankFacts& facts) {
  if (text.empty()) return;
  const StackJson json = StackJson::parse(text, nullptr, false);
  if (!json.is_object()) return;
  facts.no_stacks = TextIn(json, "why");
  facts.stacks_file = TextIn(json, "file");
  const auto threads = json.find("threads");
  if (threads == json.end() || !threads->is_array()) return;
  for (const StackJson& each : *threads) {
    if (!each.is_object()) continue;
    hang::Thread thread{
        .name = TextIn(each, "name"), .missing = TextIn(each, "missing"), .waits_for = TextIn(each, "waits_for")};
    if (const auto holder = each.find("held_by"); holder != each.end() && holder->is_number_integer())
      thread.held_by = holder->get<std::int64_t>();
    if (const auto number = each.find("thread"); number != each.end() && number->is_number_integer())
      thread.number = number->get<std::int64_t>();
    if (const auto main = each.find("main"); main != each.end() && main->is_boolean()) thread.main = main->get<bool>();
    if (const auto frames = each.find("frames"); frames != each.end() && frames->is_array())
      for (const StackJson& frame : *frames)
        if (hang::Frame read; FrameOf(frame, read)) thread.frames.push_back(std::move(read));
    facts.threads.push_back(std::move(thread));
  }
}

}  // namespace lockstep::recorded
