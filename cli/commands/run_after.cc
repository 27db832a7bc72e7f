#include "cli/commands/run_after.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <vector>

#include "analysis/run/ranks_recorded.h"
#include "cli/commands/run_wait.h"
#include "cli/gather/command.h"
#include "core/byte_text.h"
#include "runtime/agent/inject/libraries.h"
#include "runtime/agent/rings/memory_limits.h"
#include "runtime/agent/rundir/places.h"
#include "runtime/agent/rundir/process_state.h"
#include "runtime/agent/rundir/say.h"
#include "runtime/agent/slot/convert.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// "1-3, 7"
std::string Ranges(const std::vector<std::int32_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

// Runs this program with other arguments; its standard output goes to `out_fd`. Returns -1 if it could not be started
// or died.
int RunSelf(const std::vector<std::string>& words, int out_fd) {
  const std::string self = agent::SelfPath();
  std::vector<char*> argv = {const_cast<char*>("lockstep")};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) return -1;
  if (pid == 0) {
    ::dup2(out_fd, STDOUT_FILENO);
    ::execv(self.c_str(), argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void ListFiles(const std::string& run_dir) {
  std::error_code error;
  std::uint64_t rank_bytes = 0, rank_files = 0;
  for (const auto& entry : fs::directory_iterator(run_dir + "/ranks", error)) {
    if (entry.path().extension() != ".h5") continue;
    rank_files += 1;
    rank_bytes += entry.file_size(error);
  }
  std::string line = run_dir + ": " + std::to_string(rank_files) +
                     (rank_files == 1 ? " rank file (" : " rank files (") + ByteText(static_cast<double>(rank_bytes)) +
                     ")";
  for (const char* name : {"timeline.h5", "analysis.json"}) {
    const std::uintmax_t bytes = fs::file_size(run_dir + "/" + name, error);
    if (!error) line += std::string(", ") + name + " (" + ByteText(static_cast<double>(bytes)) + ")";
  }
  agent::Say(line);
}

// Not by the rank's number on its host: the ranks before it there may run without Lockstep.
bool FirstOfThoseHere(const agent::RunResult& result) {
  for (std::int32_t slot = 0; slot < result.launch.rank; ++slot)
    if (LookAt(result.run_dir, slot) != SlotEnd::kUnclaimed) return false;
  return true;
}

// Somebody, the program perhaps, removed the run directory while the job ran.
bool Removed(const agent::RunResult& result) {
  std::error_code error;
  return result.traced && !fs::exists(result.run_dir + "/ranks", error) && !error;
}

// Where rank 0's agent was not told where the files of a host without a shared directory are, or there is no such
// agent, the first rank in that directory prints it.
void TellWhereFilesAre(const agent::RunResult& result) {
  const bool good = result.signal == 0 && result.exit_code == 0;
  if (!good || result.place_told || result.sent || Removed(result) || !FirstOfThoseHere(result)) return;
  const std::string host = agent::HostName();
  agent::Say("rank 0 has no file in " + result.run_dir + " on " + host +
             ". If it ran without Lockstep: lockstep analyze " + RunWord(result.run_dir) +
             ". If its host does not share this directory, RUN being rank 0's: lockstep gather " +
             PlaceWord(agent::NamesHost(host) ? host : "HOST", AbsoluteDir(result.run_dir)) +
             " -o RUN   then: lockstep analyze RUN");
}

// What other hosts' agents have sent, and what of it was not taken.
void TellWhatArrived(const agent::RunResult& result) {
  const agent::Arrived& arrived = result.arrived;
  if (!arrived.slots.empty())
    agent::Say("rank files of " + std::to_string(arrived.hosts.size()) +
               (arrived.hosts.size() == 1 ? " host, " : " hosts, ") + ByteText(static_cast<double>(arrived.bytes)) +
               ", arrived in " + result.run_dir);
  if (arrived.troubles.empty()) return;
  const std::size_t others = arrived.troubles.size() - 1;
  agent::Say("not taken: " + arrived.troubles[0] +
             (others == 0 ? "" : " (and files of " + std::to_string(others) + (others == 1 ? " other)" : " others)")));
}

std::string RankWords(const std::vector<std::int32_t>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + Ranges(ranks);
}

std::int64_t WaitMs(const agent::RunResult& result, const AfterOptions& options) {
  return result.inside_mpi ? std::min(options.wait_ms, agent::kInsideMpiWaitMs) : options.wait_ms;
}

// Ranks without files in rank 0's directory: how to bring them there.
void TellWhatIsMissing(const agent::RunResult& result, const AfterOptions& options, const Waited& waited) {
  const std::string limit = std::to_string(WaitMs(result, options) / 1000) + " s after rank 0" +
                            (result.inside_mpi ? ", which was not seen to call MPI_Finalize" : " (--after-wait)");
  if (!waited.running.empty())
    agent::Say(RankWords(waited.running) + (waited.running.size() == 1 ? " still runs " : " still run ") + limit +
               ", or exited without a status; what is recorded is in " + result.run_dir +
               ". When the job has ended: lockstep analyze " + RunWord(result.run_dir));
  std::vector<std::int32_t> missing;
  std::set_difference(waited.missing.begin(), waited.missing.end(), waited.running.begin(), waited.running.end(),
                      std::back_inserter(missing));
  if (missing.empty()) return;
  const std::string ranks = RankWords(missing);
  if (const std::string how = HowToGather(result.run_dir, result.places, result.launch.slots()); !how.empty()) {
    const std::string still =
        waited.connected ? "; programs there still run " + limit + ": call this once they have ended" : "";
    agent::Say("no files from " + ranks + " in " + result.run_dir + ", which other hosts do not share" + still + ". " +
               how);
    return;
  }
  const fs::path dir = AbsoluteDir(result.run_dir);
  const std::string name = dir.filename().string();
  const std::size_t dash = name.rfind('-');
  // Hosts without a shared file system made directories of their own, with the same last letters.
  const std::string there = (dir.parent_path() / (dash == std::string::npos ? name : "*" + name.substr(dash))).string();
  const std::string run = RunWord(result.run_dir);
  agent::Say("no files from " + ranks + " in " + result.run_dir + ". If their hosts do not share it (there it is " +
             there + "): lockstep gather HOST:DIR... -o " + run + "   then: lockstep analyze " + run);
}

// Whether another agent speaks for the run. Variables may describe another job: if all ranks are here, there is no
// other rank to wait for.
bool NotFirst(const agent::RunResult& result) {
  return result.launch.rank > 0 && !(result.ranks.AllHere() && LookAt(result.run_dir, 0) == SlotEnd::kUnclaimed);
}

// Why spools that agents have left should not be converted by this process either; "" if they may be, or there are
// none.
std::string NoRoomForSpools(const std::string& run_dir) {
  std::uint64_t largest = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_dir + "/ranks", error)) {
    if (entry.path().extension() != ".spool") continue;
    if (const std::uintmax_t bytes = entry.file_size(error); !error) largest = std::max<std::uint64_t>(largest, bytes);
  }
  return largest == 0 ? "" : agent::NoRoomToConvert(largest, 1);
}

void TellRemoved(const std::string& run_dir) {
  agent::Say(run_dir +
             " was removed while the job ran: nothing is left of the recording. Name a directory that the job "
             "leaves alone with --output");
}

}  // namespace

