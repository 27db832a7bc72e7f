// `lockstep run`: capture. Inside a launcher (mpirun ... lockstep run -- app) it is
// the agent of one slot; around one (lockstep run -- mpirun ... app) it puts itself
// in front of the program and becomes the launcher.

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands/run_after.h"
#include "cli/options/command.h"
#include "cli/options/program.h"
#include "cli/output/out.h"
#include "comms/launch/launcher_args.h"
#include "core/env.h"
#include "core/ring_layout.h"
#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/libraries.h"
#include "runtime/agent/late/stack_plan.h"
#include "runtime/agent/rundir/say.h"
#include "runtime/agent/slot/agent.h"
#include "runtime/agent/slot/estimate.h"
#include "runtime/agent/slot/manifest.h"
#include "runtime/agent/window/window_options.h"

namespace lockstep::cli {
namespace {

struct RecordFlags {
  std::vector<std::string> command;
  std::string output, spool_dir, after = "analyze", after_to, clock = "auto", metrics;
  double live_s = 0, hang_after_s = 30;
  std::string on_hang = "report", stacks, blocked = "on";
  std::uint64_t max_bytes = std::uint64_t{2} << 30, ring_size = std::uint64_t{8} << 20,
                ring_total = std::uint64_t{64} << 20;
  std::int64_t after_wait_s = 30;
  agent::WindowFlags window;
  std::string gpu = "auto", cuda_graphs = "nodes";
  std::uint64_t gpu_buffers = 0;
  bool gpu_memory = false, nccl_kernel_channels = false;
  bool no_send = false, estimate = false, print_env = false, quiet = false, no_variables = false, torch_ops = false,
       torch_shapes = false;
};

// CLI11 turns a number that is too long into the largest one.
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;

CLI::Validator AtMost(std::uint64_t most) {
  return CLI::Validator(
      [most](const std::string& text) {
        std::uint64_t value = 0;
        const bool good = CLI::detail::lexical_cast(text, value) && value <= most;
        return good ? std::string() : "no size up to " + std::to_string(most) + " bytes";
      },
      "", "");
}

template <typename Parse>
CLI::Validator Accepted(Parse parse, const std::string& words) {
  return CLI::Validator(
      [=](const std::string& text) { return parse(text) ? "" : words + " was expected, not '" + text + "'"; }, "", "");
}

constexpr double kLivePeriodS = 10;  // Used with --metrics alone.

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string Absolute(const std::string& path) {
  std::error_code ignored;
  return path.empty() ? path : std::filesystem::absolute(path, ignored).string();
}

// Returns the arguments of `lockstep run` that give these flags. Paths are absolute, because the launcher may start the
// program in another directory.
std::vector<std::string> Words(const RecordFlags& flags) {
  std::vector<std::string> words = {agent::SelfPath(), "run"};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--output", Absolute(flags.output));
  add("--spool-dir", Absolute(flags.spool_dir));
  add("--after", flags.after);
  add("--after-to", Absolute(flags.after_to));
  add("--after-wait", std::to_string(flags.after_wait_s));
  add("--clock", flags.clock);
  add("--max-bytes", std::to_string(flags.max_bytes));
  add("--ring-size", std::to_string(flags.ring_size));
  add("--ring-total", std::to_string(flags.ring_total));
  for (const auto& [name, value] : agent::WindowWords(flags.window)) add(name, value);
  if (flags.window.trigger) words.emplace_back("--trigger");
  if (flags.live_s > 0) add("--live", NumberText(flags.live_s));
  add("--metrics", Absolute(flags.metrics));
  add("--hang-after", NumberText(flags.hang_after_s));
  add("--on-hang", flags.on_hang);
  add("--stacks", flags.stacks);
  add("--blocked", flags.blocked);
  for (const auto& [given, name] : {std::pair{flags.no_send, "--no-send"},
                                    {flags.estimate, "--estimate"},
                                    {flags.quiet, "--quiet"},
                                    {flags.torch_ops, "--torch-ops"},
                                    {flags.torch_shapes, "--torch-shapes"}})
    if (given) words.emplace_back(name);
  add("--gpu", flags.gpu);
  add("--cuda-graphs", flags.cuda_graphs);
  if (flags.gpu_buffers != 0) add("--gpu-buffers", std::to_string(flags.gpu_buffers));
  if (flags.gpu_memory) words.emplace_back("--gpu-memory");
  if (flags.nccl_kernel_channels) words.emplace_back("--nccl-kernel-channels");
  words.emplace_back("--");
  return words;
}

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

std::uint32_t GpuOptions(const RecordFlags& flags) {
  if (flags.gpu == "off") return kGpuOff;
  std::uint32_t options = flags.gpu_memory ? kGpuMemoryRecords : 0;
  if (flags.cuda_graphs == "whole") options |= kGpuGraphsWhole;
  if (flags.nccl_kernel_channels) options |= kNcclKernelChannels;
  const std::uint64_t mebibytes = (flags.gpu_buffers + kMebibyte - 1) / kMebibyte;
  return options | static_cast<std::uint32_t>(std::min<std::uint64_t>(mebibytes, 0xffff)) << kGpuBuffersShift;
}

// For jobs whose command line the user cannot change. It is printed to stdout so that a shell can eval it.
Result<int> PrintEnv(const RecordFlags& flags) {
  std::string agent;
  for (const std::string& word : Words(flags)) {
    if (word.find_first_of(" \t") != std::string::npos)
      return Error{ErrorCode::kUnsupported, "Open MPI splits this variable at spaces, and a path has one", word,
                   "install Lockstep, or put the output, under a path without spaces"};
    agent += (agent.empty() ? "" : " ") + word;
  }
  LS_TRY(const auto libraries, agent::FindLibraries());
  Show(
      "# For jobs whose command line you cannot change. With Open MPI 4.x this alone puts an\n"
      "# agent in front of every rank, as `mpirun ... lockstep run -- app` would:\n"
      "export OMPI_MCA_orte_fork_agent={}\n"
      "# Elsewhere put this in front of the program (torchrun: --no-python):\n"
      "#   {}\n"
      "# The probe alone (no agent) records nothing: it stays idle without a ring segment, which\n"
      "# only an agent makes. Its library, for tools that merge LD_PRELOAD themselves:\n"
      "#   LD_PRELOAD={}\n",
      agent::ShellQuote({agent}), agent::ShellQuote(Words(flags)), agent::PreloadValue("", libraries));
  return kOk;
}

// The interpreter that torchrun uses for its workers: PYTHON_EXEC, else its own.
std::string PythonOf(const std::vector<std::string>& command) {
  if (const char* given = std::getenv("PYTHON_EXEC"); given != nullptr) return given;
  const std::string& torchrun = command[0];
  if (launch::WordsOfTorchrun(command) > 1) return agent::FindProgram(torchrun);
  const std::string python = agent::ScriptInterpreter(agent::FindProgram(torchrun));
  return std::filesystem::path(python).filename().string().starts_with("python") ? agent::FindProgram(python) : "";
}

// torchrun gets an agent in front of each worker: their ranks are then the ranks of the job, on any number of nodes.
Result<std::vector<std::string>> LauncherWords(const RecordFlags& flags) {
  std::vector<std::string> agent = Words(flags);
  // Variables were turned into these words already, and errors in others were reported once.
  agent.insert(agent.end() - 1, "--no-variables");
  if (launch::WordsOfTorchrun(flags.command) > 0)
    return launch::InsertAgentForTorchrun(flags.command, agent, PythonOf(flags.command));
  char real[PATH_MAX];
  const std::string launcher = agent::FindProgram(flags.command[0]);
  const bool resolved = !launcher.empty() && ::realpath(launcher.c_str(), real) != nullptr;
  return launch::InsertAgent(
      flags.command, agent,
      launch::ForwardVariables(flags.command, resolved ? real : launcher, agent::EnvironmentWith({})));
}

Result<int> Launch(const RecordFlags& flags) {
  LS_TRY(const auto words, LauncherWords(flags));
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  const int error = errno;
  Note("lockstep: {}: {}\n", argv[0], std::strerror(error));
  return error == ENOENT ? 127 : 126;
}

void TellEstimate(const agent::RunResult& result, const agent::RunOptions& options, const RecordFlags& flags) {
  const std::int32_t slots = result.launch.slots();
  const bool good = result.signal == 0 && result.exit_code == 0;
  struct statvfs room {};
  const std::string place = flags.spool_dir.empty() ? "." : flags.spool_dir;
  const bool known = ::statvfs(place.c_str(), &room) == 0;
  const std::vector<agent::RankEstimate> ranks =
      agent::CollectEstimates(result.dir, slots, good ? flags.after_wait_s * 1000 : std::int64_t{100});
  for (const std::string& line :
       agent::DescribeEstimates(ranks, slots, options.window, options.max_bytes,
                                known ? static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize : 0))
    agent::Say(line);
}

Result<int> RunProgram(const RecordFlags& flags) {
  LS_TRY(const auto window, agent::ParseWindow(flags.window));
  if (flags.print_env) return PrintEnv(flags);
  if (flags.command.empty())
    return Error{ErrorCode::kUsage, "no program to run", "lockstep run",
                 "lockstep run [OPTIONS] -- PROGRAM [ARGUMENTS]      for example: mpirun -np 4 lockstep run -- ./app"};
  const launch::Launcher launcher = launch::WordsOfTorchrun(flags.command) > 0
                                        ? launch::Launcher::kTorchrun
                                        : launch::RecognizeLauncher(flags.command[0]);
  // If it is not known how torchrun starts its program, the agent stays around torchrun.
  if (launcher != launch::Launcher::kNone && (launcher != launch::Launcher::kTorchrun || LauncherWords(flags).ok()))
    return Launch(flags);

  // Read by runtime/python, in the application.
  if (flags.torch_ops || flags.torch_shapes) ::setenv(env::kTorchOps, flags.torch_shapes ? "2" : "1", 1);
  agent::RunOptions options;
  options.command = flags.command;
  options.output = flags.output;
  options.spool_dir = flags.spool_dir;
  options.max_bytes = flags.max_bytes;
  options.ring_bytes = flags.ring_size;
  options.ring_total_bytes = flags.ring_total;
  options.send = !flags.no_send;
  options.wait_ms = flags.after_wait_s * 1000;
  options.quiet = flags.quiet;
  options.window = window;
  options.gpu_options = GpuOptions(flags);
  options.estimate = flags.estimate;
  options.live_lines = flags.live_s > 0;
  options.metrics = Absolute(flags.metrics);
  if (options.live_lines || !options.metrics.empty())
    options.live_period_ns = static_cast<std::int64_t>((options.live_lines ? flags.live_s : kLivePeriodS) * 1e9);
  options.hang_after_ns = static_cast<std::int64_t>(flags.hang_after_s * 1e9);
  options.on_hang = *agent::OnHangOf(flags.on_hang);
  if (!flags.stacks.empty()) options.stacks = *agent::StackPlanOf(flags.stacks);
  options.blocked = flags.blocked == "on";
  if (!options.stacks.told && (options.live_lines || !options.metrics.empty()))
    options.stacks.kind = agent::StackPlan::kLate;
  options.clock = flags.clock == "agent"                          ? clock::ClockService::kAgent
                  : flags.clock == "tcp"                          ? clock::ClockService::kTcp
                  : flags.clock == "off" || flags.clock == "wall" ? clock::ClockService::kOff
                                                                  : clock::ClockService::kAuto;
  options.recorded = {{"after", flags.after},
                      {"clock", flags.clock},
                      {"gpu", flags.gpu},
                      {"max_bytes", std::to_string(flags.max_bytes)},
                      {"ring_size", std::to_string(flags.ring_size)},
                      {"ring_total", std::to_string(flags.ring_total)}};
  for (const auto& [name, value] : agent::WindowWords(flags.window)) {
    std::string key = name + 2;
    std::replace(key.begin(), key.end(), '-', '_');
    if (!value.empty()) options.recorded[key] = value;
  }
  if (flags.window.trigger) options.recorded["trigger"] = "true";
  options.recorded["hang_after"] = NumberText(flags.hang_after_s);
  if (flags.on_hang != "report") options.recorded["on_hang"] = flags.on_hang;
  if (flags.no_send) options.recorded["no_send"] = "true";
  if (!flags.stacks.empty()) options.recorded["stacks"] = flags.stacks;
  if (!options.blocked) options.recorded["blocked"] = flags.blocked;
  if (flags.live_s > 0) options.recorded["live"] = NumberText(flags.live_s);
  if (!flags.metrics.empty()) options.recorded["metrics"] = flags.metrics;
  if (flags.gpu != "off") {
    options.recorded["cuda_graphs"] = flags.cuda_graphs;
    if (flags.gpu_memory) options.recorded["gpu_memory"] = "true";
    if (flags.nccl_kernel_channels) options.recorded["nccl_kernel_channels"] = "true";
    if (flags.gpu_buffers != 0) options.recorded["gpu_buffers"] = std::to_string(flags.gpu_buffers);
  }
  if (!flags.output.empty()) options.recorded["output"] = flags.output;
  if (!flags.spool_dir.empty()) options.recorded["spool_dir"] = flags.spool_dir;

  AfterOptions after;
  after.after = flags.after == "none"     ? After::kNone
                : flags.after == "merge"  ? After::kMerge
                : flags.after == "report" ? After::kReport
                                          : After::kAnalyze;
  after.to = flags.after_to;
  after.clock = flags.clock;
  after.wait_ms = flags.after_wait_s * 1000;
  after.quiet = flags.quiet;
  after.spools_apart = !flags.spool_dir.empty();
  if (!flags.estimate) options.failed = [&after](const agent::RunResult& failed) { TellFailure(failed, after); };
  Waited waited;
  options.wait_for_others = [&](const auto& ended, const auto& hosts) { waited = WaitForOthers(ended, after, hosts); };

  LS_TRY(const agent::RunResult result, agent::RunAgent(options));
  if (flags.estimate) {
    if (result.traced && result.launch.rank <= 0) TellEstimate(result, options, flags);
    agent::FinishLike(result);
  }
  RunAfter(result, after, waited);
  agent::FinishLike(result);
}

void AddWindowOptions(CLI::App& run, agent::WindowFlags& window) {
  const char* group = "When to record (default: everything; see docs/capture-windows.md)";
  run.add_option("--steps", window.steps, "Steps A to B-1; with /N again every N steps")
      ->type_name("A:B[/N]")
      ->group(group);
  run.add_option("--schedule", window.schedule, "As torch.profiler.schedule: wait=1,warmup=1,active=3,repeat=2")
      ->type_name("KEY=N,...")
      ->group(group);
  run.add_option("--step-range", window.step_range, "Each range of this name is a step")
      ->type_name("NAME")
      ->group(group);
  run.add_option("--range", window.range, "While a range is open: nvtx:NAME, lockstep:NAME, torch:NAME, NAME; or cuda")
      ->type_name("RANGE")
      ->group(group);
  run.add_option("--range-count", window.range_count, "Only the first N such ranges")->type_name("N")->group(group);
  run.add_option("--delay", window.delay, "Begin recording this many seconds after the start")
      ->type_name("SECONDS")
      ->group(group);
  run.add_option("--duration", window.duration, "Record for this many seconds")->type_name("SECONDS")->group(group);
  run.add_option("--on-signal", window.on_signal, "Record when the job gets USR1 or USR2 (or RUN/trigger appears)")
      ->type_name("USR1|USR2")
      ->group(group);
  run.add_flag("--trigger", window.trigger, "Record when the file RUN/trigger appears; its path is printed")
      ->group(group);
  run.add_option("--signal-steps", window.signal_steps,
                 "Steps to record after --on-signal or --trigger (default 10; without steps --duration)")
      ->type_name("N")
      ->group(group);
  run.add_option("--align", window.align,
                 "Such a recording begins at a multiple of N steps, the same on all ranks (default 100)")
      ->type_name("N")
      ->group(group);
  run.add_option("--start", window.start, "off: record from lockstep_start() on")->type_name("on|off")->group(group);
  run.add_option("--ranks", window.ranks, "Record these ranks only; the others still count and measure clocks")
      ->type_name("0-3,7")
      ->group(group);
}

void AddGpuOptions(CLI::App& run, RecordFlags& flags) {
  const char* group = "GPUs (see docs/gpu.md)";
  run.add_option("--gpu", flags.gpu, "off: do not load the CUDA and NCCL sources, for example so that nsys can be used")
      ->check(CLI::IsMember({"auto", "off"}))
      ->group(group);
  run.add_option(
         "--cuda-graphs", flags.cuda_graphs,
         "What to record of a CUDA graph's launch: nodes: every kernel; whole: one record (cheaper for graphs with "
         "thousands of nodes)")
      ->check(CLI::IsMember({"nodes", "whole"}))
      ->group(group);
  run.add_flag("--gpu-memory", flags.gpu_memory, "Record allocations of GPU memory (cudaMalloc, pools), too")
      ->group(group);
  run.add_flag("--nccl-kernel-channels", flags.nccl_kernel_channels,
               "Let NCCL measure each channel of its kernels; NCCL then needs one more thread; others measured a cost "
               "of 0.1 % to 13 % on small messages")
      ->group(group);
  run.add_option("--gpu-buffers", flags.gpu_buffers,
                 "Limit of the memory for CUPTI's records (default 256 MiB); raise it if records were dropped")
      ->transform(CLI::AsSizeValue(false))
      ->check(AtMost(kMostBytes))
      ->group(group);
}

// Paths are checked in the process that runs the program.
std::string TroubleOfPaths(const RecordFlags& flags) {
  if (!Program().empty() && launch::RecognizeLauncher(Program()[0]) != launch::Launcher::kNone) return "";
  const auto directory = [](const std::string& path) -> std::string {
    std::error_code error;
    if (std::filesystem::is_directory(path, error) && ::access(path.c_str(), W_OK | X_OK) == 0) return "";
    return error ? error.message() : "no directory that can be written to";
  };
  std::string trouble;
  if (!flags.spool_dir.empty()) trouble = directory(flags.spool_dir);
  for (const std::string& file : {flags.metrics, flags.after_to})
    if (trouble.empty() && !file.empty())
      trouble = directory(std::filesystem::path(Absolute(file)).parent_path().string());
  return trouble;
}

CLI::App* AddRunTo(CLI::App& root, const std::shared_ptr<RecordFlags>& flags) {
  CLI::App* run = root.add_subcommand("run", "Run a program and record it; its output and exit code stay as they are");
  run->footer(
      "Examples:\n"
      "  mpirun -np 8 lockstep run -- python train.py\n"
      "  lockstep run --steps 110:310 -- mpirun -np 8 ./app      the launcher's options stay its own");
  run->add_option("-o,--output", flags->output, "The run directory (default: lockstep.out/DATE-TIME-xxxx)");
  run->add_option("--after", flags->after, "What rank 0 does after the job succeeded: none, merge, analyze, report")
      ->check(CLI::IsMember({"none", "merge", "analyze", "report"}));
  run->add_option("--after-to", flags->after_to, "File for the verdict (default: standard error)");
  run->add_option("--after-wait", flags->after_wait_s,
                  "Seconds rank 0 waits for the other ranks' files, as long as none arrive")
      ->check(CLI::Range(0, 86400));
  run->add_option("--clock", flags->clock,
                  "Clock exchange: auto, agent (no rank uses MPI), tcp, off, wall (accept wall-clock accuracy)")
      ->check(CLI::IsMember({"auto", "agent", "tcp", "off", "wall"}));
  run->add_flag("--no-send", flags->no_send,
                "Where hosts share no directory, leave the rank files there (see docs/gather.md)");
  const auto size = CLI::AsSizeValue(false);
  run->add_option("--max-bytes", flags->max_bytes, "Stop recording at this size per rank (default 2 GiB)")
      ->transform(size)
      ->check(AtMost(kMostBytes));
  run->add_option("--ring-size", flags->ring_size,
                  "Ring size of the first thread of a process (default 8 MiB; other threads get a quarter)")
      ->transform(size)
      ->check(AtMost(kMostBytes));
  run->add_option("--ring-total", flags->ring_total, "Limit of shared memory per rank (default 64 MiB)")
      ->transform(size)
      ->check(AtMost(kMostBytes));
  run->add_option("--spool-dir", flags->spool_dir,
                  "Fast local directory for the spool (default: beside the rank file)");
  AddWindowOptions(*run, flags->window);
  AddGpuOptions(*run, *flags);
  run->add_option(
         "--live", flags->live_s,
         "While the job runs, rank 0 prints step time, exposed wait and transfer, and the last rank, every SECONDS "
         "seconds")
      ->type_name("SECONDS")
      ->check(CLI::Range(1.0, 86400.0));
  run->add_option(
         "--metrics", flags->metrics,
         "Keep the same figures in this file in Prometheus' text format (for node_exporter's textfile collector)")
      ->type_name("FILE");
  run->add_option("--hang-after", flags->hang_after_s,
                  "When nothing has moved for so long, say which rank holds the job up (see docs/hang.md); 0: never")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  run->add_option("--on-hang", flags->on_hang,
                  "What a hang does to the job: report (nothing), abort, signal:N (to the programs of all ranks)")
      ->type_name("WHAT")
      ->check(Accepted(agent::OnHangOf, "report, abort or signal:N"));
  run->add_option(
         "--stacks", flags->stacks,
         "Stacks: hang (when nothing moves), late (also of a rank that the others wait for, while they do; the "
         "default with --live or --metrics), off, all:HZ; alone or behind a comma, calls: where operations are called")
      ->type_name("WHEN")
      ->check(Accepted(agent::StackPlanOf, "hang, late, off or all:HZ, and calls"));
  run->add_option("--blocked", flags->blocked,
                  "Record when the training thread is blocked in libc: locks, sleeps, files, sockets")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  run->add_flag("--estimate", flags->estimate, "Write nothing; print how much space the window would need");
  run->add_flag("--print-env", flags->print_env, "Print the environment for jobs whose command line you cannot change");
  run->add_flag("--torch-ops", flags->torch_ops, "PyTorch's operators as ranges (about 10 us each)");
  run->add_flag("--torch-shapes", flags->torch_shapes,
                "--torch-ops with the shapes of operators' inputs, and their floating-point operations");
  run->add_flag("-q,--quiet", flags->quiet,
                "Print only the verdict, and where the run is if that is not the directory asked for");
  run->add_flag("--no-variables", flags->no_variables)->group("");
  return run;
}

}  // namespace

void AddRun(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<RecordFlags>();
  AddRunTo(root, flags)->callback([flags, &chosen] {
    flags->command = Program();
    chosen = [flags] { return RunProgram(*flags); };
  });
}

std::string TroubleOfRun(const std::vector<std::string>& words) {
  CLI::App root;
  auto flags = std::make_shared<RecordFlags>();
  AddRunTo(root, flags);
  root.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  const auto window = agent::ParseWindow(flags->window);
  return window.ok() ? TroubleOfPaths(*flags) : window.error().what;
}

}  // namespace lockstep::cli
