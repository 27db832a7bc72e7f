#include "core/comm_kernels.h"

namespace lockstep {
namespace {

std::string_view WithoutType(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  return name;
}
bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

bool IsCommKernelName(std::string_view name) {
  name = WithoutType(name);
  for (const std::string_view prefix :
       {"nccl", "rccl", "mscclKernel", "msccl_", "msccl::", "mscclpp", "nvshmem", "nvshmemi_"})
    if (name.starts_with(prefix)) return true;
  for (const std::string_view part :
       {"ncclDevKernel", "ncclKernel", "rcclDevKernel", "deep_ep::", "dpsk::ep::", "nvshmem",
        "mscclpp::", "multimem_all_reduce", "multimem_one_shot", "multimem_all_gather", "multimem_reduce_scatter",
        "one_shot_all_reduce", "two_shot_all_reduce", "one_shot_allreduce", "two_shot_allreduce",
        "cross_device_reduce"})
    if (Has(name, part)) return true;
  return false;
}

bool IsNcclKernelName(std::string_view name) {
  return WithoutType(name).starts_with("nccl") || Has(name, "ncclDevKernel") || Has(name, "ncclKernel");
}

}  // namespace lockstep
