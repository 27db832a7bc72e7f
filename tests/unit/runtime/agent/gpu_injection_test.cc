// CUDA_INJECTION64_PATH and NCCL_PROFILER_PLUGIN: what the application gets in every state of them.
#include "runtime/agent/inject/gpu_injection.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "core/env.h"
#include "runtime/agent/inject/injection.h"
#include "tests/unit/runtime/agent/temp_dir.h"

namespace lockstep::agent {
namespace {

constexpr const char* kNames[] = {"LD_PRELOAD",
                                  "NVTX_INJECTION64_PATH",
                                  "CUDA_INJECTION64_PATH",
                                  "NCCL_PROFILER_PLUGIN",
                                  "NCCL_CONF_FILE",
                                  "LD_LIBRARY_PATH",
                                  "PYTHONPATH",
                                  env::kNcclPluginChained,
                                  "ASAN_OPTIONS",
                                  "HOME"};

class GpuInjectionTest : public testing::Test {
 protected:
  GpuInjectionTest() {
    for (const char* name : kNames) {
      if (const char* value = std::getenv(name); value != nullptr) before_[name] = value;
      ::unsetenv(name);
    }
    // Never the user's own file.
    ::setenv("NCCL_CONF_FILE", (dir_.path() + "/none.conf").c_str(), 1);
    libraries_.probe = dir_.path() + "/liblockstep.so";
    libraries_.gpu = dir_.path() + "/liblockstep-gpu.so";
  }
  ~GpuInjectionTest() override {
    for (const char* name : kNames) ::unsetenv(name);
    for (const auto& [name, value] : before_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::map<std::string, std::string> Variables() {
    auto plan = PlanInjection(libraries_, "/dev/shm/segment", "");
    EXPECT_TRUE(plan.ok());
    injection_ = std::move(plan).value();
    injection_.RemoveLink();
    return {injection_.variables.begin(), injection_.variables.end()};
  }

  TempDir dir_;
  Libraries libraries_;
  Injection injection_;
  std::map<std::string, std::string> before_;
};

TEST_F(GpuInjectionTest, NothingSet) {
  const auto variables = Variables();
  EXPECT_EQ(variables.at("LD_PRELOAD"), libraries_.probe + ":" + libraries_.gpu);
  EXPECT_EQ(variables.at("CUDA_INJECTION64_PATH"), libraries_.gpu);
  EXPECT_EQ(variables.at("NCCL_PROFILER_PLUGIN"), libraries_.gpu);
  EXPECT_EQ(variables.count(env::kNcclPluginChained), 0u);
  EXPECT_TRUE(injection_.refused.empty());
  EXPECT_TRUE(injection_.notices.empty());
}

TEST_F(GpuInjectionTest, WithoutTheLibraryNothingOfItIsSet) {
  libraries_.gpu.clear();
  ::setenv("LD_PRELOAD", "/old/liblockstep-gpu.so:/a/x.so", 1);
  const auto variables = Variables();
  EXPECT_EQ(variables.at("LD_PRELOAD"), "/a/x.so:" + libraries_.probe);
  EXPECT_EQ(variables.count("CUDA_INJECTION64_PATH") + variables.count("NCCL_PROFILER_PLUGIN"), 0u);
}

TEST_F(GpuInjectionTest, BeforeTheLibrariesItStandsInFor) {
  ::setenv("LD_PRELOAD", "/a/x.so:/opt/nccl/libnccl.so.2:/b/y.so", 1);
  EXPECT_EQ(Variables().at("LD_PRELOAD"),
            "/a/x.so:" + libraries_.probe + ":" + libraries_.gpu + ":/opt/nccl/libnccl.so.2:/b/y.so");
}

TEST_F(GpuInjectionTest, AnotherToolKeepsCuda) {
  ::setenv("CUDA_INJECTION64_PATH", "/opt/nsys/libToolsInjection64.so", 1);
  auto variables = Variables();
  EXPECT_EQ(variables.count("CUDA_INJECTION64_PATH"), 0u);
  EXPECT_EQ(variables.at("NCCL_PROFILER_PLUGIN"), libraries_.gpu);  // The rest works.
  ASSERT_EQ(injection_.refused.size(), 1u);
  EXPECT_NE(injection_.refused[0].why.find("/opt/nsys/libToolsInjection64.so"), std::string::npos);
  ::setenv("CUDA_INJECTION64_PATH", "/old/liblockstep-gpu.so", 1);
  EXPECT_EQ(Variables().at("CUDA_INJECTION64_PATH"), libraries_.gpu);
  ::unsetenv("CUDA_INJECTION64_PATH");
  ::setenv("LD_PRELOAD", "/opt/ncu/libTreeLauncherTargetInjection.so", 1);
  EXPECT_EQ(Variables().count("CUDA_INJECTION64_PATH"), 0u);
  EXPECT_EQ(injection_.refused.size(), 1u);
}

TEST_F(GpuInjectionTest, ThePluginOfTheUserIsChained) {
  for (const char* theirs : {"/opt/libnccl-profiler-inspector.so", "inspector", "libnccl-profiler-x.so"}) {
    ::setenv("NCCL_PROFILER_PLUGIN", theirs, 1);
    const auto variables = Variables();
    EXPECT_EQ(variables.at("NCCL_PROFILER_PLUGIN"), libraries_.gpu);
    EXPECT_EQ(variables.at(env::kNcclPluginChained), theirs);
    ASSERT_EQ(injection_.notices.size(), 1u);
    EXPECT_NE(injection_.notices[0].find(theirs), std::string::npos);
    EXPECT_TRUE(injection_.refused.empty());
  }
  // An older copy of ours is not chained to itself.
  ::setenv("NCCL_PROFILER_PLUGIN", "/old/liblockstep-gpu.so", 1);
  EXPECT_EQ(Variables().at("NCCL_PROFILER_PLUGIN"), libraries_.gpu);
  EXPECT_EQ(Variables().count(env::kNcclPluginChained), 0u);
  // Set and empty means NCCL's default.
  ::setenv("NCCL_PROFILER_PLUGIN", "", 1);
  EXPECT_EQ(Variables().at("NCCL_PROFILER_PLUGIN"), libraries_.gpu);
  EXPECT_EQ(Variables().count(env::kNcclPluginChained), 0u);
}

TEST_F(GpuInjectionTest, NoneAndStaticAreLeftAlone) {
  for (const char* none : {"none", "NONE"}) {
    ::setenv("NCCL_PROFILER_PLUGIN", none, 1);
    EXPECT_EQ(Variables().count("NCCL_PROFILER_PLUGIN"), 0u);
    ASSERT_EQ(injection_.refused.size(), 1u);
    EXPECT_NE(injection_.refused[0].why.find(std::string("NCCL_PROFILER_PLUGIN=") + none), std::string::npos);
  }
  // NCCL compares as many characters as the value has.
  for (const char* built_in : {"STATIC_PLUGIN", "static_plugin", "stat"}) {
    ::setenv("NCCL_PROFILER_PLUGIN", built_in, 1);
    const auto variables = Variables();
    EXPECT_EQ(variables.count("NCCL_PROFILER_PLUGIN"), 0u);
    EXPECT_EQ(variables.at(env::kNcclPluginChained), built_in);
    EXPECT_TRUE(injection_.refused.empty());
    EXPECT_EQ(injection_.notices.size(), 1u);
  }
}

TEST_F(GpuInjectionTest, NcclsOwnFilesCountAsTheVariable) {
  const std::string file = dir_.path() + "/nccl.conf";
  std::ofstream(file) << "# NCCL_PROFILER_PLUGIN=no\nNCCL_DEBUG=WARN\nNCCL_PROFILER_PLUGIN=/opt/theirs.so\n"
                         "NCCL_PROFILER_PLUGIN=/opt/second.so\n";
  ::setenv("NCCL_CONF_FILE", file.c_str(), 1);
  auto variables = Variables();
  EXPECT_EQ(variables.at(env::kNcclPluginChained), "/opt/theirs.so");  // The first line of a name wins.
  EXPECT_NE(injection_.notices.at(0).find(file), std::string::npos);
  // The variable wins over the file.
  ::setenv("NCCL_PROFILER_PLUGIN", "/mine.so", 1);
  EXPECT_EQ(Variables().at(env::kNcclPluginChained), "/mine.so");
  ::unsetenv("NCCL_PROFILER_PLUGIN");
  std::ofstream(file) << "NCCL_PROFILER_PLUGIN=none\n";
  EXPECT_EQ(Variables().count("NCCL_PROFILER_PLUGIN"), 0u);
  EXPECT_EQ(injection_.refused.size(), 1u);
  EXPECT_EQ(NcclConfValue(file, "NCCL_PROFILER"), "");
  // RCCL's is beside the user's home as the environment names it.
  ::unsetenv("NCCL_CONF_FILE");
  ::setenv("HOME", dir_.path().c_str(), 1);
  std::ofstream(dir_.path() + "/.rccl.conf") << "NCCL_PROFILER_PLUGIN=/opt/amd.so\n";
  EXPECT_EQ(ReadPluginSetting().value, "/opt/amd.so");
}

TEST_F(GpuInjectionTest, APluginOnTheLibraryPathIsNotDisplaced) {
  const std::string place = dir_.path() + "/plugins";
  ASSERT_EQ(::mkdir(place.c_str(), 0700), 0);
  std::ofstream(place + "/libnccl-profiler.so") << "x";
  ::setenv("LD_LIBRARY_PATH", ("/no/such:" + place).c_str(), 1);
  EXPECT_EQ(Variables().at(env::kNcclPluginChained), place + "/libnccl-profiler.so");
  EXPECT_EQ(injection_.notices.size(), 1u);
  std::filesystem::rename(place + "/libnccl-profiler.so", place + "/librccl-profiler.so");
  EXPECT_EQ(Variables().at(env::kNcclPluginChained), place + "/librccl-profiler.so");
}

TEST_F(GpuInjectionTest, ALongPathGetsAShortName) {
  std::string deep = dir_.path();
  while (deep.size() < 260) {
    deep += "/a-directory-with-a-name-of-some-length";
    ASSERT_EQ(::mkdir(deep.c_str(), 0700), 0);
  }
  libraries_.probe = deep + "/liblockstep.so";
  libraries_.gpu = deep + "/liblockstep-gpu.so";
  std::ofstream(libraries_.gpu) << "x";
  auto plan = PlanInjection(libraries_, "s", "");
  ASSERT_TRUE(plan.ok());
  const Injection injection = std::move(plan).value();
  const std::map<std::string, std::string> variables(injection.variables.begin(), injection.variables.end());
  const std::string named = variables.at("NCCL_PROFILER_PLUGIN");
  EXPECT_LE(named.size(), kLongestPluginPath);
  char real[4096];
  ASSERT_NE(::realpath(named.c_str(), real), nullptr);
  EXPECT_EQ(real, libraries_.gpu);
  EXPECT_EQ(variables.at("CUDA_INJECTION64_PATH"), named);
  EXPECT_NE(variables.at("LD_PRELOAD").find(named), std::string::npos);
  injection.RemoveLink();
}

}  // namespace
}  // namespace lockstep::agent
