// lockstep-merge-mpi: lockstep merge by several processes.
//
//   mpirun -np 4 lockstep-merge-mpi [RUN] [flags of lockstep merge]

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/commands/merge_command.h"
#include "cli/options/command.h"
#include "cli/options/help_format.h"
#include "cli/options/mistakes.h"
#include "core/version.h"
#include "merge/mpi/mpi_team.h"

int main(int argc, char** argv) {
  lockstep::merge::MpiTeam team(argc, argv);
  CLI::App app{"lockstep merge by several processes on one shared file system.", "lockstep-merge-mpi"};
  lockstep::cli::UseHelpFormat(app);
  app.set_version_flag("--version", LOCKSTEP_VERSION);
  app.footer("mpirun -np 4 lockstep-merge-mpi RUN      then:  lockstep analyze RUN");
  lockstep::cli::MergeFlags flags;
  lockstep::cli::AddMergeFlags(app, flags);
  // All processes get the same arguments, so the message of one is enough.
  if (team.index() != 0 && std::freopen("/dev/null", "w", stdout) == nullptr) return lockstep::cli::kFailed;
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (team.index() != 0) return error.get_exit_code() == 0 ? lockstep::cli::kOk : lockstep::cli::kUsage;
    return lockstep::cli::ShowParseError(app, error, std::vector<std::string>(argv + 1, argv + argc));
  }
  const auto code = lockstep::cli::RunMerge(flags, &team);
  if (code.ok()) return code.value();
  if (team.index() == 0) return lockstep::cli::PrintError(code.error());
  return lockstep::cli::ExitCodeOf(code.error().code);
}
