// Which libcupti a process is given: its own, else the one beside the Python packages that it uses.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>

#include "runtime/cupti/api.h"

namespace lockstep::cupti {
namespace {

namespace fs = std::filesystem;

class CuptiFind : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/lockstep-find-[XXXXXX";  // A bracket: paths are no patterns.
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  // A copy of a library at a path below the root.
  std::string Put(const std::string& path, const char* library) {
    const fs::path file = root_ / path;
    fs::create_directories(file.parent_path());
    fs::copy_file(library, file);
    return file;
  }
  std::string PutCupti(const std::string& path) { return Put(path, LOCKSTEP_FAKE_CUPTI); }
  std::string PutExtension(const std::string& path) { return Put(path, LOCKSTEP_SOME_LIBRARY); }

  // The path found by a process of its own that did that before, or "none: why".
  static std::string FoundAfter(const std::function<void()>& before) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      unsetenv("LOCKSTEP_CUPTI");
      before();
      cupti::Api api{};
      char why[600];
      const char* failed = cupti::FindCupti(api, why, sizeof why);
      const std::string found = failed != nullptr ? "none: " + std::string(failed) : api.path;
      if (write(ends[1], found.data(), found.size()) < 0) _exit(1);
      _exit(0);
    }
    close(ends[1]);
    char text[1024];
    const ssize_t bytes = read(ends[0], text, sizeof text);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    return bytes > 0 ? std::string(text, static_cast<std::size_t>(bytes)) : "";
  }
  static void Load(const std::string& path) {
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      fprintf(stderr, "%s\n", dlerror());
      _exit(2);
    }
  }

  fs::path root_;
};

TEST_F(CuptiFind, BesideThePackagesThatThePythonInThisProcessUses) {
  const std::string extension = PutExtension("lib/python3.11/site-packages/array/core.so");
  const std::string old = PutCupti("lib/python3.11/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
  EXPECT_EQ(FoundAfter([&] { Load(extension); }), old);
  const std::string newer = PutCupti("lib/python3.11/site-packages/nvidia/cu13/lib/libcupti.so.13");
  EXPECT_EQ(FoundAfter([&] { Load(extension); }), newer);
  // Nothing of them is loaded: nobody says that they are this process's.
  EXPECT_EQ(FoundAfter([] {}).find(root_), std::string::npos);
}

TEST_F(CuptiFind, WhatTheProcessHasComesFirst) {
  const std::string extension = PutExtension("site-packages/array/core.so");
  PutCupti("site-packages/nvidia/cu13/lib/libcupti.so.13");
  const std::string own = PutCupti("elsewhere/libcupti.so.12");
  EXPECT_EQ(FoundAfter([&] {
              Load(extension);
              Load(own);
            }),
            own);
}

TEST_F(CuptiFind, PyTorchsNeighbourAndNobodyElses) {
  const std::string other = PutExtension("other/dist-packages/array/core.so");
  PutCupti("other/dist-packages/nvidia/cu13/lib/libcupti.so.13");
  const std::string torch = PutExtension("venv/site-packages/torch/lib/libtorch_cpu.so");
  const auto both = [&] {
    Load(other);
    Load(torch);
  };
  EXPECT_EQ(FoundAfter(both), "none: PyTorch is loaded without its libcupti, and another copy would break it");
  const std::string its = PutCupti("venv/site-packages/nvidia/cuda_cupti/lib/libcupti.so.12");
  EXPECT_EQ(FoundAfter(both), its);
  // One that is not among any packages.
  const std::string alone = PutExtension("opt/libtorch/lib/libtorch_cpu.so");
  EXPECT_EQ(FoundAfter([&] {
              Load(other);
              Load(alone);
            }),
            "none: PyTorch is loaded without its libcupti, and another copy would break it");
}

}  // namespace
}  // namespace lockstep::cupti
