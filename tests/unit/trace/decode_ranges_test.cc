// Ranges of NVTX: start/end ranges across threads, payloads, categories, domains, and
// what a killed process left open.

#include <gtest/gtest.h>

#include "tests/unit/trace/decode_fixture.h"

namespace lockstep::trace {
namespace {

using schema::kNone;

constexpr std::uint8_t kNvtx = 1;

class DecodeRanges : public DecodeTest {};

RangeRecord Start(std::uint64_t id, std::uint32_t name, std::uint64_t begin) {
  return {{RecordKind::kRangeStart, kNvtx, 1}, name, begin, id, 0, 0, 0};
}
RangeRecord End(std::uint64_t id, std::uint64_t end, bool forgotten = false) {
  return {{RecordKind::kRangeEnd, kNvtx, 1}, 0, id, end, forgotten ? kRangeForgotten : std::uint16_t{0}, 0, 0};
}
struct WideRange {
  RangeRecord range;
  RangeExtra extra;
};
WideRange Wide(RecordKind kind, std::uint32_t name, std::uint64_t begin, std::uint64_t end, std::uint16_t domain,
               std::int64_t payload, std::uint8_t payload_kind, std::uint32_t category) {
  return {{{kind, kNvtx, 2}, name, begin, end, 0, domain, 0}, {payload, payload_kind, {}, category, {}}};
}

TEST_F(DecodeRanges, StartEndRangesArePairedAcrossThreads) {
  ThreadRecords first, second;
  // The second thread's ring is read later or earlier than the first's: no matter.
  first.String(1, "here").Add(Start(10, 1, 100)).Add(Start(11, 1, 150)).Add(End(20, 400)).Add(Start(12, 1, 500));
  second.String(1, "there").Add(Start(20, 1, 200)).Add(End(11, 900)).Add(End(10, 950)).Add(End(77, 960));
  const auto t =
      Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(second, 1).Records(first));
  EXPECT_EQ(t.ranges.begin_ns, (std::vector<std::int64_t>{100, 150, 200, 500}));
  EXPECT_EQ(t.ranges.duration_ns,
            (std::vector<std::int64_t>{850, 750, 200, 460}));  // The last to the last sign of life.
  EXPECT_EQ(t.ranges.open, (std::vector<std::uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(t.ranges.kind, (std::vector<std::uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(t.ranges.source, (std::vector<std::uint8_t>{1, 1, 1, 1}));
  EXPECT_EQ(TextOf(t, t.ranges.name[2]), "there");
  EXPECT_EQ(LossCount(t, "RangeOpen"), 1u);
  EXPECT_EQ(LossCount(t, "UnknownRecord"), 0u);
}

TEST_F(DecodeRanges, ARangeEndedWhileOffIsNoRow) {
  ThreadRecords r;
  r.String(1, "name").Add(Start(1, 1, 100)).Add(Start(2, 1, 200)).Add(Start(3, 1, 300));
  r.Add(End(2, 400, true)).Add(End(1, 500)).Add(End(3, 600, true));
  const auto t = TablesOf(r);
  EXPECT_EQ(t.ranges.begin_ns, (std::vector<std::int64_t>{100}));
  EXPECT_EQ(t.ranges.duration_ns, (std::vector<std::int64_t>{400}));
  EXPECT_EQ(LossCount(t, "RangeOpen"), 0u);
}

TEST_F(DecodeRanges, PayloadsCategoriesAndDomains) {
  ThreadRecords r;
  r.String(1, "name").Text(RecordKind::kDomain, 3, "library");
  r.Text(RecordKind::kCategory, 7, "Backward").Text(RecordKind::kCategory, 8, "of nobody");
  r.Add(Wide(RecordKind::kRange, 1, 100, 110, 0, 1L << 40, 1, 0));
  r.Add(Wide(RecordKind::kRange, 1, 200, 210, 3, -5, 2, 7));
  r.Add(Wide(RecordKind::kMark, 1, 300, 300, 0, 0, 0, 7));
  r.Add(Wide(RecordKind::kRangeStart, 1, 400, 99, 3, 6, 1, 9)).Add(End(99, 450));
  r.Add(RangeRecord{{RecordKind::kRange, kNvtx, 1}, 1, 500, 510, 2, 4, -6});
  const auto t = TablesOf(r);
  EXPECT_EQ(t.ranges.payload, (std::vector<std::int64_t>{1L << 40, -5, 0, 6, -6}));
  EXPECT_EQ(t.ranges.payload_kind, (std::vector<std::uint8_t>{1, 2, 0, 1, 1}));
  EXPECT_EQ(t.ranges.category_id, (std::vector<std::uint32_t>{0, 7, 7, 9, 0}));
  EXPECT_EQ(t.ranges.category, (std::vector<std::uint8_t>{0, 0, 3, 0, 0}));  // Category 7 of the default domain only.
  EXPECT_EQ(t.ranges.domain[0], kNone);
  EXPECT_EQ(TextOf(t, t.ranges.domain[1]), "library");
  EXPECT_EQ(TextOf(t, t.ranges.domain[3]), "library");
  EXPECT_EQ(TextOf(t, t.ranges.domain[4]), "domain 4");  // Its name was lost.
  EXPECT_EQ(t.ranges.depth[4], 2);
  ASSERT_EQ(t.range_categories.rows(), 2u);
  EXPECT_EQ(t.range_categories.category_id, (std::vector<std::uint32_t>{7, 8}));
  EXPECT_EQ(TextOf(t, t.range_categories.name[1]), "of nobody");
  EXPECT_EQ(t.range_categories.domain, (std::vector<std::uint32_t>{kNone, kNone}));
}

// Rows that begin together are put in order by depth: all their columns.
TEST_F(DecodeRanges, RowsOfOneBeginKeepTheirColumns) {
  ThreadRecords r;
  r.String(1, "inner").String(2, "outer");
  WideRange inner = Wide(RecordKind::kRange, 1, 100, 110, 0, 3, 2, 5);
  inner.range.depth = 1;
  r.Add(inner).Add(RangeRecord{{RecordKind::kRange, kNvtx, 1}, 2, 100, 120, 0, 0, 0});
  const auto t = TablesOf(r);
  EXPECT_EQ(t.ranges.payload_kind, (std::vector<std::uint8_t>{0, 2}));
  EXPECT_EQ(t.ranges.category_id, (std::vector<std::uint32_t>{0, 5}));
  EXPECT_EQ(t.ranges.payload, (std::vector<std::int64_t>{0, 3}));
}

TEST_F(DecodeRanges, ThreadsNamedByOthers) {
  ThreadRecords first, second;
  first.Text(RecordKind::kThreadName, 0, "main").Text(RecordKind::kThreadName, 101, "given");
  second.Text(RecordKind::kThreadName, 0, "own").Range(0, 100, 200, 0);
  const auto t =
      Tables(SpoolBuilder().Meta().Process().Thread(0, 100).Thread(1, 101).Records(first).Records(second, 1));
  ASSERT_EQ(t.threads.rows(), 2u);
  EXPECT_EQ(TextOf(t, t.threads.name[0]), "main");
  EXPECT_EQ(TextOf(t, t.threads.name[1]), "given");
}

TEST_F(DecodeRanges, OpenRangesOfNvtxInARingBlock) {
  std::vector<std::byte> bytes(kRingHeaderBytes);
  auto* ring = reinterpret_cast<RingHeader*>(bytes.data());
  constexpr std::uint32_t kRange = static_cast<std::uint32_t>(RecordKind::kRange);
  ring->watched_depth = 1;
  ring->ranges[0] = {300, 1, kRange | 1u << 16};
  ring->nvtx_depth = 3;
  ring->nvtx[0] = {.head = kRange | 1u << 8 | 1u << 16, .name = 1, .begin_ticks = 400, .depth = 0, .domain = 2};
  ring->nvtx[1] = {.depth = 1, .domain = 2};  // Pushed while recording was off.
  ring->nvtx[2] = {.head = kRange | 1u << 8 | 2u << 16,
                   .name = 1,
                   .begin_ticks = 500,
                   .depth = 0,
                   .domain = 0,
                   .wide_payload = 77,
                   .category = 3,
                   .payload_kind = 2};
  ThreadRecords r;
  r.String(1, "name").Text(RecordKind::kDomain, 2, "library");
  const auto t = Tables(SpoolBuilder()
                            .Meta()
                            .Process()
                            .Thread()
                            .Records(r)
                            .Block(SpoolKind::kRing, bytes.data(), bytes.size())
                            .End(1000, 0, 9));
  EXPECT_EQ(t.ranges.begin_ns, (std::vector<std::int64_t>{300, 400, 500}));
  EXPECT_EQ(t.ranges.duration_ns, (std::vector<std::int64_t>{700, 600, 500}));
  EXPECT_EQ(t.ranges.open, (std::vector<std::uint8_t>{1, 1, 1}));
  EXPECT_EQ(t.ranges.source, (std::vector<std::uint8_t>{0, 1, 1}));
  EXPECT_EQ(TextOf(t, t.ranges.domain[1]), "library");
  EXPECT_EQ(t.ranges.domain[2], kNone);
  EXPECT_EQ(t.ranges.payload, (std::vector<std::int64_t>{0, 0, 77}));
  EXPECT_EQ(t.ranges.category_id[2], 3u);
  EXPECT_EQ(LossCount(t, "RangeOpen"), 3u);
}

}  // namespace
}  // namespace lockstep::trace
