// Files that are made in memory: what libhdf5 and our own reader find in them is the same.

#include "trace/file/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "core/own_file.h"
#include "trace/file/strings.h"
#include "trace/file/table_file.h"

namespace lockstep::trace {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("lockstep-whole-file-" + std::to_string(getpid()));
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  std::string Path(const char* name) const { return (dir_ / name).string(); }
  fs::path dir_;
};

// Rows in every table, with values that fill all bytes of a column; every third column is unknown throughout.
template <typename Tables>
Tables TablesOf(std::size_t rows, unsigned seed = 1) {
  Tables tables;
  std::mt19937_64 random(seed);
  tables.ForEachTable([&](auto& table) {
    std::size_t place = 0;
    table.ForEachColumn([&](const schema::ColumnInfo& info, auto& values) {
      using T = typename std::remove_cvref_t<decltype(values)>::value_type;
      const bool unknown = place++ % 3 == 2;
      values.resize(rows);
      for (T& value : values) value = static_cast<T>(unknown ? info.unknown() : static_cast<std::int64_t>(random()));
    });
  });
  return tables;
}

std::vector<char> BytesOfFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void WriteBytesTo(const std::string& path, const std::vector<char>& bytes, std::size_t size) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(size));
}
// The file without the index behind it, as HDF5 sees it.
void CutIndex(const std::string& from, const std::string& to) {
  const std::vector<char> bytes = BytesOfFile(from);
  std::uint64_t sizes[2];
  std::memcpy(sizes, bytes.data() + bytes.size() - 56, sizeof sizes);
  WriteBytesTo(to, bytes, bytes.size() - 56 - sizes[0] - sizes[1]);
}

// Of every table: its rows and a digest of each column.
std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> ValuesOf(const std::string& path) {
  std::vector<std::pair<std::uint64_t, std::vector<std::uint64_t>>> values;
  const auto file = TableFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.error().what;
  const auto digests = file.value().Digests();
  EXPECT_TRUE(digests.ok()) << digests.error().what;
  for (const TableFile::Digest& digest : digests.value()) values.emplace_back(digest.rows, digest.columns);
  return values;
}

template <typename Tables>
void ExpectSameTables(const Tables& expected, const Tables& read) {
  std::vector<std::vector<std::byte>> columns;
  const auto each = [&](const Tables& tables, const auto& f) {
    tables.ForEachTable([&](const auto& table) {
      table.ForEachColumn([&](const schema::ColumnInfo& info, const auto& values) {
        const auto* data = reinterpret_cast<const std::byte*>(values.data());
        f(std::string(table.kInfo.name) + "/" + std::string(info.name),
          std::vector<std::byte>(data, data + values.size() * sizeof values[0]));
      });
    });
  };
  each(expected, [&](const std::string&, std::vector<std::byte> bytes) { columns.push_back(std::move(bytes)); });
  std::size_t at = 0;
  each(read, [&](const std::string& name, const std::vector<std::byte>& bytes) {
    EXPECT_TRUE(columns[at++] == bytes) << name;
  });
}

TEST_F(WholeFileTest, TheIndexAndHdf5GiveTheSameValues) {
  for (const std::size_t rows : {std::size_t{1}, std::size_t{2}, kMostRawBytes / 8, kMostRawBytes / 8 + 1,
                                 kMostRawBytes + 1, std::size_t{9000}}) {
    const auto tables = TablesOf<schema::RankTables>(rows);
    ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
    CutIndex(Path("a.h5"), Path("b.h5"));
    for (const char* name : {"a.h5", "b.h5"}) {
      const auto file = TableFile::Open(Path(name));
      ASSERT_TRUE(file.ok()) << file.error().what;
      EXPECT_EQ(file.value().indexed(), std::string(name) == "a.h5");
      EXPECT_TRUE(file.value().complete());
      EXPECT_TRUE(file.value().MissingColumns().empty()) << file.value().MissingColumns()[0];
      const auto read = ReadRankFile(Path(name));
      ASSERT_TRUE(read.ok());
      EXPECT_TRUE(read.value().damaged.empty()) << read.value().damaged[0];
      ExpectSameTables(tables, read.value().tables);
    }
    EXPECT_EQ(ValuesOf(Path("a.h5")), ValuesOf(Path("b.h5")));
  }
}

// One table of more rows than a chunk has makes the writer take libhdf5 for all of them.
TEST_F(WholeFileTest, SmallTablesReadAsThoseOfALargeFile) {
  auto tables = TablesOf<schema::RankTables>(20);
  tables.kernels = {};
  ASSERT_TRUE(WriteRankFile(Path("small.h5"), tables).ok());
  for (std::size_t i = 0; i < kChunkRows + 1; ++i) tables.kernels.Append({.begin_ns = static_cast<std::int64_t>(i)});
  ASSERT_TRUE(WriteRankFile(Path("large.h5"), tables).ok());
  auto small = ValuesOf(Path("small.h5")), large = ValuesOf(Path("large.h5"));
  ASSERT_EQ(small.size(), large.size());
  std::size_t different = 0;
  for (std::size_t i = 0; i < small.size(); ++i) different += small[i] != large[i];
  EXPECT_EQ(different, 1u);  // The kernels.
}