void TellFailure(const agent::RunResult& result, const AfterOptions& options) {
  if (options.quiet || NotFirst(result)) return;
  const std::string& dir = result.run_dir;
  if (Removed(result)) return TellRemoved(dir);
  if (const auto& slots = result.arrived.slots; !slots.empty()) {
    agent::Say("what " + std::string(slots.size() == 1 ? "rank " : "ranks ") + Ranges({slots.begin(), slots.end()}) +
               " recorded, " + ByteText(static_cast<double>(result.arrived.bytes)) + ", arrived in " + dir +
               " in time: lockstep analyze " + RunWord(dir));
    return;
  }
  // 128 + 2: as shells and Python programs that catch it end.
  const bool interrupted = result.signal == SIGINT || (result.signal == 0 && result.exit_code == 128 + SIGINT);
  const std::string how_it_ended = interrupted ? "the application was interrupted" : "the application failed";
  if (const std::string how = HowToGather(result.run_dir, result.places, result.launch.slots()); !how.empty()) {
    agent::Say(how_it_ended + "; what was recorded is in " + dir + " and on other hosts. " + how);
    return;
  }
  const bool one_node = result.launch.local_size >= result.launch.slots() || result.launch.slots() == 1;
  agent::Say(how_it_ended + "; what was recorded is in " + dir + ", to see it: lockstep analyze " + dir +
             (options.spools_apart && !one_node
                  ? " (first, on each other node: lockstep recover " + AbsoluteDir(dir) + ")"
                  : ""));
}

