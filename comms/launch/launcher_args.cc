#include "comms/launch/launcher_args.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>

#include "core/hex.h"
#include "core/own_file.h"

namespace lockstep::launch {
namespace {

// Words that follow each option. Open MPI takes every long name with one dash or two.
constexpr std::string_view kNoWord[] = {
    // Open MPI 4.1
    "allow-run-as-root",
    "bind-to-core",
    "bind-to-socket",
    "bycore",
    "bynode",
    "byslot",
    "continuous",
    "d",
    "debug-devel",
    "debug",
    "debug-daemons",
    "debug-daemons-file",
    "disable-recovery",
    "display-allocation",
    "display-devel-allocation",
    "display-devel-map",
    "display-diffable-map",
    "display-map",
    "display-topo",
    "do-not-launch",
    "do-not-resolve",
    "enable-instant-on-support",
    "enable-recovery",
    "forward-signals-off",
    "fwd-mpirun-port",
    "get-stack-traces",
    "index-argv-by-rank",
    "leave-session-attached",
    "merge-stderr-to-stdout",
    "nolocal",
    "nooversubscribe",
    "noprefix",
    "novm",
    "no-ready-msg",
    "output-proctable",
    "oversubscribe",
    "pernode",
    "q",
    "quiet",
    "report-bindings",
    "report-child-jobs-separately",
    "report-state-on-timeout",
    "s",
    "preload-binary",
    "set-cwd-to-session-dir",
    "show-progress",
    "staged",
    "tag-output",
    "timestamp-output",
    "tv",
    "use-hwthread-cpus",
    "use-regexp",
    "v",
    "verbose",
    "wait-for-server",
    "xml",
    "daemonize",
    "bind-to-none",
    "bycluster",
    "num-boards",
    "sched-by-core",
    // MPICH hydra
    "genvnone",
    "genvall",
    "envnone",
    "envall",
    "l",
    "prepend-rank",
    "info",
    "enable-x",
    "disable-x",
    "usize-infinite",
    "disable-auto-cleanup",
    "disable-hostname-propagation",
};
constexpr std::string_view kOneWord[] = {
    // Open MPI 4.1
    "am",
    "bind-to",
    "c",
    "np",
    "cf",
    "cartofile",
    "cpu-list",
    "cpu-set",
    "cpus-per-proc",
    "cpus-per-rank",
    "debugger",
    "default-hostfile",
    "dvm-master-timeout",
    "H",
    "host",
    "hnp",
    "hostfile",
    "launch-agent",
    "machinefile",
    "map-by",
    "max-restarts",
    "max-vm-size",
    "N",
    "n",
    "npernode",
    "npersocket",
    "ompi-server",
    "output-filename",
    "path",
    "personality",
    "ppr",
    "prefix",
    "preload-files",
    "preload-files-dest-dir",
    "rank-by",
    "report-events",
    "report-pid",
    "report-uri",
    "rf",
    "rankfile",
    "server-wait-time",
    "slot-list",
    "stdin",
    "timeout",
    "tmpdir",
    "tune",
    "wd",
    "wdir",
    "x",
    "xml-file",
    "xterm",
    "num-procs",
    "forward-signals",
    "dvm-uri",
    "output",
    "runtime-options",
    "pset",
    "display",
    // MPICH hydra
    "f",
    "hosts",
    "ppn",
    "genvlist",
    "envlist",
    "launcher",
    "launcher-exec",
    "bootstrap",
    "bootstrap-exec",
    "iface",
    "rmk",
    "ranks-per-proc",
    "usize",
    "arch",
    "soft",
    "file",
    "print-rank-map",
    "outfile-pattern",
    "errfile-pattern",
    "membind",
    "topolib",
    "demux",
    "nameserver",
    "localhost",
    "pmi-port",
    "port-range",
    "perhost",
};
constexpr std::string_view kTwoWords[] = {"mca", "gmca", "omca", "pmca", "prtemca", "env", "genv"};
// Options after which there is no program on the command line, or none at all.
constexpr std::string_view kElsewhere[] = {"app", "configfile", "dvm", "hnp-uri"};

// srun's options without a value; all its other long ones take the next word
// unless written as --name=value (srun.c of Slurm 22.05, option tables).
constexpr std::string_view kSrunFlags[] = {
    "contiguous",
    "disable-status",
    "exact",
    "exclusive",
    "external-launcher",
    "help",
    "hold",
    "immediate",
    "interactive",
    "kill-on-bad-exit",
    "label",
    "no-allocate",
    "no-kill",
    "overcommit",
    "overlap",
    "oversubscribe",
    "preserve-env",
    "propagate",
    "pty",
    "quiet",
    "quit-on-interrupt",
    "reboot",
    "spread-job",
    "test-only",
    "threads",
    "unbuffered",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wckey-off",
    "whole",
    "x11",
    "send-libs",
};
// Letters of srun's short options that take a value; the others are flags (I and K: attached value only).
constexpr std::string_view kSrunLetters = "ABcCdDeFgGiJLmMnNopPqrStTUwWx";
constexpr std::string_view kSrunLetterFlags = "EhHIjkKlOQsuvVXZ";

// torchrun's options with a value (in the next word unless written as --name=value), dashes or underscores.
constexpr std::string_view kTorchrunOneWord[] = {
    "nnodes",
    "nproc-per-node",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "max-restarts",
    "monitor-interval",
    "start-method",
    "event-log-handler",
    "role",
    "log-dir",
    "redirects",
    "tee",
    "local-ranks-filter",
    "duplicate-stdout-filters",
    "duplicate-stderr-filters",
    "node-rank",
    "master-addr",
    "master-port",
    "local-addr",
    "logs-specs",
    "numa-binding",
    "signals-to-handle",
    "shutdown-timeout",
};
constexpr std::string_view kPythonFlags[] = {"-u", "-B", "-O", "-OO", "-q", "-s", "-P", "-b", "-bb"};
constexpr std::string_view kTorchrunFlags[] = {"standalone", "virtual-local-rank"};

template <std::size_t N>
bool In(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

Error Unknown(std::string_view option, std::string_view launcher) {
  return {ErrorCode::kUsage,
          "unknown option of " + std::string(launcher) + ", so it is unclear where the program begins",
          std::string(option), std::string(launcher) + " ... lockstep run -- PROGRAM (lockstep behind the options)"};
}

// Position of the program in [begin, end), or end.
Result<std::size_t> ProgramOfMpirun(const std::vector<std::string>& words, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::string& word = words[i];
    if (word == "--") return std::min(i + 1, end);
    if (word.size() < 2 || word[0] != '-') return i;
    const std::string_view name = std::string_view(word).substr(word[1] == '-' ? 2 : 1);
    if (In(kElsewhere, name))
      return Error{ErrorCode::kUsage, "the programs are not on this command line", word,
                   "put `lockstep run --` before each program there"};
    if (In(kNoWord, name) || name.find('=') != std::string_view::npos) continue;
    if (In(kOneWord, name)) {
      i += 1;
    } else if (In(kTwoWords, name)) {
      i += 2;
    } else if (word[1] != '-' && name.find_first_not_of("dqvs") == std::string_view::npos) {
      continue;  // Several single letters in one word.
    } else if (name == "h" || name == "help" || name == "V" || name == "version") {
      return end;
    } else {
      return Unknown(word, BaseName(words[0]));
    }
  }
  return end;
}

Result<std::size_t> ProgramOfSrun(const std::vector<std::string>& words, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < end; ++i) {
    const std::string& word = words[i];
    if (word == "--") return std::min(i + 1, end);
    if (word.size() < 2 || word[0] != '-') return i;
    if (word[1] == '-') {
      const std::string_view name = std::string_view(word).substr(2);
      if (name == "multi-prog")
        return Error{ErrorCode::kUsage, "the programs are not on this command line", word,
                     "put `lockstep run --` before each program in the file"};
      if (name.find('=') == std::string_view::npos && !In(kSrunFlags, name)) i += 1;
      continue;
    }
    for (std::size_t at = 1; at < word.size(); ++at) {
      if (kSrunLetterFlags.find(word[at]) != std::string_view::npos) {
        // -I60, -K0: the rest is the optional value.
        if (std::string_view("IK").find(word[at]) != std::string_view::npos) break;
        continue;
      }
      if (kSrunLetters.find(word[at]) == std::string_view::npos) return Unknown(word, "srun");
      if (at + 1 == word.size()) i += 1;  // Value in the next word; else attached.
      break;
    }
  }
  return end;
}

}  // namespace

