// Each fault once: everything is well but for one fact, and the line that is about it says so.

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/ring_layout.h"
#include "runtime/doctor/check.h"
#include "tests/unit/runtime/agent/temp_dir.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

void Write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// A machine on which all is well; self-tests are replaced by what they would say.
class Doctor : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"LD_PRELOAD", "NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN",
                             "NCCL_CONF_FILE", "LOCKSTEP_CUPTI"})
      ::unsetenv(name);
    root_ = fs::path(dir_.path()) / "root";
    fs::create_directories(fs::path(dir_.path()) / "shm");
    Write(root_ / "proc/cpuinfo", "flags : fpu constant_tsc nonstop_tsc\n");
    Write(root_ / "sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
    Write(root_ / "sys/fs/cgroup/cpu.max", "max 100000\n");
    machine_.root = root_.string();
    machine_.shm_dir = (fs::path(dir_.path()) / "shm").string();
    machine_.scratch = dir_.path();
    machine_.write_seconds = 0.05;
    machine_.libraries = [this] {
      return agent::Libraries{"/x/liblockstep.so",
                              "/x/liblockstep-mpi.so",
                              "/x/liblockstep-gpu.so",
                              "",
                              "/x/lockstep-clock",
                              "/x/lockstep-stacks",
                              abis_};
    };
    machine_.find_library = [this](const std::string& name) {
      return libraries_.contains(name) ? libraries_[name] : "";
    };
    machine_.find_program = [this](const std::string& name) {
      if (name.find('/') != std::string::npos) return fs::exists(name) ? name : std::string();
      return programs_.contains(name) ? programs_[name] : "";
    };
    machine_.run = [this](const std::vector<std::string>& words, int) {
      return CommandOutput{true, false, 0, words.back() == "--version" ? launcher_ : ""};
    };
    machine_.limit = [this](int resource) {
      return std::optional<std::uint64_t>(limits_.contains(resource) ? limits_[resource] : UINT64_MAX);
    };
    machine_.clock_sync = [] { return std::optional(ClockSync{true, 1500}); };
    machine_.space = [this](const std::string& place) {
      return std::optional(place == machine_.shm_dir ? shm_ : disk_);
    };
    machine_.superuser = [] { return false; };
    libraries_["libmpi.so.40"] = "/lib/libmpi.so.40";
    programs_["mpirun"] = "/bin/mpirun";
  }

  Finding Look(std::string_view name) const {
    for (const Check& check : Checks())
      if (check.name == name) return check.look(machine_);
    ADD_FAILURE() << "no check " << name;
    return {};
  }
  // The line says this, its words hold `text`, and unless all is well it names a remedy.
  void Expect(std::string_view name, Status status, std::string_view text) {
    const Finding finding = Look(name);
    EXPECT_EQ(Name(finding.status), Name(status)) << name << ": " << finding.text;
    EXPECT_NE(finding.text.find(text), std::string::npos) << name << ": " << finding.text;
    EXPECT_EQ(finding.text.find('\n'), std::string::npos);
    EXPECT_EQ(finding.remedy.empty(), status == Status::kOk || status == Status::kNotHere) << finding.remedy;
  }

  agent::TempDir dir_;
  fs::path root_;
  Machine machine_;
  std::map<std::string, std::string> libraries_, programs_;
  std::vector<std::string> abis_{"ompi40"};
  std::map<int, std::uint64_t> limits_;
  std::string launcher_ = "mpirun (Open MPI) 4.1.4\n";
  Space shm_{64 * kGiB, 64 * kGiB, "tmpfs"}, disk_{500 * kGiB, 900 * kGiB, ""};
};

TEST_F(Doctor, NamesAreStableAndOnce) {
  std::set<std::string_view> names;
  for (const Check& check : Checks()) EXPECT_TRUE(names.insert(check.name).second) << check.name;
}

TEST_F(Doctor, AllIsWell) {
  const std::set<std::string_view> self_tests = {"probe", "mpi_records"};
  // What plans the environment looks at this build's own libraries.
  for (const Check& check : Checks()) {
    if (self_tests.contains(check.name)) continue;
    const Finding finding = check.look(machine_);
    EXPECT_TRUE(finding.status == Status::kOk || finding.status == Status::kNotHere)
        << check.name << ": " << finding.text;
  }
  Expect("clock", Status::kOk, "TSC is invariant");
  Expect("mpi", Status::kOk, "4.1.4");
  Expect("gpu_driver", Status::kNotHere, "no NVIDIA driver");
}

