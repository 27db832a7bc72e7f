#include "trace/file/table_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "tests/unit/eventually.h"
#include "trace/file/strings.h"

namespace lockstep::trace {
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

// Tables whose rows are put together column by column may not know of one that came later.
TEST_F(TableFileTest, AColumnThatNobodyFilledIsUnknown) {
  schema::RankTables written = MakeTables(kChunkRows + 7);
  written.mpi_calls.peer.resize(3);
  written.mpi_calls.comm.clear();
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), written).ok());
  const auto read = ReadRankFile(Path("a.h5"));
  ASSERT_TRUE(read.ok()) << read.error().what;
  EXPECT_TRUE(read.value().damaged.empty());
  const schema::MpiCalls& calls = read.value().tables.mpi_calls;
  EXPECT_EQ(calls.begin_ns, written.mpi_calls.begin_ns);
  EXPECT_EQ(calls.comm, std::vector<std::uint32_t>(kChunkRows + 7, schema::kNone));
  written.mpi_calls.peer.resize(kChunkRows + 7, -1);
  EXPECT_EQ(calls.peer, written.mpi_calls.peer);
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

TEST_F(TableFileTest, EmptyTablesStayOutOfRankFilesAndReadAsEmpty) {
  schema::RankTables tables = MakeTables(10);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
  const auto read = ReadRankFile(Path("a.h5"));
  ASSERT_TRUE(read.ok());
  EXPECT_TRUE(read.value().damaged.empty());
  EXPECT_EQ(read.value().tables.kernels.rows(), 0u);
  EXPECT_EQ(read.value().tables.mpi_calls.rows(), 10u);
  const auto file = TableFile::Open(Path("a.h5"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file.value().complete() && file.value().indexed());
  EXPECT_EQ(file.value().Rows("kernels"), 0u);
  EXPECT_TRUE(file.value().MissingColumns().empty());
  EXPECT_LT(fs::file_size(Path("a.h5")), 40'000u);
  // Nothing at all is a file as well.
  ASSERT_TRUE(WriteRankFile(Path("none.h5"), schema::RankTables{}).ok());
  EXPECT_TRUE(ReadRankFile(Path("none.h5")).ok());
  EXPECT_TRUE(TableFile::Open(Path("none.h5")).value().Digests().ok());
}

TEST_F(TableFileTest, TheSameTablesGiveTheSameFileAtAnyTime) {
  const auto bytes_of = [&](const char* name) {
    std::ifstream in(Path(name), std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), MakeTables(100)).ok());
  // HDF5's times are in seconds.
  ASSERT_TRUE(test::Eventually([second = std::time(nullptr)] { return std::time(nullptr) != second; }));
  ASSERT_TRUE(WriteRankFile(Path("b.h5"), MakeTables(100)).ok());
  EXPECT_TRUE(bytes_of("a.h5") == bytes_of("b.h5"));
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

TEST_F(TableFileTest, AbandonedWriterLeavesNothing) {
  std::ofstream(Path("a.h5")) << "before";
  const auto entries = [&] {
    return std::distance(fs::directory_iterator(fs::path(Path("a.h5")).parent_path()), fs::directory_iterator());
  };
  const auto before = entries();
  {
    auto writer = TableFileWriter::Create(Path("a.h5"), schema::kRankFileFormat);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(entries(), before + 1);
    ASSERT_TRUE(writer.value().Append(MakeTables(kChunkRows + 5).mpi_calls).ok());
  }
  EXPECT_EQ(entries(), before);
  EXPECT_EQ(fs::file_size(Path("a.h5")), 6u);
}

// As a writer that was killed leaves it, and one that still writes.
TEST_F(TableFileTest, PartsOfTheDeadGoAndThoseOfTheLivingStay) {
  auto other = TableFileWriter::Create(Path("t.h5"), schema::kTimelineFormat);
  ASSERT_TRUE(other.ok());
  const std::string dead = Path(".t.h5.0123456789abcdef.part"), foreign = Path(".t.h5.notes.part");
  std::ofstream(dead) << "half";
  std::ofstream(foreign) << "x";
  ASSERT_TRUE(WriteTimelineFile(Path("t.h5"), {}).ok());
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(other.value().Finish().ok());
  EXPECT_TRUE(ReadTimelineFile(Path("t.h5")).ok());
}

TEST_F(TableFileTest, LinksAreReplacedAndNotFollowed) {
  std::ofstream(Path("precious")) << "mine";
  fs::create_symlink("precious", Path("a.h5"));
  fs::create_symlink("precious", Path("a.h5.part"));
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), MakeTables(3)).ok());
  EXPECT_EQ(fs::file_size(Path("precious")), 4u);
  EXPECT_FALSE(fs::is_symlink(Path("a.h5")));
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
  // Behind HDF5's end lies the index, its size in the last bytes; without it the file is as good.
  std::uint64_t index_bytes[2];
  std::memcpy(index_bytes, bytes.data() + bytes.size() - 56, sizeof index_bytes);
  const std::size_t hdf5_end = bytes.size() - 56 - index_bytes[0] - index_bytes[1];
  int opened = 0, without_index = 0;
  for (int i = 0; i < 220; ++i) {
    const std::size_t size = i < 60    ? static_cast<std::size_t>(i) * 50
                             : i < 200 ? random() % bytes.size()
                                       : hdf5_end + random() % (bytes.size() - hdf5_end);
    Write(Path("cut.h5"), bytes, size);
    const auto read = ReadRankFile(Path("cut.h5"));
    if (!read.ok()) continue;
    ++opened;
    without_index += size >= hdf5_end && read.value().damaged.empty() && read.value().complete;
  }
  EXPECT_EQ(opened, without_index);  // libhdf5 refuses a file shorter than its superblock says.
  EXPECT_GE(without_index, 20);
}

