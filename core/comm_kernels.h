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

// The operation that NCCL names the kernel after: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)",
// "ncclSymkDevKernel_...". A kernel may carry others besides. AllGatherV carries broadcasts of several roots. kNone:
// not named after one.
CollectiveKind NcclKernelKind(std::string_view name);

}  // namespace lockstep
