// lockstep gather: one run directory out of those of several hosts.

#include "cli/gather/gather.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/run/ranks_recorded.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/progress.h"
#include "merge/readers/run_files.h"
#include "merge/work_lock.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

struct GatherFlags {
  std::vector<std::string> places;
  std::string output;
  // A host that is down, or goes down meanwhile, must not hold the others up.
  std::string rsh = "ssh -o ConnectTimeout=20 -o ServerAliveInterval=20";
  bool quiet = false;
};

// What of the files had this end.
struct Counted {
  std::size_t files = 0;
  std::uint64_t bytes = 0;
};

Counted Count(const GatheredPlace& place, FileEnd end) {
  Counted counted;
  for (const GatheredFile& file : place.files) {
    if (file.end != end) continue;
    ++counted.files;
    counted.bytes += file.bytes;
  }
  return counted;
}

std::string CountText(const Counted& counted) {
  return analysis::Plural(static_cast<std::int64_t>(counted.files), "file") + " (" +
         analysis::Bytes(static_cast<double>(counted.bytes)) + ")";
}

std::string WhyOf(const GatheredFile& file) {
  return file.end == FileEnd::kDifferent ? "another file of this name is here; it was left as it is" : file.why;
}

// Shows what was had from where, and returns the first thing that was not; its `what` is empty if there is none.
Error ShowPlaces(const std::vector<GatheredPlace>& places, bool quiet) {
  Error first{ErrorCode::kIo, "", "", ""};
  const auto missing = [&](const std::string& what, const std::string& where, const std::string& hint) {
    if (first.what.empty()) first = {ErrorCode::kIo, what, where, hint};
  };
  for (const GatheredPlace& place : places) {
    const std::string name = TextOf(place.place);
    if (!place.trouble.empty()) {
      if (!quiet) Show("  {}  nothing: {}\n", name, place.trouble);
      missing(
          "nothing could be had from one of the directories: " + place.trouble, name,
          "see that `HOST true` works with the remote shell (--rsh) and DIR is there, then run this again: what was "
          "copied is kept");
      continue;
    }
    const Counted copied = Count(place, FileEnd::kCopied), kept = Count(place, FileEnd::kKept);
    if (!quiet)
      Show("  {}  {} copied{}\n", name, CountText(copied),
           kept.files == 0 ? "" : ", " + CountText(kept) + " were here already");
    for (const GatheredFile& file : place.files) {
      if (file.end == FileEnd::kCopied || file.end == FileEnd::kKept) continue;
      if (!quiet) Show("    {}  not copied: {}\n", file.name, WhyOf(file));
      missing("a file was not copied: " + WhyOf(file), name + "/" + file.name,
              file.end == FileEnd::kDifferent  ? "compare the two, and gather into another directory with -o"
              : file.end == FileEnd::kOtherRun ? "name directories of one run only"
              : file.end == FileEnd::kUnread
                  ? "look at it where it is: lockstep recover there completes what a killed run left; then run this "
                    "again: what was copied is kept"
                  : "see that there is room here and the job has ended, then run this again: what was copied is kept");
    }
  }
  return first;
}

Result<std::vector<GatheredPlace>> GatherInto(const GatherOptions& options, bool quiet) {
  ::signal(SIGPIPE, SIG_IGN);  // A program that does not read any more is reported.
  std::error_code error;
  const bool made = fs::create_directories(options.run, error);
  if (error)
    return Error{ErrorCode::kIo, "the run directory cannot be made: " + error.message(), options.run,
                 "name a directory that can be written to with -o"};
  Result<std::vector<GatheredPlace>> places = std::vector<GatheredPlace>();
  {
    merge::WorkLock lock(merge::WorkLockOf(options.run), options.run,
                         [](const std::string& text) { Note("lockstep: {}\n", text); });
    if (lock.others_at_it())
      return Error{ErrorCode::kIo, "another lockstep command works on this run and makes no progress", options.run,
                   "end it, then run this again"};
    Progress progress(quiet);
    places = Gather(options, [&](std::string_view phase, double done) {
      lock.Touch();
      progress.Show(phase, done);
    });
  }
  // Nothing came into a directory that was made for it: these remove empty ones only.
  if (made) {
    ::rmdir((options.run + "/ranks").c_str());
    ::rmdir(options.run.c_str());
  }
  return places;
}

Result<int> RunGather(const GatherFlags& flags) {
  GatherOptions options{.places = {}, .run = flags.output, .rsh = CLI::detail::split_up(flags.rsh)};
  if (options.rsh.empty()) return Error{ErrorCode::kUsage, "--rsh names no program", flags.rsh, "--rsh ssh"};
  for (const std::string& text : flags.places) {
    LS_TRY(Place place, ParsePlace(text));
    options.places.push_back(std::move(place));
  }
  while (options.run.size() > 1 && options.run.back() == '/') options.run.pop_back();
  LS_TRY(const auto places, GatherInto(options, flags.quiet));
  if (!flags.quiet) Show("{}\n", options.run);
  const Error first = ShowPlaces(places, flags.quiet);
  const Result<merge::RunFiles> run = merge::OpenRun(options.run, 0);
  if (!run.ok()) return first.what.empty() ? run.error() : first;
  const merge::RunFiles& files = run.value();
  if (!flags.quiet)
    Show("{}\nnext: lockstep analyze {}\n",
         analysis::RanksRecorded(static_cast<std::int64_t>(files.ranks.size()), files.world_size, files.missing),
         TypedWord(options.run));
  if (!first.what.empty()) {
    PrintError(first);
    return kIncomplete;
  }
  if (!files.missing.empty()) {
    PrintError({ErrorCode::kDataLoss, "there are no files of " + analysis::RankNames(files.missing), options.run,
                "name the directories of the hosts on which they ran, too; what is here is kept"});
    return kIncomplete;
  }
  return kOk;
}

}  // namespace

void AddGather(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<GatherFlags>();
  CLI::App* app = root.add_subcommand(
      "gather", "Copy the files of a run from several hosts into one directory; nothing there changes");
  app->footer(
      "Examples:\n"
      "  lockstep gather node1:/mnt/job/lockstep.out/20261124-101500-7e11 "
      "node2:/mnt/job/lockstep.out/20261124-101501-7e11 "
      "-o RUN\n"
      "  lockstep gather --rsh 'ssh -p 2222' me@node2:RUN ./RUN.part -o RUN      files that are there already are "
      "kept");
  app->add_option("places", flags->places, "Run directories, each HOST:DIR, or DIR on this machine")
      ->type_name("PLACE")
      ->required();
  app->add_option("-o,--output", flags->output, "The run directory that is made, or to which files are added")
      ->type_name("RUN")
      ->required();
  app->add_option("--rsh", flags->rsh, "Remote shell and its options, called with HOST and `sh` (default: ssh)")
      ->type_name("COMMAND");
  app->add_flag("-q,--quiet", flags->quiet, "Print errors only");
  app->callback([flags, &chosen] { chosen = [flags] { return RunGather(*flags); }; });
}

}  // namespace lockstep::cli
