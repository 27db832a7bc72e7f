#include "runtime/agent/calls/call_stacks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "temp_dir.h"
#include "trace/spool/spool_reader.h"

namespace lockstep::agent {
namespace {

// The probe's record of a stack.
std::vector<std::byte> StackRecord(std::uint32_t number, const std::vector<std::uint64_t>& addresses,
                                   std::string_view text, CallStackRecord record = {}) {
  const std::size_t payload = addresses.size() * 8 + text.size(), slots = 1 + (payload + kSlotBytes - 1) / kSlotBytes;
  std::vector<std::byte> bytes(slots * kSlotBytes);
  record.head = {RecordKind::kCallStack, 0, static_cast<std::uint16_t>(slots)};
  record.number = number;
  if (record.addresses == 0) record.addresses = static_cast<std::uint32_t>(addresses.size());
  if (record.text_bytes == 0) record.text_bytes = static_cast<std::uint32_t>(text.size());
  std::memcpy(bytes.data(), &record, sizeof record);
  if (!addresses.empty()) std::memcpy(bytes.data() + sizeof record, addresses.data(), addresses.size() * 8);
  std::memcpy(bytes.data() + sizeof record + addresses.size() * 8, text.data(), text.size());
  return bytes;
}

class CallStacksTest : public testing::Test {
 protected:
  CallStacksTest()
      : memory_(static_cast<std::byte*>(std::calloc(1, kArenaOffset)), &std::free),
        stacks_({.segment = {memory_.get(), kArenaOffset},
                 .tree = tree_,
                 .reader = {.program = "", .restore_signals = [] {}},
                 .unwritten = [this](std::uint64_t rows) { unwritten_ += rows; },
                 .unknown = [this](std::uint64_t stacks) { unknown_ += stacks; }}) {
    ProcessEntry& process = SegmentView{memory_.get(), kArenaOffset}.processes()[1];
    process.generation = 3;
    process.pid = ::getpid();
  }
  void Take(std::vector<std::byte> bytes) {
    RingEntry entry{};
    entry.process = 1;
    // In two parts, as at the end of a ring.
    const std::size_t half = bytes.size() / 2;
    const iovec parts[2] = {{bytes.data(), half}, {bytes.data() + half, bytes.size() - half}};
    stacks_.Take(entry, parts);
  }
  // Lines of frames and rows of stacks.
  void Finish() {
    const std::string path = place_.path() + "/spool";
    auto spool = SpoolWriter::Create(path);
    ASSERT_TRUE(spool.ok());
    SpoolWriter writer = std::move(spool).value();
    stacks_.Finish(writer, 0);
    writer.Close();
    auto file = trace::SpoolFile::Open(path);
    if (!file.ok()) return;  // It has no block.
    for (const trace::SpoolBlock& block : file.value().blocks()) {
      const auto* text = reinterpret_cast<const char*>(block.payload.data());
      if (block.header.kind == SpoolKind::kStacks) lines_.append(text, block.payload.size());
      if (block.header.kind != SpoolKind::kCallStacks) continue;
      rows_.resize(block.payload.size() / sizeof(SpoolCallStack));
      std::memcpy(rows_.data(), text, rows_.size() * sizeof(SpoolCallStack));
    }
  }

  TempDir place_;
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  StackTree tree_;
  std::uint64_t unwritten_ = 0, unknown_ = 0;
  CallStacks stacks_;
  std::string lines_;
  std::vector<SpoolCallStack> rows_;
};

TEST_F(CallStacksTest, FramesOfPythonBecomeAStack) {
  Take(StackRecord(5, {}, "\t40\tstep\t/job/train.py\nl\t9\t<module>\t/job/train.py\n"));
  Take(StackRecord(9, {}, "\t41\tstep\t/job/train.py\nl\t9\t<module>\t/job/train.py\n"));
  Finish();
  EXPECT_EQ(lines_,
            "1\t0\t9\t1\t0\ttrain.py\t<module>\n"
            "2\t1\t40\t1\t0\ttrain.py\tstep\n"
            "3\t1\t41\t1\t0\ttrain.py\tstep\n");
  ASSERT_EQ(rows_.size(), 2U);
  EXPECT_EQ(rows_[0].process, 1U);
  EXPECT_EQ(rows_[0].process_generation, 3U);
  EXPECT_EQ(rows_[0].number, 5U);
  EXPECT_EQ(rows_[0].stack, 2U);
  EXPECT_EQ(rows_[1].stack, 3U);
  EXPECT_EQ(unknown_, 0U);
}

TEST_F(CallStacksTest, WhatIsNotTrueOfItselfIsLeftOut) {
  Take(StackRecord(1, {}, "x", {.addresses = 1U << 30}));
  Take(StackRecord(2, {}, "x", {.text_bytes = 0xffffffff}));
  Take(StackRecord(3, {}, "x", {.text_bytes = 4096}));
  Take(StackRecord(0, {}, "\t1\tf\tf.py\n"));
  Finish();
  EXPECT_TRUE(rows_.empty());
  EXPECT_EQ(lines_, "");
}

TEST_F(CallStacksTest, OfWhichNothingIsKnownIsCounted) {
  Take(StackRecord(1, {8, 16}, ""));  // Nothing is mapped there.
  Finish();
  EXPECT_TRUE(rows_.empty());
  EXPECT_EQ(unknown_, 1U);
}

TEST_F(CallStacksTest, NamesMayHoldAnything) {
  Take(StackRecord(1, {}, "l\t-5\t\xff\x01 a\t\n\t\t\t\n\n"));
  Finish();
  ASSERT_EQ(rows_.size(), 1U);
  for (const char c : lines_) EXPECT_TRUE(c == '\t' || c == '\n' || static_cast<unsigned char>(c) >= ' ');
}

}  // namespace
}  // namespace lockstep::agent
