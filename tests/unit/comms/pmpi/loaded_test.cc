#include "comms/pmpi/loaded.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>

#include <set>
#include <string>

namespace lockstep::pmpi {
namespace {

TEST(Loaded, AnotherToolIsWhoHasMpiFunctionsWithoutPmpi) {
  static constexpr char kNames[] = "MPI_Barrier\0PMPI_Barrier\0MPI_Recv\0PMPI_Recv\0MPI_Send\0PMPI_Send\0";
  OtherTool tools[kMostTools];
  EXPECT_EQ(FindTools(kNames, 6, tools), 0u);
  ASSERT_NE(dlopen(UNIT_MPI_LIBRARY, RTLD_LAZY), nullptr) << dlerror();
  EXPECT_EQ(FindTools(kNames, 6, tools), 0u) << "an MPI library is no tool";
  void* tool = dlopen(UNIT_MPI_TOOL, RTLD_LAZY);
  ASSERT_NE(tool, nullptr) << dlerror();
  ASSERT_EQ(FindTools(kNames, 6, tools), 1u);
  EXPECT_NE(std::string(tools[0].path).find("unit_mpi_tool"), std::string::npos);
  EXPECT_TRUE(tools[0].calls_pmpi);
  EXPECT_TRUE(tools[0].Contains(dlsym(tool, "MPI_Send")));
  EXPECT_FALSE(tools[0].Contains(kNames));
  EXPECT_EQ(FindTools(kNames, 4, tools), 0u) << "its MPI_Barrier has a PMPI_ name, its MPI_Recv is hidden";
}

TEST(Loaded, WhoCallsMpiIsKnownByWhatItRefersTo) {
  for (const char* path : {UNIT_MPI_CALLER, UNIT_MPI_TOOL, UNIT_MPI_LIBRARY})
    ASSERT_NE(dlopen(path, RTLD_LAZY), nullptr) << dlerror();
  std::set<std::string> callers;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* names) {
        const std::string path = info->dlpi_name;
        if (RefersToMpi(*info)) static_cast<std::set<std::string>*>(names)->insert(path.substr(path.rfind('/') + 1));
        return 0;
      },
      &callers);
  EXPECT_EQ(callers, (std::set<std::string>{"libunit_mpi_caller.so", "libunit_mpi_tool.so"}));
}

}  // namespace
}  // namespace lockstep::pmpi
