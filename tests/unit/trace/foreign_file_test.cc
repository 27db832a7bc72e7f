// Rank files that somebody else wrote, with other layouts than ours.

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "trace/file/table_file.h"

namespace lockstep::trace {
namespace {

class ForeignFile : public testing::Test {
 protected:
  void SetUp() override {
    path_ =
        (std::filesystem::temp_directory_path() / ("lockstep-foreign-" + std::to_string(getpid()) + ".h5")).string();
    file_ = H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t type = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
    const std::string format = "lockstep.rank/1";
    H5Tset_size(type, format.size());
    const hid_t attribute = H5Acreate2(file_, "format", type, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, format.data());
    H5Aclose(attribute);
    H5Sclose(scalar);
    H5Tclose(type);
    group_ = H5Gcreate2(file_, "steps", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  enum Layout { kContiguous, kChunked, kDeflated, kShuffled, kBoth, kFletcher };
  template <typename T>
  void Add(const char* name, hid_t file_type, hid_t memory_type, Layout layout, const std::vector<T>& values) {
    const hsize_t rows = values.size(), chunk = 100;
    const hid_t space = H5Screate_simple(1, &rows, nullptr), creation = H5Pcreate(H5P_DATASET_CREATE);
    if (layout != kContiguous) H5Pset_chunk(creation, 1, &chunk);
    if (layout == kShuffled || layout == kBoth) H5Pset_shuffle(creation);
    if (layout == kDeflated || layout == kBoth) H5Pset_deflate(creation, 6);
    if (layout == kFletcher) H5Pset_fletcher32(creation);
    const hid_t dataset = H5Dcreate2(group_, name, file_type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    if (!values.empty()) H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(dataset);
    H5Pclose(creation);
    H5Sclose(space);
  }
  TableFile Finish() {
    H5Gclose(group_);
    H5Fclose(file_);
    auto file = TableFile::Open(path_);
    EXPECT_TRUE(file.ok()) << file.error().what;
    return std::move(file).value();
  }

  std::string path_;
  hid_t file_ = -1, group_ = -1;
};

std::vector<std::int64_t> Counting(std::size_t rows) {
  std::vector<std::int64_t> values(rows);
  std::iota(values.begin(), values.end(), std::int64_t{-3});
  return values;
}

TEST_F(ForeignFile, TextOfVariableLengthIsNotRead) {
  H5Adelete(file_, "format");
  const hid_t type = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
  H5Tset_size(type, H5T_VARIABLE);
  const char* format = "lockstep.rank/1";
  const hid_t attribute = H5Acreate2(file_, "format", type, scalar, H5P_DEFAULT, H5P_DEFAULT);
  H5Awrite(attribute, type, &format);
  H5Aclose(attribute);
  H5Sclose(scalar);
  H5Tclose(type);
  H5Gclose(group_);
  H5Fclose(file_);
  const auto file = TableFile::Open(path_);
  ASSERT_FALSE(file.ok());
  EXPECT_NE(file.error().hint.find("a text of fixed length"), std::string::npos) << file.error().hint;
}

TEST_F(ForeignFile, EveryLayoutIsRead) {
  const auto values = Counting(1234);
  Add("index", H5T_STD_I64LE, H5T_NATIVE_INT64, kContiguous, values);
  Add("begin_ns", H5T_STD_I64LE, H5T_NATIVE_INT64, kChunked, values);
  Add("end_ns", H5T_STD_I64LE, H5T_NATIVE_INT64, kDeflated, values);
  Add("cpu_ns", H5T_STD_I64LE, H5T_NATIVE_INT64, kShuffled, values);
  Add("source", H5T_STD_U8LE, H5T_NATIVE_UINT8, kBoth, std::vector<std::uint8_t>(1234, 3));
  Add("complete", H5T_STD_U8LE, H5T_NATIVE_UINT8, kFletcher, std::vector<std::uint8_t>(1234, 1));
  const TableFile file = Finish();
  const auto steps = file.Read<schema::Steps>(5, 1000);
  ASSERT_TRUE(steps.ok()) << steps.error().what;
  ASSERT_EQ(steps.value().rows(), 1000u);
  for (std::size_t i = 0; i < 1000; ++i) {
    const std::int64_t expected = static_cast<std::int64_t>(i) + 2;
    ASSERT_EQ(steps.value().index[i], expected);
    ASSERT_EQ(steps.value().begin_ns[i], expected);
    ASSERT_EQ(steps.value().end_ns[i], expected);
    ASSERT_EQ(steps.value().cpu_ns[i], expected);
    ASSERT_EQ(steps.value().source[i], 3);
    ASSERT_EQ(steps.value().complete[i], 1);
    ASSERT_EQ(steps.value().warmup[i], 0);
  }
  EXPECT_EQ(file.MissingColumns(), (std::vector<std::string>{"steps/warmup", "steps/thread", "steps/others_cpu_ns"}));
  EXPECT_EQ(steps.value().thread[0], schema::kNone);
  EXPECT_FALSE(file.complete());
}

TEST_F(ForeignFile, BigEndianIsConverted) {
  Add("index", H5T_STD_I64BE, H5T_NATIVE_INT64, kBoth, Counting(500));
  const auto steps = Finish().Read<schema::Steps>();
  ASSERT_TRUE(steps.ok()) << steps.error().what;
  EXPECT_EQ(steps.value().index, Counting(500));
}

TEST_F(ForeignFile, ShortestColumnDecides) {
  Add("index", H5T_STD_I64LE, H5T_NATIVE_INT64, kBoth, Counting(500));
  Add("begin_ns", H5T_STD_I64LE, H5T_NATIVE_INT64, kBoth, Counting(321));
  const auto steps = Finish().Read<schema::Steps>();
  ASSERT_TRUE(steps.ok());
  EXPECT_EQ(steps.value().rows(), 321u);
}

TEST_F(ForeignFile, WrongTypeNamesTheColumn) {
  Add("index", H5T_STD_I64LE, H5T_NATIVE_INT64, kBoth, Counting(150));
  Add("begin_ns", H5T_STD_U64LE, H5T_NATIVE_INT64, kBoth, Counting(150));
  const auto steps = Finish().Read<schema::Steps>();
  ASSERT_FALSE(steps.ok());
  EXPECT_EQ(steps.error().what, "steps/begin_ns: type is u64, expected i64");
}

TEST_F(ForeignFile, FloatsAreNoColumn) {
  Add("index", H5T_IEEE_F64LE, H5T_NATIVE_INT64, kBoth, Counting(150));
  const auto read = ReadRankFile((Finish(), path_));
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read.value().damaged.size(), 1u);
  EXPECT_EQ(read.value().damaged[0].substr(0, 12), "steps/index:");
}

// A dataset may claim any size without storing a byte.
TEST_F(ForeignFile, HugeClaimsAreRefused) {
  const hsize_t rows = hsize_t{1} << 35, chunk = 1000;
  const hid_t space = H5Screate_simple(1, &rows, nullptr), creation = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(creation, 1, &chunk);
  H5Dclose(H5Dcreate2(group_, "index", H5T_STD_I64LE, space, H5P_DEFAULT, creation, H5P_DEFAULT));
  H5Pclose(creation);
  H5Sclose(space);
  const auto steps = Finish().Read<schema::Steps>();
  ASSERT_FALSE(steps.ok());
}

}  // namespace
}  // namespace lockstep::trace
