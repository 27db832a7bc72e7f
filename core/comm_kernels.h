#pragma once
// The list of communication libraries' GPU kernels, by name.

#include <string_view>

#include "core/collective.h"

namespace lockstep {

// A communication library's kernel, by its name alone: NCCL, RCCL, DeepEP,
// NVSHMEM, MSCCL, PyTorch's symmetric memory, vLLM's and SGLang's all-reduce.
bool IsCommKernelName(std::string_view name);

// Of these, NCCL's own.
bool IsNcclKernelName(std::string_view name);

// The operation that a communication library names its kernel after: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)",
// "deep_ep::internode::dispatch<...>". A kernel of NCCL's may carry others besides. kNone: not named after one, as
// "ncclDevKernel_Generic_4" and "mscclKernel_Sum_half_Simple".
CollectiveKind CommKernelKind(std::string_view name);

}  // namespace lockstep
