#include "runtime/agent/slot/manifest.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/env.h"
#include "core/hex.h"
#include "core/own_file.h"
#include "core/shell_words.h"
#include "core/version.h"
#include "runtime/agent/rundir/process_state.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::agent {
namespace {

std::string WorkingDirectory() {
  std::error_code ignored;
  return std::filesystem::current_path(ignored).string();
}

std::int64_t RealtimeNs() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// "0-3,8"; "" unknown.
std::string AllowedCpus(int& count) {
  count = 0;
  // Machines beyond 1024 CPUs need a larger set (sched_setaffinity(2)).
  for (int cpus = 1024; cpus <= 1 << 18; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<std::size_t>(cpus));
    if (set == nullptr) return "";
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(cpus));
    const bool good = ::sched_getaffinity(0, bytes, set) == 0;
    const int error = errno;
    std::string list;
    for (int cpu = 0, end; good && cpu < cpus; cpu = end + 1) {
      end = cpu;
      if (!CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set)) continue;
      while (end + 1 < cpus && CPU_ISSET_S(static_cast<std::size_t>(end) + 1, bytes, set)) ++end;
      count += end - cpu + 1;
      list += (list.empty() ? "" : ",") + std::to_string(cpu) + (end > cpu ? "-" + std::to_string(end) : "");
    }
    CPU_FREE(set);
    if (good || error != EINVAL) return list;
  }
  return "";
}

}  // namespace

std::string ShellQuote(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + ShellQuoted(word);
  return line;
}

bool WriteManifest(const RunDir& dir, const RunOptions& options, const launch::LaunchEnv& launch, std::int64_t age_ns) {
  nlohmann::ordered_json json;
  json["schema"] = "lockstep.manifest/1";
  json["run_id"] = launch.run_id;
  json["world_size"] = launch.slots();
  json["command"] = options.command;
  json["cwd"] = WorkingDirectory();
  json["created_realtime_ns"] = RealtimeNs() - age_ns;
  json["lockstep_version"] = LOCKSTEP_VERSION;
  json["options"] = options.recorded;
  json["launcher"] = std::string(launch::Name(launch.source));
  json["host"] = HostName();
  // Arguments may hold any bytes; JSON holds UTF-8 only.
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  return ReplaceFile(dir.absolute + "/manifest.json", text, 0666) == 0;
}

std::string StartMeta(const RunOptions& options, const launch::LaunchEnv& launch, const RankFacts& facts) {
  std::string text;
  const auto add = [&](std::string_view key, std::string value) {
    for (char& c : value)
      if (c == '\n' || c == '\t' || c == '\r') c = ' ';
    text.append(key).append("\t").append(value).append("\n");
  };
  add("schema_version", "1");
  add("lockstep_version", LOCKSTEP_VERSION);
  add("rank", std::to_string(launch.slot()));
  if (launch.world_size >= 0 || launch.source == launch::LaunchSource::kNone)
    add("world_size", std::to_string(launch.slots()));
  add("rank_source", launch.rank >= 0 ? "env" : "slot");
  // The processes of the slot inherit this variable. A process with another value was given its rank by a launcher
  // below the agent.
  const char* variable = std::getenv("RANK");
  add("rank_variable", variable == nullptr ? "" : variable);
  add("launcher", std::string(launch::Name(launch.source)));
  const std::string host = HostName();
  add("host", host);
  add("node", host);
  if (const std::string id = trace::BootId(); !id.empty()) add("boot_id", id);
  char hex[17];
  std::snprintf(hex, sizeof hex, "%016" PRIx64, facts.clock_domain);
  add("clock_domain", hex);
  add("clock_mode", facts.clock.mode == ClockMode::kTsc ? "tsc" : "raw");
  if (facts.clock.distortion.active())
    add("test_clock", facts.test_clock + ",origin_raw_ns=" + std::to_string(facts.clock.distortion.origin_raw_ns));
  add("agent_pid", std::to_string(::getpid()));
  if (facts.app_pid > 0) add("pid", std::to_string(facts.app_pid));
  add("command", ShellQuote(options.command));
  add("cwd", WorkingDirectory());
  add("run_id", launch.run_id);
  add("ring_bytes", std::to_string(facts.ring_bytes));
  int cores = 0;
  if (const std::string cpus = AllowedCpus(cores); cores > 0) {
    add("allowed_cores", std::to_string(cores));
    add("allowed_cpus", cpus);
  }
  add("recording", facts.recording);
  add("blocked", options.blocked ? "on" : "off");
  std::string settings;
  for (const auto& [name, value] : options.recorded) settings += (settings.empty() ? "" : ";") + name + "=" + value;
  add("options", settings);
  for (const char* name : {env::kTrialVariables, env::kTrialTorch, env::kTrialSteps})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0')
      add(name == env::kTrialVariables ? "trial_variables"
          : name == env::kTrialTorch   ? "trial_torch"
                                       : "trial_steps",
          value);
  add("segment", facts.segment_path);
  add("segment_device", std::to_string(facts.segment_device));
  // Recovery examines these before it changes anything (docs/recover.md).
  add("nonce", Hex(facts.nonce, 16));
  add("lock", facts.locked ? "ofd" : "none");
  add("pid_namespace", PidNamespace());
  add("agent_start", ProcessStart(::getpid()));
  add("run_dir", facts.run_dir);
  return text;
}

}  // namespace lockstep::agent
