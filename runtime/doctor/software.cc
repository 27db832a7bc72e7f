// Checks the parts of Lockstep, and whether they are loaded into programs.

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/mpi_ops.h"
#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/injection.h"
#include "runtime/agent/rundir/list_entries.h"
#include "runtime/doctor/check.h"
#include "runtime/lockstep.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "lockstep doctor";
constexpr int kBarriers = 3, kSelfTestSeconds = 30;

// Removed with everything in it.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    const std::string wanted = agent::Environment("TMPDIR");
    path_ = (wanted.starts_with('/') ? wanted : std::string("/tmp")) + "/lockstep-doctor-XXXXXX";
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.rfind('\n') + 1);
  return text.substr(0, 200);
}

// The recordings of a self-test's ranks.
struct Recorded {
  std::string trouble;  // "" none.
  int files = 0, marks = 0, barriers = 0;
};

Recorded RunSelfTest(const Machine& machine, bool mpi, int ranks) {
  Recorded recorded;
  const ScratchDirectory scratch;
  if (scratch.path().empty()) {
    recorded.trouble = "no temporary directory can be made";
    return recorded;
  }
  const std::string self = agent::SelfPath(), run = scratch.path() + "/run";
  std::vector<std::string> words;
  if (mpi) {
    words = {"mpirun", "--oversubscribe", "-np", std::to_string(ranks)};
    // Open MPI 4 refuses root otherwise.
    if (machine.superuser()) words.insert(words.begin() + 1, "--allow-run-as-root");
  }
  words.insert(words.end(), {self, "run", "--quiet", "--after", "none", "--gpu", "off", "-o", run, "--", self, "doctor",
                             "--self-test-child", mpi ? "mpi" : "marks"});
  const CommandOutput output = machine.run(words, kSelfTestSeconds);
  if (!output.started || output.timed_out || output.code != 0) {
    recorded.trouble = !output.started ? words[0] + " cannot be started: " + output.text
                       : output.timed_out
                           ? fmt::format("it did not end within {} s", kSelfTestSeconds)
                           : fmt::format("it ended with code {}: {}", output.code, LastLine(output.text));
    return recorded;
  }
  std::error_code ignored;
  for (fs::directory_iterator at(run + "/ranks", ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (at->path().extension() != ".h5") continue;
    const auto contents = trace::ReadRankFile(at->path().string());
    if (!contents.ok()) continue;
    ++recorded.files;
    const schema::RankTables& tables = contents.value().tables;
    for (const std::uint32_t name : tables.ranges.name) recorded.marks += trace::TextOf(tables, name) == kMark;
    for (std::size_t i = 0; i < tables.mpi_calls.rows(); ++i)
      if (tables.mpi_calls.op[i] == static_cast<std::uint16_t>(MpiOp::kBarrier))
        recorded.barriers += static_cast<int>(tables.mpi_calls.count[i]);
  }
  if (recorded.files == 0)
    recorded.trouble = "it left no rank file" + (output.text.empty() ? "" : ": " + LastLine(output.text));
  return recorded;
}

// The launcher's family and version, from what `mpirun --version` prints.
struct Launcher {
  std::string path, text;
  agent::LinkedMpi family = agent::LinkedMpi::kOther;

  bool open_mpi() const { return !path.empty() && family == agent::LinkedMpi::kOpenMpi4; }
};
Launcher FindLauncher(const Machine& machine) {
  Launcher launcher;
  for (const char* name : {"mpirun", "mpiexec"})
    if (launcher.path.empty()) launcher.path = machine.find_program(name);
  if (launcher.path.empty()) return launcher;
  const CommandOutput output = machine.run({launcher.path, "--version"}, 10);
  launcher.text = output.text.substr(0, output.text.find('\n'));
  const auto says = [&](const char* word) { return output.text.find(word) != std::string::npos; };
  if (says("Open MPI") || says("OpenRTE")) {
    launcher.family = agent::LinkedMpi::kOpenMpi4;
  } else if (says("HYDRA") || says("Intel(R) MPI")) {
    launcher.family = agent::LinkedMpi::kMpich;
    if (const std::size_t at = output.text.find("Version:"); says("HYDRA") && at != std::string::npos) {
      const std::size_t number = output.text.find_first_not_of(" \t", at + 8);
      launcher.text = "MPICH's HYDRA " + output.text.substr(number, output.text.find_first_of(" \n", number) - number);
    }
  }
  return launcher;
}

Finding Refused(const Machine& machine, std::string_view source, std::string good) {
  const auto libraries = machine.libraries();
  if (!libraries.ok()) return {Status::kNotHere, "Lockstep's libraries were not found", ""};
  const auto injection = agent::PlanInjection(libraries.value(), "", "");
  if (!injection.ok()) return {Status::kBlocker, injection.error().what, injection.error().hint};
  injection.value().RemoveLink();
  for (const agent::RefusedSource& refused : injection.value().refused)
    if (refused.source.starts_with(source))
      return {Status::kWarning, refused.source + ": " + refused.why, refused.remedy};
  return {Status::kOk, std::move(good), ""};
}

}  // namespace

