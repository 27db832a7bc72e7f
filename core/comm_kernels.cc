#include "core/comm_kernels.h"

#include <utility>

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

CollectiveKind NcclKernelKind(std::string_view name) {
  const std::size_t at = name.find("Kernel_");
  if (!IsNcclKernelName(name) || at == std::string_view::npos) return CollectiveKind::kNone;
  name.remove_prefix(at + 7);
  static constexpr std::pair<std::string_view, CollectiveKind> kNames[] = {
      {"AllReduce", CollectiveKind::kAllReduce},  {"AllGather", CollectiveKind::kAllGather},
      {"AllGatherV", CollectiveKind::kBroadcast}, {"ReduceScatter", CollectiveKind::kReduceScatter},
      {"Broadcast", CollectiveKind::kBroadcast},  {"Reduce", CollectiveKind::kReduce},
      {"SendRecv", CollectiveKind::kSendRecv}};
  const std::string_view word = name.substr(0, name.find_first_of("_("));
  for (const auto& [text, kind] : kNames)
    if (word == text) return kind;
  return CollectiveKind::kNone;
}

}  // namespace lockstep
