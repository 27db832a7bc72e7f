#include <gtest/gtest.h>

#include <string>

#include "core/spool_layout.h"

namespace lockstep {
namespace {

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(Crc32c(0, "123456789", 9), 0xe3069283u);  // RFC 3720 B.4's check value.
  EXPECT_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8a9136aau);
}

TEST(Crc32c, ChainsAcrossAnySplit) {
  const std::string text = "lockstep: every step is as slow as its slowest rank";
  for (std::size_t cut = 0; cut <= text.size(); ++cut)
    EXPECT_EQ(Crc32c(Crc32c(0, text.data(), cut), text.data() + cut, text.size() - cut),
              Crc32c(0, text.data(), text.size()));
}

}  // namespace
}  // namespace lockstep