Finding LookAtLibraries(const Machine& machine) {
  const auto libraries = machine.libraries();
  if (!libraries.ok())
    return {Status::kBlocker, libraries.error().what + " (" + libraries.error().where + ")", libraries.error().hint};
  const agent::Libraries& found = libraries.value();
  std::string missing;
  if (found.mpi.empty()) missing += " no MPI wrappers (built without MPI);";
  for (const auto& [kind, name] :
       {std::pair(agent::LinkedMpi::kOpenMpi4, "Open MPI"), std::pair(agent::LinkedMpi::kMpich, "MPICH")})
    if (!found.mpi.empty() && !found.Wraps(kind)) missing += fmt::format(" no MPI wrappers for {};", name);
  if (found.gpu.empty()) missing += " no GPU library;";
  if (found.clock_program.empty()) missing += " no lockstep-clock;";
  if (found.stacks_program.empty()) missing += " no lockstep-stacks (built without libdw);";
  if (!missing.empty()) missing.back() = ' ';
  return {Status::kOk,
          "libraries in " + found.probe.substr(0, found.probe.rfind('/')) + (missing.empty() ? "" : ":" + missing), ""};
}

Finding TestProbe(const Machine& machine) {
  if (!machine.libraries().ok()) return {Status::kNotHere, "without its library nothing can be tested", ""};
  const Recorded recorded = RunSelfTest(machine, false, 1);
  if (recorded.trouble.empty() && recorded.marks == 1)
    return {Status::kOk, "a program that was run under Lockstep was recorded", ""};
  return {Status::kBlocker,
          "a program that was run under Lockstep was not recorded" +
              (recorded.trouble.empty() ? std::string(": LD_PRELOAD has no effect here") : ": " + recorded.trouble),
          "see what `lockstep run -- true` says; a security policy (seccomp, AppArmor) may keep LD_PRELOAD out"};
}

Finding LookAtPreload(const Machine& machine) {
  const std::string preload = agent::Environment("LD_PRELOAD");
  if (preload.empty()) return {Status::kOk, "nothing else is preloaded", ""};
  std::string missing;
  for (const std::string& entry : agent::ListEntries(preload, " :")) {
    const std::string path = machine.find_library(entry);
    if (path.empty() || ::access(path.c_str(), R_OK) != 0) missing += (missing.empty() ? "" : ", ") + entry;
  }
  if (!missing.empty())
    return {Status::kWarning, "LD_PRELOAD names files that do not exist: " + missing, "unset it, or correct the path"};
  return {Status::kOk, "LD_PRELOAD is kept, and Lockstep is added behind it: " + preload, ""};
}

Finding LookAtMpi(const Machine& machine) {
  const auto libraries = machine.libraries();
  const Launcher launcher = FindLauncher(machine);
  const std::string open_mpi = machine.find_library("libmpi.so.40"), mpich = machine.find_library("libmpi.so.12");
  if (launcher.path.empty() && open_mpi.empty() && mpich.empty()) return {Status::kNotHere, "no MPI was found", ""};
  if (libraries.ok() && libraries.value().mpi.empty())
    return {Status::kBlocker,
            "MPI is here (" + (launcher.text.empty() ? open_mpi + mpich : launcher.text) +
                ") but this Lockstep was built without it: MPI calls are not recorded",
            "build Lockstep where mpi.h is (Debian: libopenmpi-dev)"};
  if (!launcher.path.empty() && launcher.family == agent::LinkedMpi::kOther)
    return {Status::kWarning,
            fmt::format("{} is {}: programs of Open MPI and MPICH are recorded, others run unrecorded", launcher.path,
                        launcher.text.empty() ? "not known" : launcher.text),
            "build and start the program with Open MPI or MPICH (module load openmpi)"};
  const agent::LinkedMpi family = !launcher.path.empty() ? launcher.family
                                  : !open_mpi.empty()    ? agent::LinkedMpi::kOpenMpi4
                                                         : agent::LinkedMpi::kMpich;
  const std::string what = !launcher.text.empty() ? launcher.text : !open_mpi.empty() ? open_mpi : mpich;
  const bool is_open_mpi = family == agent::LinkedMpi::kOpenMpi4;
  if (libraries.ok() && !libraries.value().Wraps(family))
    return {Status::kBlocker,
            fmt::format("{}: this Lockstep was built without {}: MPI calls are not recorded", what,
                        is_open_mpi ? "Open MPI" : "MPICH"),
            is_open_mpi ? "build Lockstep where its mpi.h is (Debian: libopenmpi-dev)"
                        : "build Lockstep where its mpi.h is (Debian: libmpich-dev)"};
  // Open MPI 5 kept the library's number (libmpi.so.40), and with it the interface.
  const std::size_t number = launcher.text.find_last_of(' ');
  const int major = number == std::string::npos ? 0 : std::atoi(launcher.text.c_str() + number + 1);
  if (is_open_mpi && major != 4 && major != 5 && major != 0)
    return {Status::kWarning, what + ": tested are Open MPI 4.1 and 5.0", "use Open MPI 4.1 or 5.0"};
  return {Status::kOk, what, ""};
}

