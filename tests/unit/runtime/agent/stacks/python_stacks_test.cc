#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "runtime/agent/stacks/python_frames.h"
#include "runtime/agent/stacks/python_layout.h"

namespace lockstep::agent {
namespace {

using Table = std::vector<std::uint8_t>;

TEST(PythonLines, IncrementsUpTo39) {
  // Six bytes of line 10, then four of line 12, then line 11.
  const Table table = {6, 2, 4, static_cast<std::uint8_t>(-1)};
  EXPECT_EQ(LineOf(LineTable::kIncrements, table, 10, 0), 10);
  EXPECT_EQ(LineOf(LineTable::kIncrements, table, 10, 4), 10);
  EXPECT_EQ(LineOf(LineTable::kIncrements, table, 10, 6), 12);
  EXPECT_EQ(LineOf(LineTable::kIncrements, table, 10, 10), 11);
  EXPECT_EQ(LineOf(LineTable::kIncrements, {}, 10, 10), 10);
}

TEST(PythonLines, RangesOf310) {
  // Bytes 0 to 3 of line 11, 4 and 5 of none, 6 and 7 of line 12.
  const Table table = {4, 1, 2, 0x80, 2, 1};
  EXPECT_EQ(LineOf(LineTable::kRanges, table, 10, 0), 11);
  EXPECT_EQ(LineOf(LineTable::kRanges, table, 10, 4), 0);
  EXPECT_EQ(LineOf(LineTable::kRanges, table, 10, 6), 12);
  EXPECT_EQ(LineOf(LineTable::kRanges, table, 10, 8), 0);
}

TEST(PythonLines, LocationsFrom311) {
  const auto head = [](unsigned code, unsigned instructions) {
    return static_cast<std::uint8_t>(0x80 | code << 3 | (instructions - 1));
  };
  // Two instructions of the first line, one a line on, one of no line, one 40 lines back.
  const Table table = {head(0, 2), 0x12, head(11, 1), 4, 8, head(15, 1), head(13, 1), 0x40 | (40 << 1 & 63) | 1, 1};
  EXPECT_EQ(LineOf(LineTable::kLocations, table, 100, 0), 100);
  EXPECT_EQ(LineOf(LineTable::kLocations, table, 100, 2), 100);
  EXPECT_EQ(LineOf(LineTable::kLocations, table, 100, 4), 101);
  EXPECT_EQ(LineOf(LineTable::kLocations, table, 100, 6), 0);
  EXPECT_EQ(LineOf(LineTable::kLocations, table, 100, 8), 61);
  EXPECT_EQ(LineOf(LineTable::kLocations, table, 100, 10), 0);
}

TEST(PythonLines, WhatIsOutsideHasNone) {
  EXPECT_EQ(LineOf(LineTable::kLocations, {}, 100, -2), 100);  // It has not begun yet.
  EXPECT_EQ(LineOf(LineTable::kLocations, {}, 100, -4000), 0);
  EXPECT_EQ(LineOf(LineTable::kLocations, Table(300, 0xff), 1, INT64_MAX), 0);
}

TEST(PythonLayout, OfEachVersion) {
  for (const std::uint32_t version : {0x0308U, 0x0309U, 0x030aU, 0x030bU, 0x030cU}) {
    const PythonLayout* layout = LayoutOf(version);
    ASSERT_NE(layout, nullptr) << version;
    EXPECT_EQ(layout->frame_objects, version < 0x030b);
    EXPECT_LE(layout->frame_bytes(), 256U);
  }
  EXPECT_EQ(LayoutOf(0x0307), nullptr);
  EXPECT_EQ(LayoutOf(0), nullptr);
  EXPECT_EQ(VersionText(0x030b), "3.11");
}

TEST(PythonLayout, WhatDescribesNothingSensibleIsRefused) {
  std::array<std::uint8_t, kDebugOffsetsBytes> head{};
  PythonLayout layout;
  EXPECT_FALSE(LayoutFrom(head, layout));
  std::memcpy(head.data(), "xdebugpy", 8);
  EXPECT_FALSE(LayoutFrom(head, layout));
  const std::uint64_t versions[] = {0x030d00f0, 0x030e00f0, 0x040000f0};
  for (const std::uint64_t version : versions) {
    std::memcpy(head.data() + 8, &version, sizeof version);
    EXPECT_FALSE(LayoutFrom(head, layout)) << version;  // Members outside of objects without a size.
  }
  head.fill(0xff);
  std::memcpy(head.data(), "xdebugpy", 8);
  std::memcpy(head.data() + 8, versions, sizeof versions[0]);
  EXPECT_FALSE(LayoutFrom(head, layout));
}

}  // namespace
}  // namespace lockstep::agent
