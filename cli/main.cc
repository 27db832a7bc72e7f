// The command line. Subcommands are rows of commands.def and defined one per file.

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "cli/options/command.h"
#include "cli/options/environment.h"
#include "cli/options/help_format.h"
#include "cli/options/mistakes.h"
#include "cli/output/out.h"
#include "comms/launch/launch_env.h"
#include "core/version.h"

namespace lockstep::cli {
namespace {

constexpr void (*kCommands[])(CLI::App&, Chosen&) = {
#define LS_COMMAND(name) Add##name,
#include "cli/commands.def"
#undef LS_COMMAND
};

// If this process was started without some of them (>&-), a file of ours would get the number, and the next message
// would be written into it. They are closed again in every program that is started.
void HoldStandardStreams() {
  int fd;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

void Parse(CLI::App& app, const std::vector<std::string>& words) {
  app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the end.
}

// Inserted before the first "--", if there is one.
void AddVariables(std::vector<std::string>& words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> own(words.begin(), end);
  Variables variables;
  Chosen ignored;
  variables.add = [&](CLI::App& root) {
    for (auto add : kCommands) add(root, ignored);
  };
  variables.parse = Parse;
  const bool run = !own.empty() && own[0] == "run";
  if (run) variables.check = TroubleOfRun;
  std::vector<std::string> warnings;
  const std::vector<std::string> more = WordsOfEnvironment(own, variables, warnings);
  words.insert(words.begin() + (end - words.begin()), more.begin(), more.end());
  const auto quiet = [](const std::string& word) { return word == "--quiet" || word == "--quiet=1" || word == "-q"; };
  // Only one of a job's ranks prints the warnings.
  if (std::any_of(words.begin(), words.end(), quiet) || (run && launch::ReadLaunchEnv().rank > 0)) return;
  for (const std::string& warning : warnings) Note("lockstep: {}\n", warning);
}

int Main(int argc, char** argv) {
  CLI::App app{"Lockstep: finds what makes a multi-rank training job slower than it should be.", "lockstep"};
  UseHelpFormat(app);
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.footer("Start here:  mpirun -np 4 lockstep run -- ./app      then:  lockstep analyze");
  // Tables are read into vectors of megabytes, freed and read again. Memory that malloc keeps is not faulted in a
  // second time, which is measurable in whole-table reads.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  if (argc <= 1) return ShowNextSteps();
  Chosen chosen;
  // An agent starts with each rank, and making the other commands' flags would take a tenth of its start.
  const bool only_run = argc > 1 && std::strcmp(argv[1], "run") == 0;
  for (auto add : kCommands)
    if (!only_run || add == AddRun) add(app, chosen);
  std::vector<std::string> words(argv + 1, argv + std::max(1, SplitProgram(app, argc, argv)));
  // As git, cargo and docker have them.
  if (words.size() == 1 && words[0] == "version") words = {"--version"};
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  AddVariables(words);
  try {
    Parse(app, words);
  } catch (const CLI::ParseError& error) {
    NameEnvironment(app);  // For the help.
    return ShowParseError(app, error, words);
  }
  NameEnvironment(app);
  if (!chosen) return kUsage;
  const Result<int> code = chosen();
  return code.ok() ? code.value() : PrintError(code.error());
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  using namespace lockstep::cli;
  HoldStandardStreams();
  const int code = Main(argc, argv);
  if (OutputError() == 0 || OutputError() == EPIPE) return code;  // `| head` has read what it wants.
  const lockstep::Error full{lockstep::ErrorCode::kIo, "standard output does not take what is shown",
                             std::generic_category().message(OutputError()), "write to a disk with free space"};
  return PrintError(full);
}