TEST_F(Doctor, Libraries) {
  machine_.libraries = [] {
    return Result<agent::Libraries>(
        Error{ErrorCode::kNotFound, "liblockstep.so was not found", "/x", "set LOCKSTEP_LIBRARY_DIR"});
  };
  Expect("lockstep", Status::kBlocker, "was not found");
  Expect("probe", Status::kNotHere, "");
}

TEST_F(Doctor, SelfTestsThatRecordNothing) {
  // The program ends well and no file is there, as if LD_PRELOAD were ignored.
  Expect("probe", Status::kBlocker, "was not recorded");
  Expect("mpi_records", Status::kBlocker, "under mpirun failed");
  machine_.run = [this](const std::vector<std::string>& words, int) {
    if (words.back() == "--version") return CommandOutput{true, false, 0, launcher_};
    return CommandOutput{true, false, 1, "no slots\nThere are not enough slots\n"};
  };
  Expect("mpi_records", Status::kBlocker, "not enough slots");
  machine_.run = [this](const std::vector<std::string>& words, int) {
    if (words.back() == "--version") return CommandOutput{true, false, 0, launcher_};
    return CommandOutput{true, true, 137, ""};
  };
  Expect("mpi_records", Status::kBlocker, "did not end");
}

TEST_F(Doctor, Mpi) {
  launcher_ = "HYDRA build details:\n    Version: 4.0.2\n";
  Expect("mpi", Status::kBlocker, "built without MPICH");
  abis_.emplace_back("mpich12");
  Expect("mpi", Status::kOk, "MPICH's HYDRA 4.0.2");
  Expect("mpi_records", Status::kNotHere, "");
  launcher_ = "mpirun (Open MPI) 5.0.3\n";
  Expect("mpi", Status::kOk, "5.0.3");
  launcher_ = "mpirun (Open MPI) 3.1.6\n";
  Expect("mpi", Status::kWarning, "tested are Open MPI 4.1 and 5.0");
  launcher_ = "spmpi 7\n";
  Expect("mpi", Status::kWarning, "run unrecorded");
  programs_.clear();
  libraries_ = {{"libmpi.so.12", "/opt/mpich/libmpi.so.12"}};
  Expect("mpi", Status::kOk, "/opt/mpich/libmpi.so.12");
  abis_ = {"ompi40"};
  Expect("mpi", Status::kBlocker, "MPICH");
  libraries_.clear();
  Expect("mpi", Status::kNotHere, "no MPI");
}

TEST_F(Doctor, MpiButBuiltWithout) {
  machine_.libraries = [] { return agent::Libraries{"/x/liblockstep.so", "", "", "", "", {}}; };
  Expect("mpi", Status::kBlocker, "built without it");
  Expect("mpi_tools", Status::kNotHere, "");
}