Finding TestMpi(const Machine& machine) {
  const auto libraries = machine.libraries();
  const Launcher launcher = FindLauncher(machine);
  if (!libraries.ok() || libraries.value().mpi.empty() || !launcher.open_mpi())
    return {Status::kNotHere, "no Open MPI to be tested", ""};
  constexpr int kRanks = 2;
  const Recorded recorded = RunSelfTest(machine, true, kRanks);
  if (recorded.trouble.empty() && recorded.files == kRanks && recorded.barriers == kRanks * kBarriers)
    return {Status::kOk, fmt::format("{} ranks under mpirun: every MPI call was recorded", kRanks), ""};
  return {Status::kBlocker,
          recorded.trouble.empty()
              ? fmt::format("{} ranks made {} MPI_Barrier calls, {} were recorded in {} files", kRanks,
                            kRanks * kBarriers, recorded.barriers, recorded.files)
              : fmt::format("a test of {} ranks under mpirun failed: {}", kRanks, recorded.trouble),
          recorded.trouble.empty() ? "another tool's MPI wrappers may come first: see mpi_tools and preload"
                                   : "see whether `mpirun -np 2 hostname` works"};
}

Finding LookAtMpiTools(const Machine& machine) {
  const auto libraries = machine.libraries();
  if (!libraries.ok() || libraries.value().mpi.empty()) return {Status::kNotHere, "MPI is not recorded here", ""};
  // The loader's own search, which preloads what will be; it starts nothing.
  std::string program = machine.program.empty() ? agent::SelfPath() : machine.find_program(machine.program);
  if (const std::string interpreter = agent::ScriptInterpreter(program); !interpreter.empty())
    program = machine.find_program(interpreter);
  const CommandOutput loaded = machine.run({agent::LookAtElf(program).interpreter, "--list", program}, 10);
  std::vector<std::string> files = {program};
  for (const std::string& line : agent::ListEntries(loaded.text, "\n")) {
    // "NAME => PATH (0x...)" or "PATH (0x...)".
    const std::size_t arrow = line.find("=> "), end = line.rfind(" (0x");
    const std::size_t begin = arrow == std::string::npos ? line.find_first_not_of(" \t") : arrow + 3;
    if (begin < end && end != std::string::npos) files.push_back(line.substr(begin, end - begin));
  }
  std::string tools;
  for (const std::string& file : files) {
    const agent::OwnMpi own = agent::LookForMpi(file);
    if (own.library) break;  // What comes behind it is not called.
    if (!own.wrapper.empty()) tools += (tools.empty() ? "" : ", ") + file;
  }
  if (tools.empty()) return {Status::kOk, "no other tool's MPI wrappers (Score-P, TAU and others) are in the way", ""};
  return {Status::kOk, "calls that another tool's MPI wrappers take first are recorded behind it: " + tools, ""};
}

Finding LookAtNvtx(const Machine& machine) { return Refused(machine, "NVTX", "no other tool uses the NVTX injection"); }

Finding TestHdf5(const Machine&) {
  const ScratchDirectory scratch;
  if (scratch.path().empty())
    return {Status::kWarning, "no temporary directory can be made, so it was not tested",
            "set TMPDIR to a directory that can be written"};
  const std::string path = scratch.path() + "/test.h5";
  schema::RankTables tables;
  tables.ranges.Append({.begin_ns = 1, .duration_ns = 2});
  if (const lockstep::Status written = trace::WriteRankFile(path, tables); !written.ok())
    return {Status::kBlocker, "a rank file cannot be written: " + written.error().what,
            "check HDF5's library and TMPDIR"};
  const auto read = trace::ReadRankFile(path);
  if (!read.ok() || !read.value().complete || read.value().tables.ranges.duration_ns != tables.ranges.duration_ns)
    return {Status::kBlocker, "a rank file was not read back as it was written", "check HDF5's library (ldd lockstep)"};
  return {Status::kOk, "a rank file was written and read back", ""};
}

int RunSelfTestChild(bool mpi) {
  lockstep_mark(kMark);
  if (!mpi) return 0;
  // Loaded as a program linked to it would load it: globally, and called by the first library that defines the name.
  if (::dlopen("libmpi.so.40", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "libmpi.so.40 cannot be loaded: %s\n", ::dlerror());
    return 1;
  }
  const auto init = reinterpret_cast<int (*)(int*, char***)>(::dlsym(RTLD_DEFAULT, "MPI_Init"));
  const auto barrier = reinterpret_cast<int (*)(void*)>(::dlsym(RTLD_DEFAULT, "MPI_Barrier"));
  const auto finalize = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "MPI_Finalize"));
  // Open MPI's MPI_COMM_WORLD.
  void* world = ::dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
  if (init == nullptr || barrier == nullptr || finalize == nullptr || world == nullptr) {
    std::fprintf(stderr, "libmpi.so.40 is not Open MPI's\n");
    return 1;
  }
  if (init(nullptr, nullptr) != 0) return 1;
  for (int i = 0; i < kBarriers; ++i)
    if (barrier(world) != 0) return 1;
  return finalize();
}

}  // namespace lockstep::doctor
