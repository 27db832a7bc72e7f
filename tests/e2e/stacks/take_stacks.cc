// Takes stacks of a program as its agent does: take_stacks COUNT PAUSE_US main|all SETTLE_MS -- PROGRAM [ARGUMENTS]
// starts the program, waits for its first line on standard output (which is passed on), takes COUNT samples and writes
// them as JSON to the file that $STACKS_OUT names, with the stops. Ends as the program does, or kills it with
// $STACKS_KILL=1.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/event_clock.h"
#include "runtime/agent/inject/libraries.h"
#include "runtime/agent/stacks/stack_reader.h"

namespace {

using lockstep::agent::StackReader;
using Json = nlohmann::ordered_json;

Json JsonOf(const lockstep::agent::StackSample& sample) {
  Json threads = Json::array();
  for (const auto& thread : sample.threads) {
    Json frames = Json::array();
    for (const auto& frame : thread.frames)
      frames.push_back({{"function", frame.function},
                        {"file", frame.file},
                        {"line", frame.line},
                        {"python", frame.python},
                        {"library", frame.library}});
    threads.push_back({{"thread", thread.thread},
                       {"name", thread.name},
                       {"main", thread.main},
                       {"missing", thread.why_short},
                       {"waits_for", thread.waits_for},
                       {"held_by", thread.held_by},
                       {"frames", frames}});
  }
  return {{"stopped_ns", sample.stopped_ns}, {"threads", threads}};
}

}  // namespace

int main(int count, char** words) {
  if (count < 7) return 2;
  const int samples = std::atoi(words[1]);
  const long pause_us = std::atol(words[2]);
  const auto which =
      std::string(words[3]) == "main" ? StackReader::Which::kMainThread : StackReader::Which::kAllThreads;
  const long settle_ms = std::atol(words[4]);
  int line[2];
  if (::pipe2(line, O_CLOEXEC) != 0) return 2;
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(line[1], STDOUT_FILENO);
    ::execvp(words[6], words + 6);
    ::_exit(127);
  }
  ::close(line[1]);
  char c = 0;
  while (::read(line[0], &c, 1) == 1 && c != '\n') std::putchar(c);
  std::putchar('\n');
  std::fflush(stdout);
  ::usleep(static_cast<useconds_t>(settle_ms * 1000));

  Json json{{"why", ""}, {"samples", Json::array()}};
  std::vector<std::int64_t> stops_ns;
  std::int64_t took_ns = 0;
  {
    std::string self = lockstep::agent::SelfPath();
    const char* given = std::getenv("LOCKSTEP_STACKS_PROGRAM");
    StackReader reader({.program = given != nullptr ? given : self.substr(0, self.rfind('/')) + "/../lockstep-stacks",
                        .restore_signals = [] {}});
    int taken = 0;
    const auto collect = [&] {
      for (const auto& sample : reader.Ready()) {
        stops_ns.push_back(sample.stopped_ns);
        if (json["samples"].size() < 50) json["samples"].push_back(JsonOf(sample));
      }
    };
    for (int i = 0; i < samples; ++i) {
      const std::int64_t begin_ns = lockstep::RawNs();
      taken += reader.Take(pid, which) != 0 ? 1 : 0;
      took_ns += lockstep::RawNs() - begin_ns;
      if (!reader.why().empty()) json["why"] = reader.why();
      collect();
      ::usleep(static_cast<useconds_t>(pause_us));
    }
    const std::int64_t until_ns = lockstep::RawNs() + 60'000'000'000;
    while (reader.pending() != 0 && lockstep::RawNs() < until_ns) {
      collect();
      ::usleep(2000);
    }
    collect();
    json["taken"] = taken;
    json["mended"] = reader.mended();
  }
  std::sort(stops_ns.begin(), stops_ns.end());
  std::erase(stops_ns, 0);
  json["stops"] = stops_ns.size();
  json["stop_median_ns"] = stops_ns.empty() ? 0 : stops_ns[stops_ns.size() / 2];
  json["stop_max_ns"] = stops_ns.empty() ? 0 : stops_ns.back();
  json["stop_sum_ns"] = std::accumulate(stops_ns.begin(), stops_ns.end(), std::int64_t{0});
  json["take_mean_ns"] = samples == 0 ? 0 : took_ns / samples;
  if (std::getenv("STACKS_KILL") != nullptr) ::kill(pid, SIGKILL);
  char bytes[4096];
  for (ssize_t got; (got = ::read(line[0], bytes, sizeof bytes)) > 0;)
    std::fwrite(bytes, 1, static_cast<std::size_t>(got), stdout);
  std::fflush(stdout);
  int status = 0;
  ::waitpid(pid, &status, 0);
  json["exit_code"] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (const char* out = std::getenv("STACKS_OUT"); out != nullptr) std::ofstream(out) << json.dump(1) << "\n";
  return 0;
}
