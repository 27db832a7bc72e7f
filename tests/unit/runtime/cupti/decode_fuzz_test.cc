// Records of valid kinds with any contents, and any bytes at all: nothing outside a buffer is read, and
// what comes out is whole records. Addresses of names are CUPTI's and cannot be checked, so these are kept null or
// right.

#include <random>

#include "core/gpu_records.h"
#include "runtime/cupti/raw_file.h"
#include "tests/unit/runtime/cupti/decode_fixture.h"

namespace lockstep::cupti {
namespace {

class Fuzz : public DecodeTest, public ::testing::WithParamInterface<std::uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Cupti, Fuzz, ::testing::Values(0u, 12u, 18u, 130001u));

constexpr std::uint32_t kKinds[] = {1, 2, 4, 5, 8, 9, 10, 11, 17, 22, 36, 37, 38, 49, 51};

TEST_P(Fuzz, AnyContents) {
  if (!Use(GetParam())) GTEST_SKIP() << "no libcupti on this machine";
  std::mt19937_64 random(GetParam() + 1);
  std::uint64_t decoded = 0;
  for (int round = 0; round < 3000; ++round) {
    const int records = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < records; ++i) {
      const std::uint32_t kind = kKinds[random() % std::size(kKinds)];
      std::uint8_t record[256] = {};
      const std::size_t bytes = std::min<std::size_t>(sizes_.bytes[kind], sizeof record);
      if (bytes == 0) continue;
      for (std::size_t at = 0; at < bytes; ++at)
        record[at] = static_cast<std::uint8_t>(random() % 4 == 0 ? random() : random() % 3);
      std::memcpy(record, &kind, sizeof kind);
      const std::size_t name_at = NameOffset(kind);
      // Plausible times in half of them, so that they get further.
      if (random() % 2 != 0 && bytes >= 40)
        for (const std::size_t at : {8u, 16u, 24u}) {
          const std::uint64_t time = kLow + random() % (kHigh - kLow);
          std::memcpy(record + at, &time, sizeof time);
        }
      if (name_at != 0 && name_at + 8 <= bytes) {
        const char* name = random() % 2 != 0 ? "name" : nullptr;
        std::memcpy(record + name_at, &name, sizeof name);
      }
      buffer_.insert(buffer_.end(), record, record + bytes);
    }
    if (random() % 3 == 0) buffer_.resize(random() % (buffer_.size() + 1));
    decoded += Decode();
    for (const probe::TestRecord& record : Records()) {
      ASSERT_GT(record.bytes.size(), 0u);
      if (record.kind == RecordKind::kGpuKernel) {
        const auto kernel = record.As<GpuKernelRecord>();
        ASSERT_LE(kernel.begin_ticks, kernel.end_ticks);
        ASSERT_GE(kernel.begin_ticks, kLow);
        ASSERT_LE(kernel.end_ticks, kHigh);
      }
    }
  }
  EXPECT_GT(decoded, 5000u);
}

TEST_P(Fuzz, AnyBytes) {
  if (!Use(GetParam())) GTEST_SKIP() << "no libcupti on this machine";
  std::mt19937_64 random(GetParam() + 2);
  for (int round = 0; round < 20'000; ++round) {
    buffer_.resize(random() % 600);
    for (auto& byte : buffer_) byte = random() % 8 == 0 ? static_cast<std::uint8_t>(random()) : 0;
    // Kinds with names would have wild addresses: of those only the others.
    if (buffer_.size() >= 4) {
      const std::uint32_t kind = static_cast<std::uint32_t>(random() % 80);
      std::memcpy(buffer_.data(), &kind, sizeof kind);
    }
    bool named = false;
    for (std::size_t at = 0; at + 4 <= buffer_.size(); at += 4) {
      std::uint32_t kind;
      std::memcpy(&kind, buffer_.data() + at, sizeof kind);
      named = named || NameOffset(kind) != 0;
    }
    if (named) buffer_.clear();
    Decode();
    Records();
  }
}

}  // namespace
}  // namespace lockstep::cupti
