#include "cli/tune/job.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string_view>

#include "analysis/analyze.h"
#include "analysis/core/format.h"
#include "cli/input/open_run.h"
#include "cli/tune/process.h"
#include "comms/launch/launcher_args.h"
#include "core/env.h"
#include "core/own_file.h"
#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/libraries.h"
#include "runtime/agent/slot/trial.h"
#include "trace/file/strings.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using tune::Candidate;
using tune::End;
using tune::Reach;

using InForce = std::vector<const Candidate*>;

// With fewer steps a mean says little; the first of a job are not counted.
constexpr std::int64_t kFewestSteps = 5;
// Times what a run took as it is at most, and so many seconds: what takes longer hangs. Others may use the machine.
constexpr double kSlower = 4, kSlowerS = 20;
// The job as it is may take this share of the budget: eight runs at least decide something.
constexpr double kMostOfBudget = 0.1;
constexpr std::size_t kLinesShown = 3;
constexpr std::string_view kBindingFlag = "--bind-to";

std::string RealPath(const std::string& program) {
  char real[PATH_MAX];
  const std::string found = agent::FindProgram(program);
  return !found.empty() && ::realpath(found.c_str(), real) != nullptr ? real : found;
}

std::string LastLines(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t\r-") == std::string::npos) continue;
    lines.push_back(line);
    if (lines.size() > kLinesShown) lines.erase(lines.begin());
  }
  std::string text;
  for (const std::string& line : lines) text += (text.empty() ? "" : " | ") + line;
  return text;
}

// What settings set, as the job is started now: the environment, and mpirun's --mca NAME VALUE.
std::map<std::string, std::string> VariablesNow(const std::vector<std::string>& command) {
  std::map<std::string, std::string> found;
  for (const tune::Setting& setting : tune::Settings())
    for (const auto& [name, unused] : agent::ParseAssignments(setting.variables)) {
      if (const char* value = std::getenv(name.c_str()); value != nullptr) found[name] = value;
      constexpr std::string_view kMca = "OMPI_MCA_";
      if (!name.starts_with(kMca)) continue;
      for (std::size_t i = 0; i + 2 < command.size(); ++i)
        if ((command[i] == "--mca" || command[i] == "-mca") && command[i + 1] == name.substr(kMca.size()))
          found[name] = command[i + 2];
    }
  return found;
}

std::string MpiOf(const std::string& launcher) {
  const std::string_view name = BaseName(launcher);
  for (const std::string_view open : {"orterun", "prterun", "mpirun.openmpi", "mpiexec.openmpi"})
    if (name == open) return "openmpi";
  for (const std::string_view mpich : {"mpiexec.hydra", "mpirun.mpich", "mpiexec.mpich"})
    if (name == mpich) return "mpich";
  return "";
}

// Whether the ranks are MPI's.
bool RanksAreOfMpi(const analysis::Context& context) {
  if (context.ranks().empty()) return false;
  const auto tables = context.ReadRank(context.ranks()[0]);
  return tables.ok() && trace::MetaValue(tables.value(), "rank_source") == "mpi";
}

}  // namespace

struct TunedJob::Raw {
  ProcessEnd end;
  std::string run_dir, output;
  std::string unreadable;  // Why nothing of it can be read.
  tune::StepLength length;
  tune::Seen seen;
};

Status CheckCommand(const std::vector<std::string>& command) {
  if (command.empty())
    return Error{ErrorCode::kUsage, "no program to run", "lockstep tune",
                 "lockstep tune [OPTIONS] -- mpirun -np 4 ./app      or: -- torchrun --nproc_per_node 4 train.py"};
  for (std::size_t i = 0; i + 1 < command.size(); ++i)
    if (BaseName(command[i]) == "lockstep" && command[i + 1] == "run")
      return Error{ErrorCode::kUsage, "the command has `lockstep run` in it, and tune adds its own", command[i],
                   "leave it out of the command"};
  if (agent::FindProgram(command[0]).empty())
    return Error{ErrorCode::kUsage, "no such program", command[0], "check the name and PATH"};
  return Ok();
}

