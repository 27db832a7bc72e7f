#include "core/python_code.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/python_layout.h"

namespace lockstep {
namespace {

using Table = std::vector<std::uint8_t>;

// What lies where; nothing else can be read.
struct FakeMemory {
  std::map<std::uint64_t, std::vector<std::uint8_t>> parts;
  bool Read(std::uint64_t address, void* to, std::size_t bytes) const {
    auto at = parts.upper_bound(address);
    if (at == parts.begin()) return false;
    --at;
    const std::uint64_t offset = address - at->first;
    if (offset > at->second.size() || bytes > at->second.size() - offset) return false;
    std::memcpy(to, at->second.data() + offset, bytes);
    return true;
  }
  void Put(std::uint64_t address, const void* from, std::size_t bytes) {
    const auto* begin = static_cast<const std::uint8_t*>(from);
    parts[address].assign(begin, begin + bytes);
  }
};

std::int32_t LineOf(LineTable kind, const Table& table, std::int32_t first_line, std::int64_t at) {
  FakeMemory memory;
  memory.parts[4096] = table;
  MemoryBytes<FakeMemory> bytes(memory, 4096, table.size());
  return PythonLineOf(kind, bytes, first_line, at);
}

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

// A str of 3.11 whose characters take `width` bytes.
std::string TextOf(const std::vector<std::uint32_t>& characters, std::uint32_t width, bool ascii, std::size_t room) {
  const PythonLayout& layout = *LayoutOf(0x030b);
  FakeMemory memory;
  std::vector<std::uint8_t> object(128 + characters.size() * width);
  const std::uint32_t state = (width | 8U | (ascii ? 16U : 0U)) << 2;
  const std::int64_t length = static_cast<std::int64_t>(characters.size());
  std::memcpy(object.data() + layout.text_state, &state, sizeof state);
  std::memcpy(object.data() + layout.text_length, &length, sizeof length);
  for (std::size_t i = 0; i < characters.size(); ++i)
    std::memcpy(object.data() + (ascii ? layout.text_bytes : layout.text_wide) + i * width, &characters[i], width);
  memory.Put(4096, object.data(), object.size());
  std::vector<char> to(room);
  return {to.data(), PythonTextAt(memory, layout, 4096, to)};
}

TEST(PythonText, OfEachWidth) {
  EXPECT_EQ(TextOf({'a', 'b'}, 1, true, 64), "ab");
  EXPECT_EQ(TextOf({'a', 0xe9}, 1, false, 64), "a\u00e9");
  EXPECT_EQ(TextOf({0x4f5c, 0x696d}, 2, false, 64), "\u4f5c\u696d");
  EXPECT_EQ(TextOf({'x', 0x1f600}, 4, false, 64), "x\U0001f600");
}

TEST(PythonText, IsCutBetweenCharacters) {
  EXPECT_EQ(TextOf({'a', 'b', 'c'}, 1, true, 2), "ab");
  EXPECT_EQ(TextOf({0x4f5c, 0x696d}, 2, false, 5), "\u4f5c");
  EXPECT_EQ(TextOf({'a'}, 1, true, 0), "");
  std::vector<std::uint32_t> many(1000, 'z');
  EXPECT_EQ(TextOf(many, 1, true, 2000), std::string(1000, 'z'));
}

TEST(PythonText, WhatIsNoTextIsNone) {
  const PythonLayout& layout = *LayoutOf(0x030b);
  FakeMemory memory;
  std::array<char, 16> to{};
  EXPECT_EQ(PythonTextAt(memory, layout, 4096, to), 0U);
  const std::array<std::uint8_t, 64> zeros{};
  memory.Put(4096, zeros.data(), zeros.size());
  EXPECT_EQ(PythonTextAt(memory, layout, 4096, to), 0U);
  EXPECT_EQ(PythonTextAt(memory, layout, 0, to), 0U);
}

TEST(PythonFrames, ACircleOfFramesEnds) {
  const PythonLayout& layout = *LayoutOf(0x030c);
  FakeMemory memory;
  const std::uint64_t state = 0x1000, cframe = 0x2000, first = 0x3000, second = 0x4000;
  std::array<std::uint8_t, 128> bytes{};
  std::memcpy(bytes.data() + layout.thread_frame, &cframe, sizeof cframe);
  memory.Put(state, bytes.data(), bytes.size());
  memory.Put(cframe, &first, sizeof first);
  bytes = {};
  std::memcpy(bytes.data() + layout.frame_previous, &second, sizeof second);
  memory.Put(first, bytes.data(), bytes.size());
  std::memcpy(bytes.data() + layout.frame_previous, &first, sizeof first);
  memory.Put(second, bytes.data(), bytes.size());
  std::array<RawPythonFrame, 16> frames;
  bool cut = false;
  EXPECT_EQ(WalkPython(memory, layout, state, frames, cut), 16U);
  EXPECT_TRUE(cut);
  // Only marks.
  bytes[layout.frame_owner] = kOwnedByLoop;
  memory.Put(second, bytes.data(), bytes.size());
  std::memcpy(bytes.data() + layout.frame_previous, &second, sizeof second);
  memory.Put(first, bytes.data(), bytes.size());
  EXPECT_EQ(WalkPython(memory, layout, state, frames, cut), 0U);
  EXPECT_TRUE(cut);
}

}  // namespace
}  // namespace lockstep