Launcher RecognizeLauncher(std::string_view program) {
  const std::string_view base = BaseName(program);
  const std::string_view name = base.substr(0, base.find('.'));
  for (const std::string_view known : {"mpirun", "mpiexec", "orterun", "prterun"})
    if (name == known) return Launcher::kMpirun;
  if (base == "torchrun") return Launcher::kTorchrun;
  return base == "srun" ? Launcher::kSrun : Launcher::kNone;
}

Result<std::vector<std::string>> InsertAgent(const std::vector<std::string>& command,
                                             const std::vector<std::string>& agent,
                                             const std::vector<std::string>& options) {
  const Launcher launcher = command.empty() ? Launcher::kNone : RecognizeLauncher(command[0]);
  if (launcher != Launcher::kMpirun && launcher != Launcher::kSrun)
    return Error{ErrorCode::kUsage, "not a launcher Lockstep knows", command.empty() ? "" : command[0],
                 "LAUNCHER ... lockstep run -- PROGRAM"};
  std::vector<std::string> out = {command[0]};
  std::size_t begin = 1;
  bool any = false;
  for (;;) {
    const auto colon = std::find(command.begin() + static_cast<std::ptrdiff_t>(begin), command.end(), ":");
    const auto end = static_cast<std::size_t>(colon - command.begin());
    LS_TRY(const std::size_t program,
           launcher == Launcher::kSrun ? ProgramOfSrun(command, begin, end) : ProgramOfMpirun(command, begin, end));
    const std::size_t at = std::min(program, end);
    out.insert(out.end(), command.begin() + static_cast<std::ptrdiff_t>(begin),
               command.begin() + static_cast<std::ptrdiff_t>(at));
    if (at < end) out.insert(out.end() - (out.back() == "--" ? 1 : 0), options.begin(), options.end());
    if (at < end) {
      any = true;
      const bool there = BaseName(command[at]) == "lockstep" && at + 1 < end && command[at + 1] == "run";
      if (!there) out.insert(out.end(), agent.begin(), agent.end());
      out.insert(out.end(), command.begin() + static_cast<std::ptrdiff_t>(at), colon);
    }
    if (colon == command.end()) break;
    out.emplace_back(":");
    begin = end + 1;
  }
  if (!any)
    return Error{ErrorCode::kUsage, "no program after the launcher's options", command[0],
                 "lockstep run -- " + command[0] + " -np 4 ./app"};
  return out;
}

