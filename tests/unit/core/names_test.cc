// Small texts that several parts need alike: sizes, names of ranks' files, and the kernel's line about a process.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "core/byte_text.h"
#include "core/data_type_name.h"
#include "core/own_file.h"
#include "core/process_stat.h"
#include "core/rank_name.h"

namespace lockstep {
namespace {

TEST(ByteText, OneDecimalFromAThousandOn) {
  EXPECT_EQ(ByteText(0), "0 B");
  EXPECT_EQ(ByteText(999), "999 B");
  EXPECT_EQ(ByteText(1000), "1.0 kB");
  EXPECT_EQ(ByteText(1.44e6), "1.4 MB");
  EXPECT_EQ(ByteText(2.5e12), "2500.0 GB");
}

TEST(DataType, WhatIsUnknownHasNoSize) {
  EXPECT_EQ(ElementBytes(DataType::kUnknown), 0u);
  EXPECT_EQ(ElementBytes(DataType::kDerived), 0u);
  EXPECT_EQ(TextOfDataType(999).bytes, 0u);
  EXPECT_EQ(ElementBytes(DataType::kByte), 1u);
  EXPECT_EQ(ElementBytes(DataType::kBfloat16), 2u);
  EXPECT_EQ(ElementBytes(DataType::kFloat64), 8u);
}

TEST(DataType, Named) {
  for (std::uint16_t code = 1; code <= static_cast<std::uint16_t>(DataType::kDerived); ++code)
    EXPECT_EQ(DataTypeNamed(TextOfDataType(code).name), static_cast<DataType>(code));
  EXPECT_EQ(DataTypeNamed("float8_e4m3fn"), DataType::kFloat8e4m3);
  for (const char* other : {"", "float3", "float32x", "complex64"})
    EXPECT_EQ(DataTypeNamed(other), DataType::kUnknown) << other;
}

TEST(RankName, FiveDigitsAndMore) {
  EXPECT_EQ(RankName(0), "rank-00000");
  EXPECT_EQ(RankName(99999), "rank-99999");
  EXPECT_EQ(RankName(1 << 20), "rank-1048576");
}

// A process may call itself anything, also like the line's own end, and with a line break.
TEST(ProcessStat, NamesMayHoldAnything) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, "a) Z 1\n2 (b");
    (void)!::write(pipe_fds[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char ready = 0;
  ASSERT_EQ(::read(pipe_fds[0], &ready, 1), 1);
  const std::string stat = ProcessStatAfterName(child);
  EXPECT_EQ(stat.substr(1, 1 + std::to_string(::getpid()).size()), " " + std::to_string(::getpid())) << stat;
  EXPECT_TRUE(stat.starts_with("S") || stat.starts_with("R")) << stat;
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(pipe_fds[0]);
  ::close(pipe_fds[1]);
  EXPECT_EQ(ProcessStatAfterName(child), "");
}

TEST(ReadUpTo, LessAtTheEndAndOnErrors) {
  const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(ReadUpTo(fd, 1, 3), "ELF");
  EXPECT_EQ(ReadUpTo(fd, std::uint64_t{1} << 40, 3), "");
  ::close(fd);
  int error = 0;
  EXPECT_EQ(ReadUpTo(-1, 0, 3, &error), "");
  EXPECT_EQ(error, EBADF);
}

}  // namespace
}  // namespace lockstep
