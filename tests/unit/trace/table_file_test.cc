#include "trace/table_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "trace/strings.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class TableFileTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::temp_directory_path() / ("lockstep-table-file-" + std::to_string(getpid()) + "-" + info->name());
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Path(const char* name) const { return (dir_ / name).string(); }
  fs::path dir_;
};

// Every column width, values that fill all of their bytes.
schema::RankTables MakeTables(std::size_t calls, unsigned seed = 1) {
  schema::RankTables tables;
  std::mt19937_64 random(seed);
  StringInterner strings(tables.strings, tables.string_bytes);
  tables.meta.Append({.key = strings.Intern("rank"), .value = strings.Intern("5")});
  std::int64_t now = -1000;
  for (std::size_t i = 0; i < calls; ++i) {
    now += static_cast<std::int64_t>(random() % 10'000);
    tables.mpi_calls.Append({.begin_ns = now,
                             .duration_ns = static_cast<std::int64_t>(random() % 5000),
                             .thread = static_cast<std::uint32_t>(random()),
                             .op = static_cast<std::uint16_t>(random()),
                             .comm = static_cast<std::uint32_t>(random() % 3),
                             .bytes = random(),
                             .peer = static_cast<std::int32_t>(random()),
                             .tag = -2,
                             .count = 1,
                             .outcome = static_cast<std::uint8_t>(random())});
  }
  return tables;
}

void ExpectEqual(const schema::MpiCalls& a, const schema::MpiCalls& b) {
  EXPECT_EQ(a.begin_ns, b.begin_ns);
  EXPECT_EQ(a.duration_ns, b.duration_ns);
  EXPECT_EQ(a.thread, b.thread);
  EXPECT_EQ(a.op, b.op);
  EXPECT_EQ(a.comm, b.comm);
  EXPECT_EQ(a.bytes, b.bytes);
  EXPECT_EQ(a.peer, b.peer);
  EXPECT_EQ(a.tag, b.tag);
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.outcome, b.outcome);
}

TEST_F(TableFileTest, RoundTripOfEverySizeAroundAChunk) {
  for (const std::size_t rows : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{17}, kChunkRows - 1,
                                 kChunkRows, kChunkRows + 1, 3 * kChunkRows + 77}) {
    const schema::RankTables written = MakeTables(rows);
    ASSERT_TRUE(WriteRankFile(Path("a.h5"), written).ok());
    EXPECT_FALSE(fs::exists(Path("a.h5.part")));
    const auto read = ReadRankFile(Path("a.h5"));
    ASSERT_TRUE(read.ok()) << read.error().what;
    EXPECT_TRUE(read.value().complete);
    EXPECT_TRUE(read.value().damaged.empty());
    ExpectEqual(read.value().tables.mpi_calls, written.mpi_calls);
    EXPECT_EQ(TextOf(read.value().tables, read.value().tables.meta.value[0]), "5");
  }
}