TEST_F(TableFileTest, TheIndexIsBelievedOnlyWhileTheFileIsAsItWas) {
  const schema::RankTables all = MakeTables(kChunkRows + 100);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), all).ok());
  EXPECT_TRUE(TableFile::Open(Path("a.h5")).value().indexed());
  const std::vector<char> bytes = Bytes(Path("a.h5"));
  const auto values_of = [&](const TableFile& file) { return file.Read<schema::MpiCalls>().value().begin_ns; };

  // Bytes behind it, as a copy that went wrong has: another size, the same values.
  std::vector<char> longer = bytes;
  longer.push_back(0);
  Write(Path("longer.h5"), longer, longer.size());
  const auto file = TableFile::Open(Path("longer.h5"));
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file.value().indexed());
  EXPECT_EQ(values_of(file.value()), all.mpi_calls.begin_ns);

  // Edited through HDF5: the new values count, wherever their chunks went.
  for (const std::int64_t step : {1, 1'000'003, -77}) {
    Write(Path("edited.h5"), bytes, bytes.size());
    std::vector<std::int64_t> edited = all.mpi_calls.begin_ns;
    for (std::size_t i = 0; i < edited.size(); ++i) edited[i] += step * static_cast<std::int64_t>(i % 1000);
    const hid_t hdf5 = H5Fopen(Path("edited.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    ASSERT_GE(hdf5, 0);
    const hid_t dataset = H5Dopen2(hdf5, "mpi_calls/begin_ns", H5P_DEFAULT);
    ASSERT_GE(H5Dwrite(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, edited.data()), 0);
    H5Dclose(dataset);
    H5Fclose(hdf5);
    EXPECT_EQ(values_of(TableFile::Open(Path("edited.h5")).value()), edited);
    // The same edit in a file whose index was put back behind it.
    std::vector<char> both = Bytes(Path("edited.h5"));
    both.resize(std::max(both.size(), bytes.size()));
    std::copy(bytes.end() - 4096, bytes.end(), both.end() - 4096);
    Write(Path("both.h5"), both, both.size());
    const auto restored = TableFile::Open(Path("both.h5"));
    if (restored.ok()) {
      EXPECT_FALSE(restored.value().indexed());
    }
  }
}

TEST_F(TableFileTest, RowsInOtherFilesAreHeldAgainstTheirList) {
  schema::TlStepRanks rows;
  for (int i = 0; i < 1000; ++i) rows.Append({.index = i / 10, .rank = i % 10, .compute_ns = i * 7});
  const auto write_part = [&](const std::string& name, int first, int count, int add) {
    schema::TlStepRanks part;
    for (int i = first; i < first + count; ++i) {
      auto row = rows.Get(static_cast<std::size_t>(i));
      row.compute_ns += add;
      part.Append(row);
    }
    schema::TimelineTables tables;
    tables.step_ranks = part;
    EXPECT_TRUE(WriteTimelineFile(Path(name.c_str()), tables).ok());
    const auto digests = TableFile::Open(Path(name.c_str())).value().Digests().value();
    for (const auto& digest : digests)
      if (digest.table == "step_ranks") return TablePart{name, digest.rows, digest.value};
    return TablePart{};
  };
  const std::vector<TablePart> parts = {write_part("p0.h5", 0, 400, 0), write_part("p1.h5", 400, 0, 0),
                                        write_part("p2.h5", 400, 600, 0)};
  auto writer = TableFileWriter::Create(Path("index.h5"), schema::kTimelineFormat);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer.value().AddParts(schema::TlStepRanks::kInfo, parts).ok());
  ASSERT_TRUE(writer.value().Finish().ok());

  const auto whole = ReadTimelineFile(Path("index.h5"));
  ASSERT_TRUE(whole.ok()) << whole.error().what;
  EXPECT_EQ(whole.value().step_ranks.index, rows.index);
  EXPECT_EQ(whole.value().step_ranks.compute_ns, rows.compute_ns);
  const TableFile file = std::move(TableFile::Open(Path("index.h5"))).value();
  EXPECT_EQ(file.Read<schema::TlStepRanks>(395, 10).value().compute_ns[9], rows.compute_ns[404]);

  // HDF5 itself finds them too, for everybody else.
  const hid_t hdf5 = H5Fopen(Path("index.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t dataset = H5Dopen2(hdf5, "step_ranks/compute_ns", H5P_DEFAULT);
  std::vector<std::int64_t> read(rows.rows());
  EXPECT_GE(H5Dread(dataset, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, read.data()), 0);
  EXPECT_EQ(read, rows.compute_ns);
  H5Dclose(dataset);
  H5Fclose(hdf5);

  fs::rename(Path("p2.h5"), Path("away.h5"));
  const auto missing = ReadTimelineFile(Path("index.h5"));
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().where.find("p2.h5"), std::string::npos);
  EXPECT_EQ(missing.error().what, "a part of the timeline is missing");
  (void)write_part("p2.h5", 400, 600, 1);  // Other values.
  const auto other = ReadTimelineFile(Path("index.h5"));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().where.find("p2.h5"), std::string::npos);
  fs::rename(Path("away.h5"), Path("p2.h5"));
  EXPECT_TRUE(ReadTimelineFile(Path("index.h5")).ok());
}

TEST_F(TableFileTest, ThreadsThatCompressChangeNothing) {
  schema::TimelineTables tables;
  for (int i = 0; i < 3 * static_cast<int>(kChunkRows) + 5; ++i)
    tables.collective_ranks.Append(
        {.collective = static_cast<std::uint32_t>(i / 4), .rank = i % 4, .arrival_ns = i * 17});
  ASSERT_TRUE(WriteTimelineFile(Path("one.h5"), tables).ok());
  const RunParallel backwards = [](std::size_t n, const std::function<void(std::size_t)>& f) {
    for (std::size_t i = n; i-- > 0;) f(i);
  };
  ASSERT_TRUE(WriteTimelineFile(Path("many.h5"), tables, backwards).ok());
  const auto one = TableFile::Open(Path("one.h5")).value().Digests().value();
  const auto many = TableFile::Open(Path("many.h5")).value().Digests().value();
  ASSERT_EQ(one.size(), many.size());
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i].columns, many[i].columns) << one[i].table;
  EXPECT_EQ(fs::file_size(Path("one.h5")), fs::file_size(Path("many.h5")));
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
}  // namespace lockstep::trace
