// Whatever dumps hold: no finding of a sanitizer, no hang, and an answer that names ranks of the job only. The input is
// the number of dumps and the length of each but the last, then the dumps.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hang/judge.h"
#include "hang/text.h"
#include "ingest/flight_recorder/combine.h"
#include "ingest/flight_recorder/dump.h"

namespace {

using namespace lockstep;

void MustHold(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "FINDING: %s\n", what);
  std::abort();
}

std::vector<flight_recorder::RankDump> DumpsIn(std::string_view input) {
  std::vector<flight_recorder::RankDump> dumps;
  const std::size_t count = 1 + static_cast<unsigned char>(input[0]) % 4;
  input.remove_prefix(1);
  for (std::size_t i = 0; i < count && !input.empty(); ++i) {
    std::size_t bytes = input.size();
    if (i + 1 < count && input.size() >= 2) {
      bytes = static_cast<unsigned char>(input[0]) + 256u * static_cast<unsigned char>(input[1]);
      input.remove_prefix(2);
    }
    const std::string_view text = input.substr(0, bytes);
    input.remove_prefix(text.size());
    Result<flight_recorder::Dump> dump = flight_recorder::ReadDump(text);
    if (!dump.ok()) {
      MustHold(!dump.error().what.empty() && !dump.error().hint.empty(), "an error without words");
      continue;
    }
    dumps.push_back({static_cast<std::int32_t>(i), 0, std::move(dump).value()});
  }
  return dumps;
}

void RanksAreOfTheJob(const std::vector<std::int32_t>& ranks, const std::set<std::int32_t>& job) {
  MustHold(std::is_sorted(ranks.begin(), ranks.end()), "ranks out of order");
  MustHold(std::adjacent_find(ranks.begin(), ranks.end()) == ranks.end(), "a rank twice");
  for (const std::int32_t rank : ranks) MustHold(job.contains(rank), "a rank that the job does not have");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::vector<flight_recorder::RankDump> dumps =
      DumpsIn(std::string_view(reinterpret_cast<const char*>(data), size));
  std::vector<std::string> notes;
  const hang::Progress progress = flight_recorder::Combine(dumps, notes);
  std::set<std::int32_t> job;
  std::size_t members = 0;
  for (const hang::RankFacts& facts : progress.ranks) job.insert(facts.rank);
  for (const hang::Group& group : progress.groups) {
    members += group.members.size();
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      job.insert(group.members[i].rank);
      MustHold(i == 0 || group.members[i - 1].rank < group.members[i].rank, "members out of order");
    }
  }
  const hang::Judgement judgement = hang::Judge(progress, {});
  for (const hang::Verdict& verdict : judgement.verdicts) {
    MustHold(verdict.group < progress.groups.size(), "a group that is not there");
    MustHold(!verdict.waiting.empty(), "a wait without a rank");
    RanksAreOfTheJob(verdict.culprits, job);
    RanksAreOfTheJob(verdict.candidates, job);
    RanksAreOfTheJob(verdict.waiting, job);
  }
  if (members > 10'000) return 0;
  for (const bool all : {false, true}) {
    const std::string text = hang::TextOf(progress, judgement, all);
    for (const char c : text) MustHold(c == '\n' || static_cast<unsigned char>(c) >= 32, "a control character");
  }
  const auto json = nlohmann::json::parse(hang::JsonOf(progress, judgement));
  MustHold(json["verdicts"].size() == judgement.verdicts.size(), "a verdict less in the JSON");
  return 0;
}