TEST_F(TableFileTest, ManySmallAppendsEqualOneBigOne) {
  const schema::RankTables all = MakeTables(2 * kChunkRows + 1000);
  ASSERT_TRUE(WriteRankFile(Path("one.h5"), all).ok());
  auto writer = TableFileWriter::Create(Path("many.h5"), schema::kRankFileFormat);
  ASSERT_TRUE(writer.ok());
  std::mt19937 random(3);
  for (std::size_t at = 0; at < all.mpi_calls.rows();) {
    schema::MpiCalls piece;
    const std::size_t end = std::min(all.mpi_calls.rows(), at + random() % 40'000);
    for (; at < end; ++at) piece.Append(all.mpi_calls.Get(at));
    ASSERT_TRUE(writer.value().Append(piece).ok());
  }
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(writer.value().Append(i == 0 ? schema::Meta{} : all.meta).ok());
  ASSERT_TRUE(writer.value().Append(all.strings).ok());
  ASSERT_TRUE(writer.value().Append(all.string_bytes).ok());
  ASSERT_TRUE(writer.value().Finish().ok());

  const auto one = TableFile::Open(Path("one.h5")), many = TableFile::Open(Path("many.h5"));
  ASSERT_TRUE(one.ok() && many.ok());
  const auto digest_one = one.value().Digests(), digest_many = many.value().Digests();
  ASSERT_TRUE(digest_one.ok() && digest_many.ok());
  ASSERT_EQ(digest_one.value().size(), std::size(schema::kRankTableInfos));
  for (std::size_t i = 0; i < digest_one.value().size(); ++i) {
    EXPECT_EQ(digest_one.value()[i].value, digest_many.value()[i].value) << digest_one.value()[i].table;
    EXPECT_EQ(digest_one.value()[i].rows, digest_many.value()[i].rows);
  }
}

TEST_F(TableFileTest, OneChangedValueChangesTheDigest) {
  schema::RankTables tables = MakeTables(kChunkRows + 10);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
  tables.mpi_calls.tag[kChunkRows + 3] ^= 1;
  ASSERT_TRUE(WriteRankFile(Path("b.h5"), tables).ok());
  const auto a = TableFile::Open(Path("a.h5")).value().Digests(), b = TableFile::Open(Path("b.h5")).value().Digests();
  for (std::size_t i = 0; i < a.value().size(); ++i)
    EXPECT_EQ(a.value()[i].value == b.value()[i].value, a.value()[i].table != "mpi_calls");
}

TEST_F(TableFileTest, PartsOfATable) {
  const schema::RankTables all = MakeTables(2 * kChunkRows + 1000);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), all).ok());
  const auto file = TableFile::Open(Path("a.h5"));
  ASSERT_TRUE(file.ok());
  for (const auto& [first, count] : {std::pair<std::uint64_t, std::uint64_t>{0, 1},
                                     {kChunkRows - 1, 2},
                                     {kChunkRows - 7, kChunkRows + 20},
                                     {2 * kChunkRows + 999, 50},
                                     {1 << 30, 1}}) {
    const auto part = file.value().Read<schema::MpiCalls>(first, count);
    ASSERT_TRUE(part.ok());
    const std::uint64_t rows = all.mpi_calls.rows();
    ASSERT_EQ(part.value().rows(), first >= rows ? 0 : std::min(count, rows - first));
    for (std::size_t i = 0; i < part.value().rows(); ++i) {
      ASSERT_EQ(part.value().begin_ns[i], all.mpi_calls.begin_ns[first + i]);
      ASSERT_EQ(part.value().op[i], all.mpi_calls.op[first + i]);
      ASSERT_EQ(part.value().outcome[i], all.mpi_calls.outcome[first + i]);
    }
  }
}

TEST_F(TableFileTest, ThreadsReadAtOnce) {
  const schema::RankTables all = MakeTables(2 * kChunkRows);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), all).ok());
  const auto file = TableFile::Open(Path("a.h5"));
  ASSERT_TRUE(file.ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 5; ++i) {
        const auto part = file.value().Read<schema::MpiCalls>();
        ASSERT_TRUE(part.ok());
        ExpectEqual(part.value(), all.mpi_calls);
        ASSERT_TRUE(ReadRankFile(Path("a.h5")).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(TableFileTest, AbandonedWriterLeavesAReadablePart) {
  const schema::RankTables all = MakeTables(kChunkRows + 5);
  {
    auto writer = TableFileWriter::Create(Path("a.h5"), schema::kRankFileFormat);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer.value().Append(all.mpi_calls).ok());
  }
  EXPECT_FALSE(fs::exists(Path("a.h5")));
  const auto read = ReadRankFile(Path("a.h5.part"));
  ASSERT_TRUE(read.ok());
  EXPECT_FALSE(read.value().complete);
  ExpectEqual(read.value().tables.mpi_calls, all.mpi_calls);
  EXPECT_EQ(read.value().tables.p2p.rows(), 0u);
}

TEST_F(TableFileTest, AttributesComeBack) {
  auto writer = TableFileWriter::Create(Path("a.h5"), schema::kTimelineFormat);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().SetAttribute("ranks", std::int64_t{-7}).ok());
  ASSERT_TRUE(writer.value().SetAttribute("options", "a").ok());
  ASSERT_TRUE(writer.value().SetAttribute("options", "abc").ok());
  ASSERT_TRUE(writer.value().Finish().ok());
  const auto file = TableFile::Open(Path("a.h5"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file.value().Attribute("ranks", std::int64_t{0}), -7);
  EXPECT_EQ(file.value().Attribute("options", ""), "abc");
  EXPECT_EQ(file.value().Attribute("absent", "x"), "x");
  EXPECT_EQ(file.value().format(), schema::kTimelineFormat);
  EXPECT_TRUE(ReadTimelineFile(Path("a.h5")).ok());
  const auto as_rank = ReadRankFile(Path("a.h5"));
  ASSERT_FALSE(as_rank.ok());
  EXPECT_EQ(as_rank.error().code, ErrorCode::kMalformed);
}

TEST_F(TableFileTest, UnwritablePlaceNamesTheReason) {
  const auto writer = TableFileWriter::Create("/nonexistent/dir/a.h5", schema::kRankFileFormat);
  ASSERT_FALSE(writer.ok());
  EXPECT_EQ(writer.error().code, ErrorCode::kIo);
  EXPECT_NE(writer.error().what.find("No such file"), std::string::npos);
}

TEST_F(TableFileTest, OtherFilesAreRefusedByName) {
  EXPECT_EQ(TableFile::Open(Path("absent.h5")).error().code, ErrorCode::kNotFound);
  std::ofstream(Path("text.h5")) << "not hdf5";
  EXPECT_EQ(TableFile::Open(Path("text.h5")).error().code, ErrorCode::kMalformed);
  ASSERT_TRUE(TableFileWriter::Create(Path("newer.h5"), "lockstep.rank/2").value().Finish().ok());
  EXPECT_EQ(TableFile::Open(Path("newer.h5")).error().code, ErrorCode::kUnsupported);
  ASSERT_TRUE(TableFileWriter::Create(Path("other.h5"), "someone.else").value().Finish().ok());
  EXPECT_EQ(TableFile::Open(Path("other.h5")).error().code, ErrorCode::kMalformed);
}

std::vector<char> Bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void Write(const std::string& path, const std::vector<char>& bytes, std::size_t size) {
  fs::remove(path);  // ext4 flushes a file that is cut to nothing and written again.
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(size));
}

