#include <algorithm>
#include <nlohmann/json.hpp>

#include "hang/text.h"

namespace lockstep::hang {
namespace {

using Json = nlohmann::ordered_json;

Json Known(std::int64_t value) { return value == kNotKnown ? Json(nullptr) : Json(value); }
Json Known(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json CallJson(const Operation& call) {
  return {{"kind", Known(call.kind)},
          {"sequence", Known(call.sequence)},
          {"type", Known(call.type)},
          {"elements_in", Known(call.elements_in)},
          {"elements_out", Known(call.elements_out)},
          {"bytes", Known(call.bytes)},
          {"peer", call.peer < 0 ? Json(nullptr) : Json(call.peer)},
          {"site", Known(call.site)}};
}

Json GroupJson(const Group& group) {
  Json ranks = Json::array();
  for (const Member& member : group.members) ranks.push_back(member.rank);
  return {
      {"name", group.name}, {"label", Known(group.label)}, {"ranks", std::move(ranks)}, {"complete", group.complete}};
}

Json FrameJson(const Frame& frame) {
  return {{"function", frame.function},
          {"file", Known(frame.file)},
          {"line", frame.line > 0 ? Json(frame.line) : Json(nullptr)},
          {"python", frame.python},
          {"library", frame.library}};
}

// Every thread of who is named, the main thread of who waits.
Json StacksJson(const Progress& progress, const Verdict& verdict) {
  Json stacks = Json::array();
  const auto add = [&](std::int32_t rank, bool all) {
    const RankFacts* facts = FactsOf(progress, rank);
    if (facts == nullptr) return;
    for (const Thread& thread : facts->threads) {
      if (!all && !thread.main) continue;
      Json frames = Json::array();
      for (const Frame& frame : thread.frames) frames.push_back(FrameJson(frame));
      stacks.push_back({{"rank", rank},
                        {"thread", thread.number},
                        {"name", Known(thread.name)},
                        {"main", thread.main},
                        {"missing", Known(thread.missing)},
                        {"waits_for", Known(thread.waits_for)},
                        {"held_by", thread.held_by == 0 ? Json(nullptr) : Json(thread.held_by)},
                        {"frames", std::move(frames)}});
    }
  };
  for (const std::int32_t rank : verdict.culprits) add(rank, true);
  for (const std::int32_t rank : verdict.waiting)
    if (!std::binary_search(verdict.culprits.begin(), verdict.culprits.end(), rank)) add(rank, false);
  return stacks;
}

Json VerdictJson(const Progress& progress, const Verdict& verdict) {
  const Words words = WordsOf(progress, verdict, false);
  Json json{{"cause", NameOf(verdict.cause)},
            {"culprits", verdict.culprits},
            {"candidates", verdict.candidates},
            {"group", GroupJson(progress.groups[verdict.group])},
            {"message", verdict.message},
            {"call", CallJson(verdict.call)},
            {"waiting", verdict.waiting},
            {"waited_ns", Known(verdict.waited_ns)},
            {"last_call", verdict.last.kind.empty() ? Json(nullptr) : CallJson(verdict.last)},
            {"sides", Json::array()},
            {"circle", Json::array()},
            {"headline", words.headline},
            {"details", words.details},
            {"remedy", words.remedy},
            {"stacks", StacksJson(progress, verdict)}};
  for (const Side& side : verdict.sides)
    json["sides"].push_back({{"ranks", side.ranks}, {"call", CallJson(side.call)}});
  for (const Link& link : verdict.cycle)
    json["circle"].push_back({{"group", progress.groups[link.group].name},
                              {"call", CallJson(link.call)},
                              {"waiting", link.waiting},
                              {"missing", link.missing}});
  return json;
}

}  // namespace

std::string JsonOf(const Progress& progress, const Judgement& judgement) {
  Json json{
      {"schema", "lockstep.hang/1"},
      {"hangs", judgement.verdicts.empty() && !judgement.known ? Json(nullptr) : Json(!judgement.verdicts.empty())},
      {"ranks", progress.ranks.size()},
      {"waiting_ranks", judgement.waiting},
      {"no_dump", judgement.no_dump},
      {"verdicts", Json::array()},
      {"oldest_young_ns", Known(judgement.oldest_young_ns)},
      {"not_known", Json(nullptr)}};
  if (judgement.verdicts.empty() && !judgement.known) json["not_known"] = NoHangOf(progress, judgement, false).sentence;
  for (const Verdict& verdict : judgement.verdicts) json["verdicts"].push_back(VerdictJson(progress, verdict));
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::hang
