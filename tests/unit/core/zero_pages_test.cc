#include "core/zero_pages.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <vector>

namespace lockstep::test {
namespace {

// Pages of the vector that are in memory; its first and last one are shared with others and left out.
std::size_t Resident(const std::vector<std::int64_t>& values) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(values.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<std::uintptr_t>(values.data() + values.size()) / page * page;
  std::vector<unsigned char> there((end - begin) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, there.data()), 0);
  std::size_t count = 0;
  for (const unsigned char one : there) count += one & 1;
  return count;
}

TEST(ZeroPages, AreGivenBackAndReadAsZeros) {
  std::vector<std::int64_t> values(1 << 20, 0);
  const std::size_t before = Resident(values);
  for (const std::size_t at : {std::size_t{0}, std::size_t{300'000}, std::size_t{300'001}, values.size() - 1})
    values[at] = 7;
  const std::vector<std::int64_t> expected = values;
  GiveBackZeroPages(values);
  EXPECT_LT(Resident(values), before / 8) << "the blocks around three values stay";
  EXPECT_EQ(values, expected);
  values[500'000] = 9;
  EXPECT_EQ(values[500'000], 9);
  EXPECT_EQ(values[499'999], 0);
}

TEST(ZeroPages, WhatIsNotZeroStays) {
  std::vector<std::int64_t> values(1 << 18);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int64_t>(i % 8192 == 8191);
  const std::vector<std::int64_t> expected = values;
  const std::size_t before = Resident(values);
  GiveBackZeroPages(values);
  EXPECT_EQ(Resident(values), before);
  EXPECT_EQ(values, expected);
}

TEST(ZeroPages, FewBytesAnywhereAreLeftAlone) {
  for (const std::size_t bytes : {0, 1, 4096, 65536, 131071, 131072, 200001}) {
    std::vector<std::uint8_t> values(bytes + 1, 0);
    values.back() = 1;
    GiveBackZeroPages(values.data(), bytes);
    EXPECT_EQ(values.back(), 1) << bytes;
    for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(values[i], 0);
  }
  GiveBackZeroPages(nullptr, 0);
}

}  // namespace
}  // namespace lockstep::test
