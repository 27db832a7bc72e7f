#pragma once
// The part of NCCL's interface that is interposed, in declarations of our own, so that no nccl.h is needed
// (tests/unit/comms/nccl compares them with the real header where there is one). Handles are addresses that are never
// dereferenced.

#include <cstddef>
#include <cstdint>

#include "core/collective.h"

namespace lockstep::nccl {

using CommHandle = void*;
using Stream = void*;
using Result = int;

inline constexpr Result kSuccess = 0, kSystemError = 2, kInProgress = 7;

struct UniqueId {  // By value: in memory, as NCCL's is.
  char internal[128];
};

// ncclConfig_t grows at its end; `size` says how far. -2^31 and null are "not set".
struct Config {
  std::size_t size;
  std::uint32_t magic, version;
  std::int32_t blocking, cga_cluster_size, min_ctas, max_ctas;
  const char* net_name;
  std::int32_t split_share, traffic_class;
  const char* comm_name;  // From 2.27 on.
};
inline constexpr std::uint32_t kConfigMagic = 0xcafebeef;
static_assert(offsetof(Config, comm_name) == 48);

// Null if the caller's NCCL knows no name, or none was given.
inline const char* NameIn(const Config* config) {
  if (config == nullptr || config->size < offsetof(Config, comm_name) + sizeof(char*) || config->magic != kConfigMagic)
    return nullptr;
  return config->comm_name;
}

// ncclDataType_t, in order.
constexpr DataType TypeOf(int datatype) {
  constexpr DataType kTypes[] = {DataType::kInt8,    DataType::kUint8,    DataType::kInt32,      DataType::kUint32,
                                 DataType::kInt64,   DataType::kUint64,   DataType::kFloat16,    DataType::kFloat32,
                                 DataType::kFloat64, DataType::kBfloat16, DataType::kFloat8e4m3, DataType::kFloat8e5m2};
  return datatype >= 0 && datatype < 12 ? kTypes[datatype] : DataType::kUnknown;
}

// ncclRedOp_t as collectives.reduction: sum, product, maximum, minimum, average; above them the user's own.
constexpr std::uint8_t ReductionOf(int operation) {
  return operation < 0 ? 0 : static_cast<std::uint8_t>(operation < 5 ? operation + 1 : 6);
}

}  // namespace lockstep::nccl