Waited WaitForOthers(const agent::RunResult& result, const AfterOptions& options, const agent::OtherHosts& others) {
  if (NotFirst(result) || Removed(result)) return {};
  // A single agent knows the result itself; on a full disk its claim may not contain it.
  if (result.launch.slots() == 1 || result.launch.rank > 0)
    return {.files = result.converted, .failed = !result.converted, .missing = {}};
  return WaitForSlots(result.run_dir, result.launch.slots(), WaitMs(result, options), others,
                      result.launch.local_size >= result.launch.slots());
}

void RunAfter(const agent::RunResult& result, const AfterOptions& options, const Waited& waited) {
  if (!result.traced) return;
  const std::vector<std::int32_t>& recorded = result.ranks.ranks;
  if (NotFirst(result)) {
    if (!options.quiet) TellWhereFilesAre(result);
    return;
  }
  const std::string& dir = result.run_dir;
  const bool good = result.signal == 0 && result.exit_code == 0;
  if (!good) return;  // TellFailure has said what there is to say.
  if (Removed(result)) {
    if (!options.quiet) TellRemoved(dir);
    return;
  }
  // Said below; the commands that this one starts need not say it again.
  agent::RemovePlaces(dir);
  const bool alone = result.launch.slots() == 1 || result.launch.rank > 0;
  if (!options.quiet) TellWhatArrived(result);
  if (result.mpi_without_launcher && !options.quiet)
    agent::Say("one MPI process ran, and no launcher; for several ranks: mpirun -np 4 lockstep run -- PROGRAM");
  if (!waited.missing.empty() && !options.quiet) TellWhatIsMissing(result, options, waited);
  const std::string no_room = NoRoomForSpools(dir);
  if (!no_room.empty() && options.after != After::kNone && !options.quiet)
    agent::Say("the run is not analysed here, as ranks' files are still to be written: " + no_room);
  bool verdict = false;
  // The launcher is to learn of this rank's end before the time that a verdict on a part of the job takes.
  const bool later = result.inside_mpi && !waited.missing.empty();
  if (options.after != After::kNone && !later && no_room.empty()) {
    int out_fd = STDERR_FILENO;
    if (!options.to.empty()) {
      out_fd = ::open(options.to.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
      if (out_fd < 0) {
        agent::Say(options.to + " (--after-to): " + std::strerror(errno) + ": using standard error");
        out_fd = STDERR_FILENO;
      }
    }
    std::vector<std::string> words = {options.after == After::kMerge ? "merge" : "analyze", dir};
    if (options.clock == "off" || options.clock == "wall") words.insert(words.end(), {"--clock", options.clock});
    if (options.after == After::kReport) {
      // Before the verdict, which is the last thing shown and names the page.
      std::vector<std::string> page = words;
      page[0] = "report";
      page.push_back("-q");
      const int made = RunSelf(page, out_fd);
      if (made != 0 && made != 3 && !options.quiet) agent::Say("`lockstep report` did not succeed");
    }
    const agent::OomKills kills = agent::CountOomKills();
    const int code = RunSelf(words, out_fd);
    if (code != 0 && code != 3 && !options.quiet) {
      const std::string oom = code < 0 ? agent::OomKillsSince(kills, agent::CountOomKills()) : "";
      agent::Say("`lockstep " + words[0] + "` did not succeed" + (oom.empty() ? "" : " (" + oom + ")") +
                 "; the recorded data is complete in " + dir);
    }
    verdict = options.after != After::kMerge && out_fd == STDERR_FILENO && (code == 0 || code == 3);
    if (out_fd != STDERR_FILENO) ::close(out_fd);
  }
  // For who looks later.
  if (!waited.missing.empty()) agent::WritePlaces(dir, agent::NotShared(dir, result.places));
  // The verdict lists the files and the missing ranks itself, and is shown last.
  if (options.quiet || verdict) return;
  if (alone && result.ranks.by_themselves) {
    std::vector<std::int32_t> missing;
    for (std::int32_t rank = 0; rank < result.ranks.world_size; ++rank)
      if (!std::binary_search(recorded.begin(), recorded.end(), rank)) missing.push_back(rank);
    if (!missing.empty() || recorded.size() > 1)
      agent::Say(analysis::RanksRecorded(static_cast<std::int64_t>(recorded.size()), result.ranks.world_size, missing));
  }
  ListFiles(dir);
  agent::Say("next: lockstep analyze " + dir);
}

}  // namespace lockstep::cli
