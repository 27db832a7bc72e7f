// lockstep merge: rank files -> timeline.h5.

#include <memory>
#include <string>
#include <vector>

#include "cli/commands/merge_command.h"
#include "cli/input/imported.h"
#include "cli/options/command.h"

namespace lockstep::cli {

void AddMerge(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<MergeFlags>();
  CLI::App* command =
      root.add_subcommand("merge", "Bring the ranks of a run onto one clock and match what they did together");
  command->footer(
      "Examples:\n"
      "  lockstep merge RUN             analyze does this by itself if needed\n"
      "  mpirun -np 8 lockstep-merge-mpi RUN      the same by many processes");
  AddMergeFlags(*command, *flags);
  flags->resolve = [flags = flags.get()](const std::string& run) {
    return ResolveOne(run, {.jobs = flags->jobs, .quiet = flags->quiet});
  };
  command->callback([flags, &chosen] { chosen = [flags] { return RunMerge(*flags, nullptr); }; });
}

}  // namespace lockstep::cli
