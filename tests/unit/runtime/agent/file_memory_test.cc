#include "runtime/agent/slot/file_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::agent {
namespace {

// Whether the memory is that of a file without a name.
bool InFile(const void* memory) {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    words >> std::hex >> begin >> dash >> end;
    if (begin <= at && at < end) return line.ends_with(" (deleted)");
  }
  return false;
}

constexpr std::size_t kMany = 1 << 18;  // 2 MiB of 8-byte numbers.

TEST(FileMemory, LargeBlocksOfTheThreadAreInTheFile) {
  const FileMemory memory(testing::TempDir(), 64 << 20);
  if (!memory.in_file()) GTEST_SKIP() << "not on this file system";
  std::vector<std::int64_t> numbers(kMany, 7);
  EXPECT_TRUE(InFile(numbers.data()));
  for (std::int64_t i = 0; i < 1000; ++i) numbers.push_back(i);
  EXPECT_TRUE(InFile(numbers.data()));
  EXPECT_EQ(numbers[kMany - 1], 7);
  EXPECT_EQ(numbers.back(), 999);
  EXPECT_FALSE(InFile(std::vector<std::int64_t>(100).data()));
  std::thread([&numbers] {
    EXPECT_FALSE(InFile(std::vector<std::int64_t>(kMany).data()));
    numbers = {};
  }).join();
}

TEST(FileMemory, WhatIsTooMuchForItIsAsAlways) {
  const FileMemory memory(testing::TempDir(), 4 << 20);
  const std::vector<std::int64_t> numbers(4 * kMany, 7);
  EXPECT_FALSE(InFile(numbers.data()));
}

TEST(FileMemory, WhatOutlivesItStays) {
  std::optional<FileMemory> memory(std::in_place, testing::TempDir(), 64 << 20);
  std::optional<std::vector<std::int64_t>> numbers(std::in_place, kMany, 7);
  memory.reset();
  EXPECT_EQ((*numbers)[kMany - 1], 7);
  numbers.reset();
}

TEST(FileMemory, WithoutADirectoryThereIsNone) { EXPECT_FALSE(FileMemory("/proc/nowhere", 64 << 20).in_file()); }

}  // namespace
}  // namespace lockstep::agent
