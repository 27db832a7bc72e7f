#pragma once
// The few types of PMIx's C interface that are needed, as in PMIx 2 to 5
// (libpmix.so.2; pmix_common.h of 4.2.2). Where pmix.h is there at build time a
// test compares (tests/unit/comms/pmpi). pmix_value_t grew at its end in version
// 3: never put two into an array.

#include <cstdint>

namespace lockstep::pmix {

inline constexpr int kSuccess = 0, kErrUnreach = -25, kErrInit = -31, kErrCommFailure = -49, kErrLostConnection = -61;
inline constexpr std::uint8_t kGlobal = 3;               // pmix_scope_t PMIX_GLOBAL
inline constexpr std::uint16_t kString = 3, kInt = 6;    // pmix_data_type_t
inline constexpr const char* kTimeout = "pmix.timeout";  // PMIX_TIMEOUT, int, seconds

struct Proc {
  char nspace[256];
  std::uint32_t rank;
};
struct Value {
  std::uint16_t type;
  union {
    char* string;
    int integer;
    std::uint64_t space[4];
  } data;
};
struct Info {
  char key[512];
  std::uint32_t flags;
  Value value;
};

using Initialized = int (*)();
using Put = int (*)(std::uint8_t scope, const char* key, Value* value);
using Commit = int (*)();
// The value belongs to the library, and is there during the call; proc and info have to last until then.
using Answer = void (*)(int status, Value* value, void* data);
using GetNb = int (*)(const Proc* proc, const char* key, const Info* info, std::size_t infos, Answer answer,
                      void* data);

}  // namespace lockstep::pmix
