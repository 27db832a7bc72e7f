// Does a compressed trace read like the plain one, whatever happened to its file?

#include <unistd.h>
#include <zlib.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "collect.h"

namespace lockstep::kineto {
namespace {

std::string Gzip(std::string_view text) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

class KinetoGzip : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("kineto-" + std::to_string(::getpid()) + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }
  void TearDown() override { std::filesystem::remove(path_); }
  Outcome ReadBytes(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return ReadPath(path_);
  }
  std::filesystem::path path_;
};

TEST_F(KinetoGzip, ReadsLikePlainText) {
  const Outcome plain = ReadBytes(SmallTrace()), packed = ReadBytes(Gzip(SmallTrace()));
  EXPECT_EQ(packed.Lines(), plain.Lines());
  EXPECT_EQ(packed.Defects(), "");
  EXPECT_EQ(packed.result.json_bytes, SmallTrace().size());
  EXPECT_EQ(packed.result.facts.base_time_ns, plain.result.facts.base_time_ns);
}

TEST_F(KinetoGzip, OfSeveralMembersIsOneText) {
  const std::string json = SmallTrace();
  for (const std::size_t cut : {std::size_t{0}, std::size_t{1}, json.size() / 2, json.size()}) {
    const Outcome outcome = ReadBytes(Gzip(json.substr(0, cut)) + Gzip(json.substr(cut)) + Gzip(""));
    EXPECT_EQ(outcome.events.size(), 10u) << cut;
    EXPECT_EQ(outcome.Defects(), "") << cut;
  }
}

TEST_F(KinetoGzip, WithGarbageBehindItIsReadAndSaid) {
  for (const std::string garbage : {"x", "garbage", "\x1F", "\x1F\x8B\x08", "\x1F\x8C", "\n"}) {
    const std::string packed = Gzip(SmallTrace());
    const Outcome outcome = ReadBytes(packed + garbage);
    EXPECT_EQ(outcome.events.size(), 10u);
    EXPECT_EQ(outcome.Defects(), "ImportGarbage 1");
    const std::string detail = outcome.Detail(Loss::kImportGarbage);
    EXPECT_TRUE(detail.starts_with("bytes behind the end of the gzip data at byte ")) << detail;
    EXPECT_TRUE(detail.ends_with(" of " + std::to_string(packed.size() + garbage.size()))) << detail;
  }
  EXPECT_EQ(ReadBytes(Gzip(SmallTrace()) + std::string(1000, '\0')).Defects(), "");
}

TEST_F(KinetoGzip, CutAnywhereGivesWhatWasPackedBefore) {
  std::string events = Named("0");
  for (int i = 1; i < 40; ++i) events += "," + Named(std::to_string(i * i));
  const std::string json = Trace(events), packed = Gzip(json);
  const std::vector<std::string> whole = ReadBytes(packed).Lines();
  std::size_t most = 0;
  for (std::size_t cut = 0; cut < packed.size(); ++cut) {
    std::ofstream(path_, std::ios::binary) << packed.substr(0, cut);
    Collector collector;
    const auto read = ReadTrace(path_, {.jobs = 1}, collector);
    if (!read.ok()) {
      EXPECT_EQ(read.error().code, ErrorCode::kMalformed);
      EXPECT_EQ(most, 0u) << cut;
      continue;
    }
    const Outcome outcome = Finish(read, collector);
    EXPECT_EQ(outcome.Defects(), "ImportCutShort 1") << cut;
    const std::vector<std::string> lines = outcome.Lines();
    ASSERT_GE(lines.size(), most);
    most = lines.size();
    ASSERT_TRUE(std::equal(lines.begin(), lines.end(), whole.begin())) << cut;
  }
  EXPECT_EQ(most, 40u);
}

TEST_F(KinetoGzip, DamagedInsideGivesWhatComesBefore) {
  std::string events = Named("0");
  for (int i = 1; i < 20'000; ++i) events += "," + Named(std::to_string(i * 7919 % 20'011));
  std::string packed = Gzip(Trace(events));
  const std::size_t middle = packed.size() / 2;
  for (std::size_t i = 0; i < 16; ++i) packed[middle + i] = static_cast<char>(~packed[middle + i]);
  const Outcome outcome = ReadBytes(packed);
  EXPECT_GT(outcome.events.size(), 5'000u);
  EXPECT_EQ(outcome.Count(Loss::kImportGarbage), 1u);
  // Its checksum alone: the data may be what they were.
  std::string checksum = Gzip(SmallTrace());
  checksum[checksum.size() - 6] ^= 1;
  const Outcome wrong = ReadBytes(checksum);
  EXPECT_EQ(wrong.events.size(), 10u);
  EXPECT_EQ(wrong.Count(Loss::kImportGarbage), 1u);
}

TEST_F(KinetoGzip, FilesThatAreNoneAreErrors) {
  const auto error = [this](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    Collector collector;
    const auto read = ReadTrace(path_, {.jobs = 1}, collector);
    EXPECT_FALSE(read.ok());
    EXPECT_EQ(read.error().where, path_);
    EXPECT_FALSE(read.error().hint.empty());
    return read.error().what;
  };
  EXPECT_EQ(error(""), "the trace is empty");
  EXPECT_EQ(error(Gzip("")), "the trace is empty");
  EXPECT_EQ(error("hello"), "this is no Chrome-trace JSON");
  EXPECT_EQ(error(Gzip("hello")), "this is no Chrome-trace JSON");
  EXPECT_EQ(error("{\"a\": 1}"), "there is no traceEvents in it");
  EXPECT_EQ(error("\x1F\x8B"), "the trace cannot be unpacked: the gzip data end early at byte 2 of 2");
  EXPECT_TRUE(error("\x1F\x8B\x01\x02\x03\x04").starts_with("the trace cannot be unpacked: "));
  Collector collector;
  EXPECT_EQ(ReadTrace(path_.string() + "-absent", {}, collector).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(ReadTrace(::testing::TempDir(), {}, collector).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace lockstep::kineto
