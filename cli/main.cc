// The command line. Subcommands are listed here and defined one per file.

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "cli/command.h"
#include "core/version.h"

namespace lockstep::cli {
namespace {

constexpr void (*kCommands[])(CLI::App&, Chosen&) = {AddRun,     AddImport, AddMerge,      AddAnalyze, AddReport,
                                                     AddWhatIf,  AddInfo,   AddExport,     AddOpen,    AddDiff,
                                                     AddRecover, AddDoctor, AddCompletion, AddMan};

// Started without some of them (>&-), a file of ours would get the number, and the
// next message would be written into it. Closed again in whatever is started.
void HoldStandardStreams() {
  int fd;
  do {
    fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

int Main(int argc, char** argv) {
  CLI::App app{"Lockstep: finds what makes a multi-rank training job slower than it should be.", "lockstep"};
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  app.require_subcommand(1);
  app.footer("Start here:  mpirun -np 4 lockstep run -- ./app      then:  lockstep analyze");
  // Tables are read into vectors of megabytes, freed and read again: memory kept by
  // malloc is not faulted in a second time, which shows in the time of whole-table reads.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  Chosen chosen;
  // An agent starts with each rank, and the other commands' flags would be a tenth of its start.
  const bool only_run = argc > 1 && std::strcmp(argv[1], "run") == 0;
  for (auto add : kCommands)
    if (!only_run || add == AddRun) add(app, chosen);
  NameEnvironment(app);
  try {
    app.parse(SplitProgram(app, argc, argv), argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kOk : kUsage;
  }
  return chosen ? chosen() : kUsage;
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  lockstep::cli::HoldStandardStreams();
  return lockstep::cli::Main(argc, argv);
}