std::size_t WordsOfTorchrun(const std::vector<std::string>& command) {
  if (command.empty()) return 0;
  if (BaseName(command[0]) == "torchrun") return 1;
  if (!BaseName(command[0]).starts_with("python")) return 0;
  std::size_t at = 1;
  // Switches that take no further word; after other switches it is unclear what the next word is.
  while (at < command.size() && In(kPythonFlags, command[at])) ++at;
  const bool module = at + 1 < command.size() && command[at] == "-m" && command[at + 1] == "torch.distributed.run";
  return module ? at + 2 : 0;
}

namespace {

// Python's switch that replaces it by the agent, which gets the interpreter and the words behind the switch. torchrun's
// report of a worker that failed names its first word without a dash, if the worker is started by torchrun's own Python
// (_get_entrypoint_name in torch/distributed/launcher/api.py, 1.13 to 2.15): that has to be the script.
std::string StartAgent(const std::vector<std::string>& agent, const std::string& python, bool module) {
  std::vector<std::string> words = agent;
  words.insert(words.end(), {python, "-u"});
  if (module) words.emplace_back("-m");
  std::string code = "-cimport os,sys;w=[";
  for (const std::string& word : words) {
    code += "b'";
    for (const char c : word)
      code += std::isalnum(static_cast<unsigned char>(c)) || std::strchr("/-_.=,:", c) != nullptr
                  ? std::string(1, c)
                  : "\\x" + Hex(static_cast<unsigned char>(c), 2);
    code += "',";
  }
  return code + "];os.execvp(w[0],w+sys.argv[1:])";
}

}  // namespace

