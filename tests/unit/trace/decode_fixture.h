#pragma once
// A directory, a spool in it, its decoded tables.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "spool_builder.h"
#include "trace/decode/decode.h"
#include "trace/file/strings.h"

namespace lockstep::trace {

class DecodeTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = std::filesystem::temp_directory_path() /
           ("lockstep-decode-" + std::to_string(getpid()) + "-" + info->test_suite_name() + "-" + info->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string Path(const char* name) const { return (dir_ / name).string(); }

  Decoded Decode(const SpoolBuilder& spool, const std::string& segment = "") {
    spool.Write(Path("a.spool"));
    auto decoded = DecodeSpool({Path("a.spool"), segment});
    EXPECT_TRUE(decoded.ok()) << decoded.error().what;
    return decoded.ok() ? std::move(decoded).value() : Decoded{.processes = std::vector<DecodedProcess>(1)};
  }
  schema::RankTables Tables(const SpoolBuilder& spool, const std::string& segment = "") {
    return std::move(Decode(spool, segment).processes.at(0).tables);
  }
  // One process with one thread.
  schema::RankTables TablesOf(const ThreadRecords& records) {
    return Tables(SpoolBuilder().Meta().Process().Thread().Records(records).End(1'000'000));
  }
  static std::uint64_t LossCount(const schema::RankTables& tables, std::string_view name) {
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < tables.losses.rows(); ++i)
      if (TextOf(tables, tables.losses.name[i]) == name) count += tables.losses.count[i];
    return count;
  }
  static std::string MetaOf(const schema::RankTables& tables, std::string_view key) {
    for (std::size_t i = 0; i < tables.meta.rows(); ++i)
      if (TextOf(tables, tables.meta.key[i]) == key) return std::string(TextOf(tables, tables.meta.value[i]));
    return "<absent>";
  }
  std::filesystem::path dir_;
};

}  // namespace lockstep::trace
