#include "runtime/agent/inject/injection.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "core/env.h"
#include "core/ring_layout.h"
#include "runtime/agent/inject/elf_file.h"
#include "tests/unit/runtime/agent/temp_dir.h"

namespace lockstep::agent {
namespace {

constexpr const char* kNames[] = {"ASAN_OPTIONS", "LD_PRELOAD", "NVTX_INJECTION64_PATH", "PYTHONPATH", env::kSegment};

class InjectionTest : public testing::Test {
 protected:
  InjectionTest() {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name); value != nullptr) before_[name] = value;
      ::unsetenv(name);
    }
    libraries_.probe = dir_.path() + "/liblockstep.so";
    libraries_.mpi = dir_.path() + "/liblockstep-mpi.so";
  }
  ~InjectionTest() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::map<std::string, std::string> Variables() {
    auto plan = PlanInjection(libraries_, "/dev/shm/segment", program_);
    EXPECT_TRUE(plan.ok());
    injection_ = std::move(plan).value();
    injection_.RemoveLink();
    return {injection_.variables.begin(), injection_.variables.end()};
  }

  TempDir dir_;
  Libraries libraries_;
  std::string program_;
  Injection injection_;
  std::map<std::string, std::string> before_;
};

TEST_F(InjectionTest, EmptyEnvironment) {
  const auto variables = Variables();
  EXPECT_EQ(variables, (std::map<std::string, std::string>{{env::kSegment, "/dev/shm/segment"},
                                                           {"ASAN_OPTIONS", "verify_asan_link_order=0"},
                                                           {"LD_PRELOAD", libraries_.probe + ":" + libraries_.mpi},
                                                           {"NVTX_INJECTION64_PATH", libraries_.probe}}));
  EXPECT_TRUE(injection_.refused.empty());
}

// musl's loader ends a program with a library that it cannot load; glibc's writes to stderr of one of another class.
TEST_F(InjectionTest, ProgramsOfOtherLoadersStartAsTheyAre) {
  std::ifstream file("/bin/true", std::ios::binary);
  std::string program{std::istreambuf_iterator<char>(file), {}};
  const std::string ours = LookAtElf("/bin/true").interpreter;
  ASSERT_FALSE(ours.empty());
  const auto refused = [&](const std::string& name, const std::string& contents) {
    program_ = dir_.path() + "/" + name;
    std::ofstream(program_, std::ios::binary) << contents;
    ::chmod(program_.c_str(), 0755);
    const auto plan = PlanInjection(libraries_, "/dev/shm/segment", program_);
    return plan.ok() ? std::string() : plan.error().what;
  };
  EXPECT_EQ(refused("glibc", program), "");
  std::string musl = program, narrow = program;
  std::string loader = "/lib/ld-musl-a.so.1";
  loader.resize(ours.size());
  musl.replace(musl.find(ours), ours.size(), loader);
  EXPECT_NE(refused("musl", musl).find("is loaded by ld-musl-a.so.1"), std::string::npos);
  const std::string script = "#!" + dir_.path() + "/musl\n";
  EXPECT_NE(refused("script", script).find("is loaded by ld-musl-a.so.1"), std::string::npos);
  narrow[4] = 1;  // EI_CLASS
  EXPECT_NE(refused("narrow", narrow).find("32-bit"), std::string::npos);
}

TEST_F(InjectionTest, AddressSanitizerStartsBehindOurLibraries) {
  ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
  EXPECT_EQ(Variables()["ASAN_OPTIONS"], "detect_leaks=0:verify_asan_link_order=0");
  ::setenv("ASAN_OPTIONS", "verify_asan_link_order=1", 1);
  EXPECT_EQ(Variables().count("ASAN_OPTIONS"), 0u);
}

TEST_F(InjectionTest, PythonsPathIsPrependedOnce) {
  const std::string python = dir_.path() + "/python";
  ASSERT_EQ(::mkdir(python.c_str(), 0700), 0);
  EXPECT_EQ(Variables()["PYTHONPATH"], python);
  ::setenv("PYTHONPATH", ("/mine:" + python + ":/theirs").c_str(), 1);
  EXPECT_EQ(Variables()["PYTHONPATH"], python + ":/mine:/theirs");
  ::setenv("PYTHONPATH", ":/mine:", 1);
  EXPECT_EQ(Variables()["PYTHONPATH"], python + "::/mine:");
  ::setenv("PYTHONPATH", "", 1);
  EXPECT_EQ(Variables()["PYTHONPATH"], python);
}