Result<std::vector<std::string>> InsertAgentForTorchrun(const std::vector<std::string>& command,
                                                        const std::vector<std::string>& agent,
                                                        const std::string& python) {
  const Error unknown{ErrorCode::kUsage, "it is unclear how torchrun will start the program",
                      command.empty() ? "" : command[0], "torchrun ... --no-python lockstep run -- python SCRIPT"};
  bool module = false, plain = false;
  const std::size_t own = WordsOfTorchrun(command);
  if (own == 0) return unknown;
  std::vector<std::string> out(command.begin(), command.begin() + static_cast<std::ptrdiff_t>(own));
  for (std::size_t i = own; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (word.size() < 2 || word[0] != '-') {
      if (!plain && python.empty()) return unknown;
      if (plain)
        out.insert(out.end(), agent.begin(), agent.end());
      else  // "--no_python": with dashes from PyTorch 2.0 on only.
        out.insert(out.end(), {"--no_python", python, "-IS", StartAgent(agent, python, module)});
      out.insert(out.end(), command.begin() + static_cast<std::ptrdiff_t>(i), command.end());
      const bool there = plain && BaseName(word) == "lockstep" && i + 1 < command.size() && command[i + 1] == "run";
      return there ? command : out;
    }
    std::string name = word.substr(word[1] == '-' ? 2 : 1);
    std::replace(name.begin(), name.end(), '_', '-');
    const bool attached = name.find('=') != std::string::npos;
    name.resize(std::min(name.find('='), name.size()));
    const bool letter = word[1] != '-';
    if (letter ? word == "-m" : name == "module") {
      module = true;  // Passed to Python instead.
      continue;
    }
    plain = plain || name == "no-python";
    out.push_back(word);
    if (letter ? (word[1] == 'r' || word[1] == 't') : In(kTorchrunOneWord, name)) {
      if (letter ? word.size() > 2 : attached) continue;
      if (++i < command.size()) out.push_back(command[i]);
    } else if (letter || (!In(kTorchrunFlags, name) && name != "no-python")) {
      return unknown;  // --help, --run-path, options of other versions and abbreviated ones.
    }
  }
  return unknown;
}

std::vector<std::string> ForwardVariables(const std::vector<std::string>& command, std::string_view launcher,
                                          const std::vector<std::string>& environment) {
  const std::string_view name = BaseName(launcher);
  if (name != "orterun" && name != "prterun" && name != "mpirun.openmpi" && name != "mpiexec.openmpi") return {};
  // "You can use -x or mca_base_env_list, not both": orterun of 4.1.4 then does not start anything.
  const auto excludes = [](const std::string& word) { return word.find("mca_base_env_list") != std::string::npos; };
  if (std::any_of(command.begin(), command.end(), excludes)) return {};
  std::vector<std::string> options;
  for (const std::string& variable : environment) {
    if (excludes(variable)) return {};
    const std::string key = variable.substr(0, variable.find('='));
    // Forward what the user set, but no variable that Lockstep's processes set for each other.
    if (!key.starts_with("LOCKSTEP_") || key == "LOCKSTEP_SEGMENT" || key == "LOCKSTEP_NCCL_PLUGIN_CHAINED") continue;
    const auto given = [&](const std::string& word) { return word == key || word.starts_with(key + "="); };
    if (std::none_of(command.begin(), command.end(), given)) options.insert(options.end(), {"-x", key});
  }
  return options;
}

}  // namespace lockstep::launch