std::vector<std::string> TunedJob::Words(const std::string& run_dir, const InForce& in_force) const {
  std::vector<std::string> words = {agent::SelfPath(), "run", "--quiet",  "--no-variables", "--after", "none",
                                    "--hang-after",    "0",   "--output", run_dir,          "--"};
  std::vector<std::string> command = options_.command;
  // Its own flag is stronger than the variable.
  for (const Candidate* candidate : in_force)
    if (candidate->setting->name == "openmpi.binding")
      for (std::size_t i = 0; i + 1 < command.size(); ++i)
        if (command[i] == kBindingFlag || command[i] == kBindingFlag.substr(1)) command[i + 1] = candidate->value;
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::vector<std::string> TunedJob::Environment(const InForce& in_force) const {
  agent::Assignments application, torch = {{"observe", "1"}}, own;
  for (const Candidate* candidate : in_force) {
    const tune::Setting& setting = *candidate->setting;
    if (setting.reach == Reach::kTorch) torch.emplace_back(setting.name, candidate->value);
    for (const auto& variable : agent::ParseAssignments(tune::WithValue(setting.variables, candidate->value))) {
      application.push_back(variable);
      if (setting.reach == Reach::kLauncher) own.push_back(variable);
    }
  }
  own.emplace_back(env::kTrialTorch, agent::AssignmentText(torch));
  own.emplace_back(env::kTrialVariables, agent::AssignmentText(application));
  own.emplace_back(env::kTrialSteps, options_.steps > 0 ? std::to_string(options_.steps) : "");
  return agent::EnvironmentWith(own);
}

Result<TunedJob::Raw> TunedJob::Execute(const std::string& name, const InForce& in_force, double timeout_s) {
  Raw raw;
  raw.run_dir = options_.directory + "/" + name;
  raw.output = raw.run_dir + ".out";
  LS_TRY(raw.end, RunJob(Words(raw.run_dir, in_force), Environment(in_force), raw.output, timeout_s));
  if (raw.end.timed_out || raw.end.interrupted) return raw;
  ReadFlags flags;
  flags.quiet = true;
  flags.jobs = options_.jobs;
  Result<merge::MergeOptions> merge = MergeOptionsOf({raw.run_dir}, flags);
  if (!merge.ok()) {
    raw.unreadable = merge.error().what;
    return raw;
  }
  const Status read = WithRun(merge.value(), true, [&](const merge::Timeline& timeline, Progress&) -> Status {
    analysis::AnalyzeOptions options;
    options.jobs = options_.jobs;
    options.replay = false;
    const analysis::Context context(timeline, options);
    // Runs that are ended make a few steps more than was asked for, and not equally many.
    raw.length = tune::LengthOf(context, options_.steps > 0 ? options_.steps : INT64_MAX);
    raw.seen = tune::SeenIn(context);
    return Ok();
  });
  if (!read.ok()) raw.unreadable = read.error().what;
  return raw;
}

Status TunedJob::WithRecording(const std::function<Status(const analysis::Context&)>& work) const {
  ReadFlags flags;
  flags.quiet = true;
  flags.jobs = options_.jobs;
  LS_TRY(merge::MergeOptions merge, MergeOptionsOf({RecordingDir()}, flags));
  return WithRun(merge, true, [&](const merge::Timeline& timeline, Progress&) -> Status {
    analysis::AnalyzeOptions options;
    options.jobs = options_.jobs;
    const analysis::Context context(timeline, options);
    return work(context);
  });
}

Result<tune::Facts> TunedJob::MeasureAsItIs(double budget_s) {
  const double timeout_s = budget_s * kMostOfBudget;
  Raw last;
  for (const char* name : {"first", "as-it-is"}) {
    LS_TRY(last, Execute(name, {}, timeout_s));
    if (last.end.interrupted) return Error{ErrorCode::kIo, "it was interrupted", "", "run it again"};
    if (last.end.timed_out)
      return Error{ErrorCode::kUsage,
                   fmt::format("one run of the job takes more than {:.0f} s, a tenth of the budget", timeout_s),
                   last.output,
                   options_.steps > 0 ? "fewer --steps, or a larger --budget"
                                      : "--steps 40 ends each run after 40 steps; or a larger --budget"};
    const bool whole = options_.steps > 0 && last.length.complete >= options_.steps;
    if (last.end.exit_code != 0 && !whole)
      return Error{
          ErrorCode::kUsage,
          fmt::format("the job ends with exit code {} as it is: {}", last.end.exit_code, LastLines(last.output)),
          last.output, "tune a job that runs"};
    if (!last.unreadable.empty())
      return Error{ErrorCode::kUsage, "the job cannot be measured: " + last.unreadable, last.run_dir,
                   "lockstep run -- COMMAND says what is recorded of it"};
    if (last.length.usable < kFewestSteps)
      return Error{ErrorCode::kUsage,
                   fmt::format("{} can be measured in a run, and {} are needed",
                               analysis::Plural(last.length.usable, "step"), kFewestSteps),
                   last.run_dir,
                   "mark its steps (lockstep_step(), docs/launching.md), let it run longer, or give more --steps"};
    guard_.Reference(last.seen.losses);
  }
  if (!options_.check.empty() && !PassesCheck(options_.directory + "/first.out", last.output))
    return Error{ErrorCode::kUsage, "--check fails on two runs of the job as it is, so it would refuse every setting",
                 options_.check, "a command that ends with 0 for these: $1 and $2 are their outputs"};
  run_s_ = last.end.seconds;
  seen_as_it_is_ = last.seen;
  as_it_is_.result = {.step_ns = last.length.mean_ns, .cost_s = last.end.seconds, .why = ""};
  as_it_is_.steps = last.length.usable;
  as_it_is_.peak_bytes = last.end.peak_bytes;
  std::error_code ignored;
  fs::remove_all(options_.directory + "/first", ignored);
  tune::Facts facts;
  LS_CHECK(WithRecording([&](const analysis::Context& context) -> Status {
    facts = tune::FactsOf(context);
    const std::string mpi = MpiOf(RealPath(options_.command[0]));
    facts.openmpi_launcher = mpi == "openmpi";
    if (RanksAreOfMpi(context)) facts.mpi = mpi;
    return Ok();
  }));
  facts.variables = VariablesNow(options_.command);
  return facts;
}

std::string TunedJob::WhyNotApplied(const InForce& in_force, const tune::Seen& seen) const {
  for (const Candidate* candidate : in_force) {
    const tune::Setting& setting = *candidate->setting;
    if (setting.reach == Reach::kTorch) {
      if (std::find(seen.set.begin(), seen.set.end(), setting.name) != seen.set.end()) continue;
      for (const auto& [name, why] : seen.not_set)
        if (name == setting.name) return why;
      return "nothing that it applies to was made";
    }
    if (setting.name == "threads.omp" && !seen.threads.empty() && seen.threads != candidate->value)
      return fmt::format("PyTorch computes with {} threads all the same", seen.threads);
    if (setting.name == "openmpi.binding" && seen.cpus == seen_as_it_is_.cpus)
      return "the ranks may use the same cores as before";
  }
  return "";
}

Result<Measured> TunedJob::Run(const InForce& in_force) {
  const std::string name = fmt::format("run-{:03}", ++runs_);
  LS_TRY(const Raw raw, Execute(name, in_force, kSlower * run_s_ + kSlowerS));
  Measured measured;
  measured.interrupted = raw.end.interrupted;
  measured.steps = raw.length.usable;
  measured.peak_bytes = raw.end.peak_bytes;
  tune::RunResult& result = measured.result;
  result.cost_s = raw.end.seconds;
  result.step_ns = raw.length.mean_ns;
  const auto ends = [&](End end, std::string why) {
    result.end = end;
    result.why = std::move(why);
  };
  const bool same = std::all_of(in_force.begin(), in_force.end(),
                                [](const Candidate* c) { return c->setting->results == tune::Results::kSame; });
  const bool whole = options_.steps > 0 && raw.length.complete >= options_.steps;
  if (raw.end.timed_out) {
    ends(End::kHung, fmt::format("ended after {:.0f} s; the job as it is takes {:.0f}", raw.end.seconds, run_s_));
  } else if (raw.end.exit_code != 0 && !whole) {
    ends(End::kFailed, fmt::format("exit code {}: {}", raw.end.exit_code, LastLines(raw.output)));
  } else if (!raw.unreadable.empty()) {
    ends(End::kFailed, raw.unreadable);
  } else if (raw.length.usable < kFewestSteps) {
    ends(End::kFailed, fmt::format("{} could be measured", analysis::Plural(raw.length.usable, "step")));
  } else if (const std::string why = WhyNotApplied(in_force, raw.seen); !why.empty()) {
    ends(End::kNotApplied, why);
  } else if (const std::string differs = guard_.Differs(raw.seen.losses, same); !differs.empty()) {
    ends(End::kChanged, differs);
  } else if (!options_.check.empty() && !in_force.empty() && !PassesCheck(RecordingDir() + ".out", raw.output)) {
    ends(End::kChanged, "--check failed on " + raw.output);
  }
  if (in_force.empty() && result.end == End::kGood) run_s_ = std::max(run_s_, raw.end.seconds);
  // Of what is as expected, nobody needs the records any more.
  if (result.end == End::kGood) {
    std::error_code ignored;
    fs::remove_all(raw.run_dir, ignored);
  }
  return measured;
}

bool TunedJob::PassesCheck(const std::string& as_it_is, const std::string& output) const {
  const std::vector<std::string> words = {"/bin/sh", "-c", options_.check, "check", as_it_is, output};
  const Result<ProcessEnd> end = RunJob(words, agent::EnvironmentWith({}), output + ".check", 60);
  return end.ok() && !end.value().timed_out && end.value().exit_code == 0;
}

}  // namespace lockstep::cli