TEST_F(TableFileTest, TruncatedAnywhereNeverCrashes) {
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), MakeTables(kChunkRows + 100)).ok());
  const std::vector<char> bytes = Bytes(Path("a.h5"));
  std::mt19937 random(7);
  int opened = 0;
  for (int i = 0; i < 200; ++i) {
    const std::size_t size = i < 60 ? static_cast<std::size_t>(i) * 50 : random() % bytes.size();
    Write(Path("cut.h5"), bytes, size);
    if (ReadRankFile(Path("cut.h5")).ok()) ++opened;
  }
  EXPECT_EQ(opened, 0);  // libhdf5 refuses a file shorter than its superblock says.
}

TEST_F(TableFileTest, FlippedBytesNeverCrash) {
  const schema::RankTables all = MakeTables(2000);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), all).ok());
  const std::vector<char> bytes = Bytes(Path("a.h5"));
  std::mt19937 random(11);
  int damaged = 0, whole = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<char> copy = bytes;
    for (int flips = 1 + static_cast<int>(random() % 8); flips > 0; --flips)
      copy[random() % copy.size()] = static_cast<char>(random());
    Write(Path("bad.h5"), copy, copy.size());
    const auto read = ReadRankFile(Path("bad.h5"));
    if (!read.ok()) continue;
    (read.value().damaged.empty() ? whole : damaged) += 1;
    const auto file = TableFile::Open(Path("bad.h5"));
    if (file.ok()) (void)file.value().Digests();
  }
  EXPECT_GT(damaged + whole, 0);
}

// One bad chunk costs its own table, no other.
TEST_F(TableFileTest, DamageIsConfinedToItsTable) {
  schema::RankTables all = MakeTables(100'000);
  for (int i = 0; i < 50; ++i) all.steps.Append({.index = i});
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), all).ok());
  std::vector<char> bytes = Bytes(Path("a.h5"));
  // The random u64 column is by far the largest thing in the file: its middle is chunk data.
  const std::size_t middle = bytes.size() / 2;
  for (std::size_t i = 0; i < 64; ++i) bytes[middle + i] ^= 0x5a;
  Write(Path("bad.h5"), bytes, bytes.size());
  const auto read = ReadRankFile(Path("bad.h5"));
  ASSERT_TRUE(read.ok()) << read.error().what;
  ASSERT_EQ(read.value().damaged.size(), 1u);
  EXPECT_EQ(read.value().damaged[0].substr(0, 10), "mpi_calls/");
  EXPECT_EQ(read.value().tables.steps.index, all.steps.index);
}

}  // namespace
}  // namespace lockstep