TEST_F(WholeFileTest, ATimelineHasEveryTableAndColumn) {
  for (const std::size_t rows : {0, 3}) {
    const auto tables = TablesOf<schema::TimelineTables>(rows);
    ASSERT_TRUE(WriteTimelineFile(Path("t.h5"), tables).ok());
    CutIndex(Path("t.h5"), Path("u.h5"));
    const hid_t file = H5Fopen(Path("t.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
    ASSERT_GE(file, 0);
    for (const schema::TableInfo& table : schema::kTimelineTableInfos)
      for (std::size_t i = 0; i < table.column_count; ++i) {
        const std::string name = std::string(table.name) + "/" + std::string(table.columns[i].name);
        const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
        EXPECT_GE(dataset, 0) << name;
        const hid_t space = H5Dget_space(dataset);
        EXPECT_EQ(H5Sget_simple_extent_npoints(space), static_cast<hssize_t>(rows)) << name;
        H5Sclose(space);
        H5Dclose(dataset);
      }
    H5Fclose(file);
    for (const char* name : {"t.h5", "u.h5"}) {
      const auto read = ReadTimelineFile(Path(name));
      ASSERT_TRUE(read.ok()) << read.error().what;
      ExpectSameTables(tables, read.value());
    }
  }
}

TEST_F(WholeFileTest, ColumnsThatAreUnknownThroughoutAreNamedAndNotStored) {
  schema::RankTables tables;
  tables.steps.Append({.index = 4, .begin_ns = 7});
  tables.ranges.Append({.begin_ns = 9});
  StringInterner strings(tables.strings, tables.string_bytes);
  tables.meta.Append({.key = strings.Intern(""), .value = strings.Intern("")});
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
  const hid_t file = H5Fopen(Path("a.h5").c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  EXPECT_GT(H5Lexists(file, "steps/begin_ns", H5P_DEFAULT), 0);
  EXPECT_EQ(H5Lexists(file, "steps/end_ns", H5P_DEFAULT), 0);
  // Texts and facts are read without a look at what was left out.
  EXPECT_GT(H5Lexists(file, "strings/length_bytes", H5P_DEFAULT), 0);
  EXPECT_GT(H5Lexists(file, "meta/value", H5P_DEFAULT), 0);
  const hid_t group = H5Gopen2(file, "ranges", H5P_DEFAULT), attribute = H5Aopen(group, "left_out", H5P_DEFAULT);
  const hid_t type = H5Aget_type(attribute);
  std::string lines(H5Tget_size(type), '\0');
  EXPECT_GE(H5Aread(attribute, type, lines.data()), 0);
  EXPECT_NE(lines.find("name u32 string 4294967295\n"), std::string::npos) << lines;
  EXPECT_NE(lines.find("category u8 enum 0 none\n"), std::string::npos) << lines;
  H5Tclose(type);
  H5Aclose(attribute);
  H5Gclose(group);
  H5Fclose(file);
}

// Values in the header of their dataset have no checksum of their own but the header's.
TEST_F(WholeFileTest, AFlippedByteChangesNoValueUnnoticed) {
  const auto tables = TablesOf<schema::RankTables>(100);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
  const std::vector<char> bytes = BytesOfFile(Path("a.h5"));
  const auto whole = ValuesOf(Path("a.h5"));
  std::mt19937 random(5);
  int damaged = 0, same = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<char> copy = bytes;
    copy[random() % copy.size()] ^= static_cast<char>(1 + random() % 255);
    WriteBytesTo(Path("bad.h5"), copy, copy.size());
    const auto read = ReadRankFile(Path("bad.h5"));
    if (!read.ok() || !read.value().damaged.empty()) {
      ++damaged;
      continue;
    }
    ++same;
    EXPECT_EQ(ValuesOf(Path("bad.h5")), whole);
  }
  EXPECT_GT(damaged, 4);
  EXPECT_GT(same, 4);
}

TEST_F(WholeFileTest, ATruncatedFileIsRefusedOrWhole) {
  const auto tables = TablesOf<schema::RankTables>(3);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
  const std::vector<char> bytes = BytesOfFile(Path("a.h5"));
  CutIndex(Path("a.h5"), Path("hdf5.h5"));
  const std::size_t end = fs::file_size(Path("hdf5.h5"));
  for (std::size_t size = 0; size < bytes.size(); size += 997) {
    WriteBytesTo(Path("cut.h5"), bytes, size);
    const auto read = ReadRankFile(Path("cut.h5"));
    EXPECT_EQ(read.ok(), size >= end) << size;
    if (read.ok()) ExpectSameTables(tables, read.value().tables);
  }
}

TEST_F(WholeFileTest, WhatHdf5EditsCounts) {
  auto tables = TablesOf<schema::RankTables>(200);
  ASSERT_TRUE(WriteRankFile(Path("a.h5"), tables).ok());
  const auto edit = [&](const char* name, hid_t type, const auto& values) {
    const hid_t file = H5Fopen(Path("a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT);
    EXPECT_GE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0) << name;
    H5Dclose(dataset);
    H5Fclose(file);
  };
  // A chunk that grows, and one value in a header.
  std::mt19937_64 random(2);
  for (auto& value : tables.mpi_calls.begin_ns) value = static_cast<std::int64_t>(random());
  tables.steps.source[17] ^= 1;
  edit("mpi_calls/begin_ns", H5T_NATIVE_INT64, tables.mpi_calls.begin_ns);
  edit("steps/source", H5T_NATIVE_UINT8, tables.steps.source);
  const auto read = ReadRankFile(Path("a.h5"));
  ASSERT_TRUE(read.ok()) << read.error().what;
  ExpectSameTables(tables, read.value().tables);

  // Tables and attributes can be added, and what was there stays.
  const hid_t file = H5Fopen(Path("a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t scalar = H5Screate(H5S_SCALAR);
  const std::int64_t number = 5;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "more" + std::to_string(i);
    const hid_t group = H5Gcreate2(file, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(group, 0);
    H5Gclose(group);
    const hid_t attribute = H5Acreate2(file, name.c_str(), H5T_STD_I64LE, scalar, H5P_DEFAULT, H5P_DEFAULT);
    EXPECT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, &number), 0);
    H5Aclose(attribute);
  }
  H5Sclose(scalar);
  EXPECT_GE(H5Fclose(file), 0);
  const auto more = ReadRankFile(Path("a.h5"));
  ASSERT_TRUE(more.ok()) << more.error().what;
  ExpectSameTables(tables, more.value().tables);
}

// Also by a process that may open few files at a time.
TEST_F(WholeFileTest, ManyFilesAtOnceAreThoseOfOneAfterTheOther) {
  std::vector<schema::RankTables> tables;
  std::vector<NamedTables> files;
  for (unsigned i = 0; i < 60; ++i) tables.push_back(TablesOf<schema::RankTables>(i % 3, i));
  for (std::size_t i = 0; i < tables.size(); ++i) files.push_back({Path(std::to_string(i).c_str()), &tables[i]});
  struct rlimit usual {};
  ::getrlimit(RLIMIT_NOFILE, &usual);
  for (const rlim_t limit : {usual.rlim_cur, rlim_t{30}}) {
    const struct rlimit few { limit, usual.rlim_max };
    ::setrlimit(RLIMIT_NOFILE, &few);
    const Status written = WriteRankFiles(files);
    ::setrlimit(RLIMIT_NOFILE, &usual);
    ASSERT_TRUE(written.ok()) << written.error().what;
    ASSERT_TRUE(WriteRankFile(Path("one"), tables[47]).ok());
    EXPECT_TRUE(BytesOfFile(Path("47")) == BytesOfFile(Path("one")));
    for (std::size_t i = 0; i < tables.size(); ++i)
      ExpectSameTables(tables[i], ReadRankFile(files[i].path).value().tables);
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 61);
    for (const NamedTables& file : files) fs::remove(file.path);
  }
}

// What cannot get its name stays away, and what comes after it.
TEST_F(WholeFileTest, TheFirstFileThatFailsIsTheLastThatIsTried) {
  const auto tables = TablesOf<schema::RankTables>(2);
  fs::create_directories(Path("b/in the way"));
  const std::vector<NamedTables> files = {{Path("a"), &tables}, {Path("b"), &tables}, {Path("c"), &tables}};
  const Status written = WriteRankFiles(files);
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().where, Path("b"));
  EXPECT_TRUE(fs::exists(Path("a")));
  EXPECT_FALSE(fs::exists(Path("c")));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 2);
}

TEST_F(WholeFileTest, AnIndexThatClaimsMoreRowsThanAFileHasIsIgnored) {
  FileIndex index;
  index.AddTable(SmallTable{"steps", 1u << 31, {{.name = "index", .width = 8, .is_signed = true, .left_out = true}}});
  WriteBytesTo(Path("x"), std::vector<char>(100, 'x'), 100);
  const OwnedFd fd = OpenPlain(Path("x"), O_RDWR);
  ASSERT_TRUE(fd.open());
  EXPECT_FALSE(index.Append(fd.get()));
  EXPECT_EQ(fs::file_size(Path("x")), 100u);
}

}  // namespace
}  // namespace lockstep::trace