TEST_F(InjectionTest, OtherToolsKeepTheirPlaces) {
  ::setenv("NVTX_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  auto variables = Variables();
  EXPECT_EQ(variables.count("NVTX_INJECTION64_PATH"), 0u);
  ASSERT_EQ(injection_.refused.size(), 1u);
  EXPECT_EQ(injection_.refused[0].source, "NVTX");
  EXPECT_NE(injection_.refused[0].why.find("/opt/nsys/libToolsInjection64.so"), std::string::npos);
  // Another copy of ours is no other tool.
  ::setenv("NVTX_INJECTION64_PATH", "/old/liblockstep.so", 1);
  EXPECT_EQ(Variables()["NVTX_INJECTION64_PATH"], libraries_.probe);
  EXPECT_TRUE(injection_.refused.empty());

  // One with wrappers of MPI is in front of ours, which its calls come to.
  ::unsetenv("NVTX_INJECTION64_PATH");
  ::setenv("LD_PRELOAD", UNIT_MPI_TOOL, 1);
  EXPECT_EQ(Variables()["LD_PRELOAD"], UNIT_MPI_TOOL ":" + libraries_.probe + ":" + libraries_.mpi);
  EXPECT_TRUE(injection_.refused.empty());
}

TEST_F(InjectionTest, ProgramsWhoseMpiIsInsideAreRefused) {
  for (const auto& [program, word] : {std::pair(UNIT_MPI_LIBRARY, "MPI library"), {UNIT_MPI_TOOL, "MPI_Recv"}}) {
    program_ = program;
    EXPECT_EQ(Variables()["LD_PRELOAD"], libraries_.probe);
    ASSERT_EQ(injection_.refused.size(), 1u);
    EXPECT_EQ(injection_.refused[0].source, kMpiSource);
    EXPECT_NE(injection_.refused[0].why.find(word), std::string::npos) << injection_.refused[0].why;
  }
  libraries_.mpi.clear();  // A build without MPI has nothing to refuse.
  Variables();
  EXPECT_TRUE(injection_.refused.empty());
}

TEST_F(InjectionTest, ADirectoryThatLdSoCannotNameGetsAnotherName) {
  const std::string odd = dir_.path() + "/a b:c";
  ASSERT_EQ(::mkdir(odd.c_str(), 0700), 0);
  std::ofstream(odd + "/liblockstep.so") << "x";
  libraries_.probe = odd + "/liblockstep.so";
  libraries_.mpi.clear();
  auto plan = PlanInjection(libraries_, "s", "");
  ASSERT_TRUE(plan.ok());
  const Injection injection = std::move(plan).value();
  const std::map<std::string, std::string> variables(injection.variables.begin(), injection.variables.end());
  const std::string named = variables.at("LD_PRELOAD");
  EXPECT_EQ(named.find_first_of(" :"), std::string::npos);
  char real[4096];
  ASSERT_NE(::realpath(named.c_str(), real), nullptr);
  EXPECT_STREQ(real, (odd + "/liblockstep.so").c_str());
  injection.RemoveLink();
  EXPECT_NE(::access(named.c_str(), F_OK), 0);
}

TEST_F(InjectionTest, AnEnclosingAgentIsOneThatLivesAndHasOurRank) {
  EXPECT_EQ(EnclosingAgent(-1), 0);
  const std::string path = dir_.path() + "/segment";
  ::setenv(env::kSegment, path.c_str(), 1);
  EXPECT_EQ(EnclosingAgent(-1), 0);
  SegmentHeader header{};
  header.magic = kSegmentMagic;
  header.version = kSegmentVersion;
  header.slot_rank = 3;
  header.agent_pid = ::getppid();
  const auto write = [&] {
    std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&header), sizeof header);
  };
  write();
  EXPECT_EQ(EnclosingAgent(3), ::getppid());
  EXPECT_EQ(EnclosingAgent(2), 0);
  header.agent_gone = 1;
  write();
  EXPECT_EQ(EnclosingAgent(3), 0);
  header.agent_gone = 0;
  header.agent_pid = 0x3fffffff;  // Nobody.
  write();
  EXPECT_EQ(EnclosingAgent(3), 0);
}

}  // namespace
}  // namespace lockstep::agent
