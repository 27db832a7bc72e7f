// lockstep demo: recorded runs that lie beside the program, analysed anew at each call.

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "cli/options/command.h"
#include "cli/options/similar.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "ingest/kineto/read/byte_source.h"
#include "runtime/agent/inject/libraries.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

// The directories of examples/demo, whose `make` records them. In the order in which they are best read.
struct Recorded {
  const char* name;
  const char* command;  // What answers.
  const char* what;     // The job, not the answer.
};
constexpr Recorded kRecorded[] = {
    {"late-rank", "analyze", "C++ and MPI, 2 ranks: one has more to compute"},
    {"small-buckets", "analyze", "C++ and MPI, 2 ranks: gradients travel in many small pieces"},
    {"input", "analyze", "PyTorch DDP over gloo, 2 ranks: one waits for its data"},
    {"slow-link", "analyze", "C++ and MPI, 4 ranks on 4 hosts: one host's network is slow"},
    {"gpu", "analyze", "2 GPU ranks over NCCL (simulated): all-reduces that compute does not hide"},
    {"hang", "hang", "C++ and MPI, 3 ranks: killed because nothing moved any more"},
};

struct DemoFlags {
  std::string which;
  bool list = false;
};

int ShowList() {
  int number = 0;
  bool whole = true;
  for (const Recorded& one : kRecorded) whole &= Show("{}  {:<14} {}\n", ++number, one.name, one.what);
  return whole ? kOk : kFailed;
}

Result<const Recorded*> Find(const std::string& which) {
  if (which.empty()) return &kRecorded[0];
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(which.data(), which.data() + which.size(), number);
  if (error == std::errc() && end == which.data() + which.size() && number >= 1 && number <= std::size(kRecorded))
    return &kRecorded[number - 1];
  std::vector<std::string> names;
  for (const Recorded& one : kRecorded) {
    if (which == one.name) return &one;
    names.emplace_back(one.name);
  }
  const std::string nearest = Nearest(which, names);
  return Error{ErrorCode::kUsage, "there is no demo " + which, "lockstep demo",
               nearest.empty() ? "lockstep demo --list" : "lockstep demo " + nearest};
}

// Copies the files of a run; those that end with .gz are inflated. What was unpacked before is replaced.
Status Unpack(const fs::path& from, const fs::path& to) {
  std::error_code trouble;
  fs::create_directories(to, trouble);
  if (trouble)
    return Error{ErrorCode::kIo, "the run cannot be put there: " + trouble.message(), to.string(),
                 "cd to a directory that can be written"};
  const fs::directory_iterator entries(from, trouble);
  if (trouble) return Error{ErrorCode::kIo, trouble.message(), from.string(), "install Lockstep again"};
  for (const fs::directory_entry& entry : entries) {
    const fs::path target = to / entry.path().filename();
    if (entry.is_directory()) {
      LS_CHECK(Unpack(entry.path(), target));
      continue;
    }
    LS_TRY(const auto source, kineto::OpenSource(entry.path().string()));
    std::string text, block(1 << 16, '\0');
    while (const std::size_t bytes = source->Read(block.data(), block.size())) text.append(block, 0, bytes);
    LS_CHECK(WriteWhole((target.extension() == ".gz" ? fs::path(target).replace_extension() : target).string(), text,
                        "cd to a directory that can be written"));
  }
  return Ok();
}

Result<int> Demo(const DemoFlags& flags) {
  if (flags.list) return ShowList();
  LS_TRY(const Recorded* const chosen, Find(flags.which));
  LS_TRY(const agent::Libraries libraries, agent::FindLibraries());
  const fs::path from = fs::path(libraries.probe).parent_path() / "demo" / chosen->name;
  std::error_code ignored;
  if (!fs::is_directory(from, ignored))
    return Error{ErrorCode::kNotFound, "the recorded run is not there", from.string(), "install Lockstep again"};
  const std::string run = (fs::path("lockstep.out") / ("demo-" + std::string(chosen->name))).string();
  LS_CHECK(Unpack(from, run));
  Note("demo {} of {}: {} (lockstep demo --list)\n$ lockstep {} {}\n", chosen - kRecorded + 1, std::size(kRecorded),
       chosen->what, chosen->command, run);
  ::execl(agent::SelfPath().c_str(), "lockstep", chosen->command, run.c_str(), static_cast<char*>(nullptr));
  return Error{ErrorCode::kIo, std::string("the command cannot be started: ") + std::strerror(errno), agent::SelfPath(),
               std::string("lockstep ") + chosen->command + " " + run};
}

}  // namespace

void AddDemo(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<DemoFlags>();
  CLI::App* app = root.add_subcommand("demo", "Analyse a recorded run that comes with Lockstep");
  app->footer(
      "Examples:\n"
      "  lockstep demo              a job with a late rank\n"
      "  lockstep demo --list       all of them\n"
      "  lockstep demo 2            the second one\n"
      "The run is put into lockstep.out/demo-NAME; every other command takes it from there.");
  app->add_option("demo", flags->which, "Its number or name (default: 1)")->type_name("NUMBER|NAME");
  app->add_flag("--list", flags->list, "List them");
  app->callback([flags, &chosen] { chosen = [flags] { return Demo(*flags); }; });
}

}  // namespace lockstep::cli
