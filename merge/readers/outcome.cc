#include "merge/readers/outcome.h"

#include <algorithm>
#include <charconv>
#include <csignal>
#include <limits>
#include <set>
#include <string_view>

#include "ingest/rank_files/host_names.h"
#include "merge/rules/match.h"

namespace lockstep::merge {
namespace {

bool Terminated(std::int32_t code) { return code == -SIGTERM || code == rules::kShellSignalCode + SIGTERM; }

std::int32_t ExitOf(const schema::RankTables& head) {
  const std::int64_t signal = ingest::MetaNumber(head, "exit_signal", 0);
  if (signal > 0 && signal < rules::kExitCodes) return static_cast<std::int32_t>(-signal);
  const std::int64_t code = ingest::MetaNumber(head, "exit_code", kExitUnknown);
  if (code >= 0 && code < rules::kExitCodes) return static_cast<std::int32_t>(code);
  for (std::size_t i = 0; i < head.processes.rows(); ++i) {
    if (head.processes.world_rank[i] < 0) continue;
    if (head.processes.ended[i] == schema::ProcessEnd::kExit) return head.processes.end_code[i];
    if (head.processes.ended[i] == schema::ProcessEnd::kSignal) return -head.processes.end_code[i];
  }
  return kExitUnknown;
}

// A host that dies takes all of its ranks along, and the last sign of one may be as late as those of other hosts'
// ranks.
void EndWithTheirHosts(const std::vector<RunRank>& ranks, std::vector<RankOutcome>& outcomes) {
  const auto unknown_early = [&](std::size_t r) {
    return outcomes[r].ended_early && outcomes[r].exit_code == kExitUnknown;
  };
  std::vector<const schema::RankTables*> heads;
  for (const RunRank& rank : ranks) heads.push_back(&rank.head);
  const ingest::HostNames hosts(heads);
  std::set<std::string_view> dead;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (unknown_early(r)) dead.insert(hosts.Of(ranks[r].head));
  // A rank that says how it ended shows that its host did not die.
  for (std::size_t r = 0; r < ranks.size(); ++r)
    if (outcomes[r].exit_code != kExitUnknown) dead.erase(hosts.Of(ranks[r].head));
  dead.erase("");
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    if (outcomes[r].ended_early || !dead.contains(hosts.Of(ranks[r].head))) continue;
    outcomes[r].ended_early = true;
    outcomes[r].why = "its records end with those of its host's other ranks";
  }
}

}  // namespace

std::vector<RankOutcome> FindOutcomes(const std::vector<RunRank>& ranks, const std::vector<std::int64_t>& first_ns,
                                      const std::vector<std::int64_t>& last_ns) {
  std::vector<RankOutcome> outcomes(ranks.size());
  if (ranks.empty()) return outcomes;
  const std::int64_t last = *std::max_element(last_ns.begin(), last_ns.end());
  const std::int64_t first = *std::min_element(first_ns.begin(), first_ns.end());
  // A smaller difference is only that between one rank's last record and another's.
  const std::int64_t slack =
      std::clamp((last - first) / rules::kEndedEarlyOneIn, rules::kEndedEarlyLeastNs, rules::kEndedEarlyMostNs);
  const auto before_others = [&](std::size_t r) {
    return "its records end " + std::to_string((last - last_ns[r]) / 1'000'000) + " ms before the others'";
  };
  std::vector<bool> fails(ranks.size());
  std::size_t failed = 0, fine = 0, terminated = 0;
  std::int64_t first_failed = last, last_fine = std::numeric_limits<std::int64_t>::min();  // Their ends.
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const std::int32_t code = outcomes[r].exit_code = ExitOf(ranks[r].head);
    // The launcher ends the others for one that leaves between MPI_Init and MPI_Finalize, whatever its code is.
    const bool left = code == 0 && ingest::MetaNumber(ranks[r].head, "inside_mpi", 0) != 0;
    fails[r] = left || (code != kExitUnknown && code != 0 && !Terminated(code));
    failed += fails[r];
    fine += code == 0 && !left;
    terminated += Terminated(code);
    if (fails[r])
      first_failed = std::min(first_failed, last_ns[r]);
    else
      last_fine = std::max(last_fine, last_ns[r]);
  }
  if (failed > 0 && fine == ranks.size() - failed && last_fine < first_failed - slack) {
    // The others had left when it failed.
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (fails[r]) continue;
      outcomes[r].ended_early = true;
      outcomes[r].why = before_others(r);
    }
  } else if (failed > 0 && failed < ranks.size()) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!fails[r]) continue;
      const std::int32_t code = outcomes[r].exit_code;
      outcomes[r].ended_early = true;
      outcomes[r].why = code < 0    ? "signal " + std::to_string(-code)
                        : code == 0 ? "exit code 0 without MPI_Finalize"
                                    : "exit code " + std::to_string(code);
    }
  } else if (failed == 0 && fine + terminated > 0 && fine < ranks.size()) {
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::int32_t code = outcomes[r].exit_code;
      // Where no rank finished, the launcher ended those that it could: because of the ones of which nothing is known.
      if (code == 0 || (fine == 0 && code != kExitUnknown) || last - last_ns[r] <= slack) continue;
      outcomes[r].ended_early = true;
      outcomes[r].why = before_others(r);
    }
    EndWithTheirHosts(ranks, outcomes);
  }
  return outcomes;
}

}  // namespace lockstep::merge
