#include "ingest/ras/numbering.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace lockstep::ras {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// "node9" is before "node10".
bool HostBefore(std::string_view a, std::string_view b) {
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (!IsDigit(a[i]) || !IsDigit(b[j])) {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i, ++j;
      continue;
    }
    const auto take = [](std::string_view text, std::size_t& at) {
      while (at < text.size() && text[at] == '0') ++at;
      const std::size_t begin = at;
      while (at < text.size() && IsDigit(text[at])) ++at;
      return text.substr(begin, at - begin);
    };
    const std::string_view x = take(a, i), y = take(b, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  if ((i == a.size()) != (j == b.size())) return i == a.size();
  return a < b;  // "node1" and "node01".
}

bool Before(const Process& a, const Process& b) {
  if (a.host != b.host) return HostBefore(a.host, b.host);
  if (a.cuda != b.cuda) return a.cuda < b.cuda;  // The local rank, unless each process sees one GPU only.
  return a.gpu != b.gpu ? a.gpu < b.gpu : a.pid < b.pid;
}

// Every rank is there with a process of its own.
bool TellsAll(const Communicator& communicator) {
  std::set<Process> seen;
  for (const CommRank& rank : communicator.ranks)
    if (!rank.process.known() || !seen.insert(rank.process).second) return false;
  return static_cast<std::int64_t>(communicator.ranks.size()) == communicator.size;
}

// The communicator that numbers the job's ranks: every process that anything names is in it, or it has as many ranks as
// the job has GPUs.
std::optional<std::size_t> WorldOf(const Answer& answer, const std::set<Process>& processes) {
  for (std::size_t c = 0; c < answer.communicators.size(); ++c) {
    const Communicator& communicator = answer.communicators[c];
    if (answer.gpus > 0 && communicator.size == answer.gpus) return c;
    if (!communicator.counts_are_whole || processes.empty()) continue;  // A text names few.
    std::set<Process> here;
    std::size_t told = 0;
    for (const CommRank& rank : communicator.ranks)
      if (rank.process.known()) here.insert(rank.process), ++told;
    if (here.size() == told && here.size() == processes.size()) return c;
  }
  return std::nullopt;
}

}  // namespace

Numbering NumberingOf(const Answer& answer) {
  const std::vector<Communicator>& communicators = answer.communicators;
  Numbering numbering;
  numbering.ranks.resize(communicators.size());
  std::set<Process> processes;
  bool all_told = true;
  for (const Communicator& communicator : communicators) {
    all_told &= TellsAll(communicator);
    for (const CommRank& rank : communicator.ranks)
      if (rank.process.known()) processes.insert(rank.process);
  }
  const std::optional<std::size_t> world = WorldOf(answer, processes);
  std::map<Process, std::int32_t> of_process;
  if (world) {
    std::set<Process> twice;
    for (const CommRank& rank : communicators[*world].ranks)
      if (rank.process.known() && !of_process.emplace(rank.process, rank.rank).second) twice.insert(rank.process);
    for (const Process& process : twice) of_process.erase(process);
  } else if (all_told) {
    numbering.own = true;
    std::vector<Process> sorted(processes.begin(), processes.end());
    std::sort(sorted.begin(), sorted.end(), Before);
    for (const Process& process : sorted) of_process.emplace(process, static_cast<std::int32_t>(of_process.size()));
  }
  for (std::size_t c = 0; c < communicators.size(); ++c) {
    std::vector<std::int32_t> ranks;
    std::set<std::int32_t> used;
    for (const CommRank& rank : communicators[c].ranks) {
      const auto at = of_process.find(rank.process);
      const std::int32_t number = world && c == *world ? rank.rank : at == of_process.end() ? -1 : at->second;
      if (number < 0 || !used.insert(number).second) break;
      ranks.push_back(number);
    }
    if (ranks.size() == communicators[c].ranks.size()) numbering.ranks[c] = std::move(ranks);
  }
  return numbering;
}

}  // namespace lockstep::ras
