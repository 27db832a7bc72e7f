#include "runtime/agent/inject/elf_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "temp_dir.h"

namespace lockstep::agent {
namespace {

TEST(ElfFile, ThisProgram) {
  const ElfFacts facts = LookAtElf("/proc/self/exe");
  EXPECT_TRUE(facts.elf && facts.elf64 && facts.has_interpreter && facts.dynamic);
  EXPECT_EQ(facts.interpreter.front(), '/');
  EXPECT_NE(std::find_if(facts.needed.begin(), facts.needed.end(),
                         [](const std::string& name) { return name.starts_with("libc.so"); }),
            facts.needed.end());
  EXPECT_EQ(MpiOfProgram("/proc/self/exe").kind, LinkedMpi::kNone);
}

TEST(ElfFile, DamagedOnesSayNothing) {
  TempDir dir;
  std::ifstream self("/proc/self/exe", std::ios::binary);
  std::string head(64 << 10, 0);
  self.read(head.data(), static_cast<std::streamsize>(head.size()));
  unsigned seed = 1;
  for (int i = 0; i < 200; ++i) {
    std::string bytes = head.substr(0, i * 300);
    for (int changes = i % 7; changes > 0 && !bytes.empty(); --changes)
      bytes[(seed / 7) % std::min<std::size_t>(bytes.size(), 4096)] = static_cast<char>(seed >> 16),
                                                             seed = seed * 1103515245 + 12345;
    std::ofstream(dir.path() + "/x", std::ios::binary) << bytes;
    (void)LookAtElf(dir.path() + "/x");
    (void)LookForMpi(dir.path() + "/x");
    (void)ScriptInterpreter(dir.path() + "/x");
  }
  EXPECT_FALSE(LookAtElf(dir.path()).elf);
  EXPECT_FALSE(LookAtElf("/nonexistent").elf);
}

TEST(ElfFile, WrappersOfMpi) {
  const OwnMpi tool = LookForMpi(UNIT_MPI_TOOL);
  EXPECT_EQ(tool.wrapper, "MPI_Send");
  EXPECT_EQ(tool.hidden, "MPI_Recv");
  EXPECT_FALSE(tool.library);
  const OwnMpi library = LookForMpi(UNIT_MPI_LIBRARY);
  EXPECT_TRUE(library.library);
  EXPECT_EQ(library.wrapper + library.hidden, "");
  for (const char* other : {"/proc/self/exe", "/no/such/file", "/"}) {
    const OwnMpi own = LookForMpi(other);
    EXPECT_FALSE(own.library) << other;
    EXPECT_EQ(own.wrapper + own.hidden, "") << other;
  }
}

TEST(ElfFile, WhichMpi) {
  EXPECT_EQ(MpiOfLibraries({"libm.so.6", "libmpi.so.40"}).kind, LinkedMpi::kOpenMpi4);
  EXPECT_EQ(MpiOfLibraries({"libmpi_usempif08.so.40", "libmpi_mpifh.so.40"}).kind, LinkedMpi::kOpenMpi4);
  EXPECT_EQ(MpiOfLibraries({"libmpich.so.12"}).kind, LinkedMpi::kMpich);
  EXPECT_EQ(MpiOfLibraries({"libc.so.6", "libmpi.so.12"}).library, "libmpi.so.12");
  EXPECT_EQ(MpiOfLibraries({"libmpi_abi.so.1"}).kind, LinkedMpi::kStandard);
  EXPECT_EQ(MpiOfLibraries({"libmpi.so.20"}).kind, LinkedMpi::kOther);
  EXPECT_EQ(MpiOfLibraries({"libmpifake.so", "libc.so.6"}).kind, LinkedMpi::kNone);
  EXPECT_EQ(MpiOfProgram("no-such-program-anywhere").kind, LinkedMpi::kNone);
}

TEST(ElfFile, Scripts) {
  TempDir dir;
  const auto script = [&](const std::string& text) {
    std::ofstream(dir.path() + "/s") << text;
    return ScriptInterpreter(dir.path() + "/s");
  };
  EXPECT_EQ(script("#!/usr/bin/python3 -u\nx"), "/usr/bin/python3");
  EXPECT_EQ(script("#!/usr/bin/env python3\n"), "python3");
  EXPECT_EQ(script("#! /usr/bin/env -S python3 -E\n"), "python3");
  EXPECT_EQ(script("#!/usr/bin/env python3\r\nx\r\n"), "python3") << "lines that end as on Windows";
  EXPECT_EQ(script("import sys\n"), "");
  EXPECT_EQ(script("#!"), "");
  EXPECT_EQ(script(""), "");
}

}  // namespace
}  // namespace lockstep::agent
