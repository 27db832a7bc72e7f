// Every function of NCCL's headers is interposed, or is listed here with the reason why it is not.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace lockstep::nccl {
namespace {

constexpr char kLocal[] = "neither communicates nor makes or ends a communicator";

const std::map<std::string, std::string>& NotInterposed() {
  static const std::map<std::string, std::string> functions = [] {
    std::map<std::string, std::string> all;
    for (const char* name : {"ncclGetVersion",           "ncclGetUniqueId",    "ncclGetErrorString",
                             "ncclGetLastError",         "ncclResetDebugInit", "ncclResetDebugInitInternal",
                             "ncclCommGetAsyncError",    "ncclCommCount",      "ncclCommCuDevice",
                             "ncclCommUserRank",         "ncclCommRegister",   "ncclCommDeregister",
                             "ncclCommWindowDeregister", "ncclMemAlloc",       "ncclMemFree",
                             "ncclCommGetUniqueId",      "ncclCommMemStats",   "ncclCommQueryProperties",
                             "ncclWinGetUserPtr",        "ncclDevCommDestroy", "ncclSetEncryption"})
      all.emplace(name, kLocal);
    return all;
  }();
  return functions;
}
// Of device code and of parameters: pure computations and settings.
bool OfAFamilyThatIsNot(const std::string& name) {
  for (const char* prefix : {"ncclTeam", "ncclParam", "ncclGetLsa", "ncclGetMultimem", "ncclGetPeer", "ncclGetCft"})
    if (name.rfind(prefix, 0) == 0) return true;
  return name.find("CreateRequirement") != std::string::npos || name == "ncclLLA2ACalcSlots";
}

// Functions that a header declares. Each is there twice, and once with a p before it.
std::set<std::string> DeclaredBy(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  std::set<std::string> names;
  const std::regex declaration(R"(\bp(nccl[A-Z][A-Za-z0-9]*)\s*\()");
  for (std::sregex_iterator at(all.begin(), all.end(), declaration), end; at != end; ++at) names.insert((*at)[1]);
  return names;
}

TEST(NcclFunctions, EachOfTheHeadersIsInterposedOrSaidNotToBe) {
  std::vector<std::string> headers;
#ifdef LOCKSTEP_NCCL_HEADER
  headers.emplace_back(LOCKSTEP_NCCL_HEADER);
#endif
  if (const char* more = std::getenv("LOCKSTEP_TEST_NCCL_HEADERS"); more != nullptr) {  // Of other versions: a:b
    std::istringstream paths(more);
    for (std::string path; std::getline(paths, path, ':');) headers.push_back(path);
  }
  if (headers.empty()) GTEST_SKIP() << "no nccl.h on this machine, and none in LOCKSTEP_TEST_NCCL_HEADERS";
  void* library = dlopen(LOCKSTEP_GPU_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  for (const std::string& header : headers) {
    const std::set<std::string> names = DeclaredBy(header);
    EXPECT_GT(names.size(), 40u) << header;
    for (const std::string& name : names) {
      const bool ours = dlsym(library, name.c_str()) != nullptr;
      const bool named = NotInterposed().contains(name) || OfAFamilyThatIsNot(name);
      EXPECT_NE(ours, named) << name << " of " << header << (ours ? ": interposed, but listed" : ": neither");
    }
  }
}

}  // namespace
}  // namespace lockstep::nccl
