#pragma once
// The list of communication libraries' GPU kernels, by name.

#include <string_view>

namespace lockstep {

// A communication library's kernel, by its name alone: NCCL, RCCL, DeepEP,
// NVSHMEM, MSCCL, PyTorch's symmetric memory, vLLM's and SGLang's all-reduce.
bool IsCommKernelName(std::string_view name);

// Of these, NCCL's own.
bool IsNcclKernelName(std::string_view name);

}  // namespace lockstep