TEST_F(Doctor, OtherToolsInTheEnvironment) {
  ::setenv("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  Expect("nvtx", Status::kWarning, "another tool's library");
  ::setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  Expect("cupti_slot", Status::kWarning, "another tool's library");
  ::setenv("NCCL_PROFILER_PLUGIN", "none", 1);
  Expect("nccl_plugin", Status::kWarning, "switches that off");
  ::setenv("NCCL_PROFILER_PLUGIN", "/opt/inspector.so", 1);
  Expect("nccl_plugin", Status::kOk, "is called by Lockstep's");
  for (const char* name : {"NVTX_INJECTION64_PATH", "CUDA_INJECTION64_PATH", "NCCL_PROFILER_PLUGIN"}) ::unsetenv(name);
}

TEST_F(Doctor, OtherToolsOfMpi) {
  Expect("mpi_tools", Status::kOk, "no other tool");
  machine_.program = "/proc/self/exe";
  machine_.run = [](const std::vector<std::string>& words, int) {
    EXPECT_EQ(words[1], "--list");
    return CommandOutput{true, false, 0,
                         "\tlinux-vdso.so.1 (0x1)\n\tlibtool.so => " UNIT_MPI_TOOL
                         " (0x00007f0012345678)\n\tlibmpi.so => " UNIT_MPI_LIBRARY " (0x2)\n"};
  };
  Expect("mpi_tools", Status::kOk, "recorded behind it: " UNIT_MPI_TOOL);
  machine_.run = [](const std::vector<std::string>&, int) {
    return CommandOutput{true, false, 0, "\t" UNIT_MPI_LIBRARY " (0x2)\n\tlibtool.so => " UNIT_MPI_TOOL " (0x1)\n"};
  };
  Expect("mpi_tools", Status::kOk, "no other tool");
}

TEST_F(Doctor, Preload) {
  ::setenv("LD_PRELOAD", "libjemalloc.so.2:/nowhere/lib.so", 1);
  libraries_["libjemalloc.so.2"] = "/proc/self/exe";
  Expect("preload", Status::kWarning, "/nowhere/lib.so");
  ::setenv("LD_PRELOAD", "libjemalloc.so.2", 1);
  Expect("preload", Status::kOk, "is kept");
  ::unsetenv("LD_PRELOAD");
}

TEST_F(Doctor, Gpu) {
  Write(root_ / "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n");
  Expect("gpu_driver", Status::kOk, "535.104.05, CUDA 12");
  Expect("cupti", Status::kWarning, "no libcupti");
  libraries_["libcupti.so.12"] = "/cuda/libcupti.so.12";
  Expect("cupti", Status::kOk, "libcupti.so.12");
  libraries_["libcupti.so.13"] = "/cuda/libcupti.so.13";
  Expect("cupti", Status::kBlocker, "CUDA 13");
  libraries_["libnccl.so.2"] = "/usr/lib/libnccl.so.2.26.5";
  Expect("nccl", Status::kWarning, "no profiler interface");
  libraries_["libnccl.so.2"] = "/usr/lib/libnccl.so.2.28.9";
  Expect("nccl", Status::kOk, "2.28.9");
  Write(root_ / "proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  418.40.04  Fri\n");
  Expect("gpu_driver", Status::kBlocker, "older than CUDA 11");
  fs::remove_all(root_ / "proc/driver");
  libraries_["libcuda.so.1"] = "/usr/lib/libcuda.so.1";
  Expect("gpu_driver", Status::kWarning, "no driver runs");
}

TEST_F(Doctor, AmdGpus) {
  Write(root_ / "dev/kfd", "");
  Expect("gpu_driver", Status::kWarning, "RCCL's operations are recorded");
  Expect("nccl", Status::kNotHere, "no NVIDIA driver");
  libraries_["librccl.so.1"] = "/opt/rocm/lib/librccl.so.1";
  Expect("nccl", Status::kOk, "librccl.so.1");
}

TEST_F(Doctor, Memory) {
  shm_.free_bytes = 64u << 20;
  machine_.ranks_per_node = 8;
  Expect("shared_memory", Status::kWarning, "instead of 64 MiB");
  shm_.free_bytes = 4u << 20;
  Expect("shared_memory", Status::kWarning, "no room for rings");
  machine_.shm_dir = dir_.path() + "/absent";
  machine_.space = [](const std::string&) { return std::optional<Space>(); };
  Expect("shared_memory", Status::kWarning, "is not there");
}

TEST_F(Doctor, StaleMemory) {
  // Of a process that cannot be: above the kernel's largest number.
  std::ofstream(machine_.shm_dir + "/lockstep-" + std::to_string(::getuid()) + "-0123456789abcdef-0-4194305")
      .write(std::string(8192, 'x').c_str(), 8192);
  Expect("stale_memory", Status::kWarning, "1 segment");
  std::ofstream(machine_.shm_dir + "/lockstep-" + std::to_string(::getuid()) + "-other") << "x";
}

TEST_F(Doctor, Scratch) {
  disk_.free_bytes = 10u << 20;
  Expect("scratch", Status::kWarning, "may fill it");
  machine_.scratch = "/proc/nowhere";
  Expect("scratch", Status::kBlocker, "cannot be written");
  // Nothing is left behind.
  machine_.scratch = dir_.path() + "/a/b/c";
  disk_.free_bytes = 500 * kGiB;
  Expect("scratch", Status::kOk, "free");
  EXPECT_FALSE(fs::exists(dir_.path() + "/a"));
  for (const auto& entry : fs::directory_iterator(dir_.path()))
    EXPECT_EQ(entry.path().filename().string().find("doctor"), std::string::npos);
}

TEST_F(Doctor, Clocks) {
  const fs::path source = root_ / "sys/devices/system/clocksource/clocksource0/current_clocksource";
  Write(source, "hpet\n");
  Expect("clock", Status::kWarning, "hpet");
  Write(source, "kvm-clock\n");
  Expect("clock", Status::kOk, "kvm-clock");
  Write(source, "tsc\n");
  Write(root_ / "proc/cpuinfo", "flags : fpu constant_tsc\n");
  Expect("clock", Status::kWarning, "does not say that its TSC is invariant");
  machine_.clock_sync = [] { return std::optional(ClockSync{false, 16'000'000}); };
  Expect("clock_sync", Status::kWarning, "not synchronised");
  machine_.clock_sync = [] { return std::optional<ClockSync>(); };
  Expect("clock_sync", Status::kNotHere, "");
  machine_.clock_sync = [] { return std::optional(ClockSync{true, 1500}); };
  fs::create_directories(root_ / "run/chrony");
  Expect("clock_sync", Status::kOk, "by chrony (the kernel's bound is 2 ms)");
}

TEST_F(Doctor, Limits) {
  Expect("limits", Status::kOk, "");
  for (const auto& [resource, value, status] :
       {std::tuple(static_cast<int>(RLIMIT_NOFILE), std::uint64_t{16}, Status::kBlocker),
        std::tuple(static_cast<int>(RLIMIT_FSIZE), std::uint64_t{1} << 20, Status::kBlocker),
        std::tuple(static_cast<int>(RLIMIT_FSIZE), std::uint64_t{1} << 30, Status::kWarning),
        std::tuple(static_cast<int>(RLIMIT_AS), std::uint64_t{1} << 28, Status::kWarning),
        std::tuple(static_cast<int>(RLIMIT_NPROC), std::uint64_t{4}, Status::kWarning)}) {
    limits_ = {{resource, value}};
    Expect("limits", status, "the limit of");
  }
}

TEST_F(Doctor, Cores) {
  Write(root_ / "sys/fs/cgroup/cpu.max", "50000 100000\n");
  Expect("cores", Status::kWarning, "a quota allows 0.5");
  Write(root_ / "sys/fs/cgroup/cpu.max", "max 100000\n");
  machine_.ranks_per_node = 100'000;
  Expect("cores", Status::kWarning, "100000 ranks on");
}

TEST_F(Doctor, Programs) {
  Expect("program", Status::kNotHere, "no program is named");
  machine_.program = "/nowhere/app";
  Expect("program", Status::kBlocker, "there is no program");
  machine_.program = "/proc/self/exe";
  Expect("program", Status::kOk, "can be recorded");
  const std::string copy = dir_.path() + "/copy";
  fs::copy_file("/proc/self/exe", copy);
  machine_.program = copy;
  if (::geteuid() == 0 && ::chown(copy.c_str(), 12345, 12345) == 0 && ::chmod(copy.c_str(), 04755) == 0)
    Expect("program", Status::kBlocker, "set-user-id");
  Write(dir_.path() + "/text", "no program\n");
  machine_.program = dir_.path() + "/text";
  Expect("program", Status::kBlocker, "neither a program nor a script");
  Write(dir_.path() + "/script", "#!/usr/bin/env python9\n");
  machine_.program = dir_.path() + "/script";
  Expect("program", Status::kBlocker, "python9");
  programs_["python9"] = "/proc/self/exe";
  Expect("program", Status::kOk, "can be recorded");
}

// An ELF header and nothing that asks for ld.so.
TEST_F(Doctor, StaticProgram) {
  std::string image(64 + 56, '\0');
  const unsigned char ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  for (std::size_t i = 0; i < sizeof ident; ++i) image[i] = static_cast<char>(ident[i]);
  image[32] = 64;  // e_phoff
  image[54] = 56;  // e_phentsize
  image[56] = 1;   // e_phnum
  image[64] = 1;   // PT_LOAD
  const std::string path = dir_.path() + "/static";
  Write(path, image);
  machine_.program = path;
  Expect("program", Status::kBlocker, "linked statically");
  image[4] = 1;
  Write(path, image);
  Expect("program", Status::kBlocker, "32-bit");
}

}  // namespace
}  // namespace lockstep::doctor
