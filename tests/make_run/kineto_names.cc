#include "make_run/kineto_names.h"

#include <fmt/format.h>

#include <iterator>

namespace lockstep::make_run {

const OperatorFamily& FamilyOf(std::uint64_t choice) {
  static constexpr OperatorFamily kFamilies[] = {
      {"aten::linear", "aten::addmm", "AddmmBackward0"},
      {"aten::matmul", "aten::mm", "MmBackward0"},
      {"aten::layer_norm", "aten::native_layer_norm", "NativeLayerNormBackward0"},
      {"aten::gelu", "aten::gelu", "GeluBackward0"},
      {"aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
       "ScaledDotProductFlashAttentionBackward0"},
      {"aten::add", "aten::add_", "AddBackward0"},
  };
  return kFamilies[choice % std::size(kFamilies)];
}

std::string_view LeafOperator(std::uint64_t choice) {
  static constexpr std::string_view kLeaves[] = {"aten::view",      "aten::as_strided", "aten::empty",
                                                 "aten::transpose", "aten::t",          "aten::reshape"};
  return kLeaves[choice % std::size(kLeaves)];
}

std::string_view ExtraRuntimeCall(std::uint64_t choice, bool amd) {
  static constexpr std::string_view kCuda[] = {"cudaStreamIsCapturing", "cudaPointerGetAttributes",
                                               "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags",
                                               "cudaEventQuery"};
  static constexpr std::string_view kHip[] = {"hipStreamIsCapturing", "hipPointerGetAttribute", "hipGetDevice",
                                              "hipEventQuery"};
  return amd ? kHip[choice % std::size(kHip)] : kCuda[choice % std::size(kCuda)];
}

std::string RuntimeName(std::string_view cuda_name, bool amd) {
  if (!amd) return std::string(cuda_name);
  if (cuda_name == "cudaLaunchKernelExC") return "hipExtLaunchKernel";
  if (cuda_name == "cudaMemcpyAsync") return "hipMemcpyWithStream";
  return "hip" + std::string(cuda_name.substr(4));
}

std::string NcclKernelName(CollectiveKind kind, KinetoSpec::Names names) {
  if (names == KinetoSpec::Names::kRccl) return "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)";
  const bool old = names == KinetoSpec::Names::kOld;
  const std::string_view what = kind == CollectiveKind::kAllGather       ? "AllGather"
                                : kind == CollectiveKind::kReduceScatter ? "ReduceScatter"
                                : kind == CollectiveKind::kBroadcast     ? "Broadcast"
                                : kind == CollectiveKind::kReduce        ? "Reduce"
                                : kind == CollectiveKind::kSendRecv || kind == CollectiveKind::kAllToAll ? "SendRecv"
                                                                                                         : "AllReduce";
  const bool sums = what == "AllReduce" || what == "ReduceScatter" || what == "Reduce";
  if (old)
    return fmt::format("ncclKernel_{}_RING_LL_Sum_{}(ncclDevComm*, unsigned long, ncclWork*)", what,
                       sums ? "float" : "int8_t");
  return fmt::format("ncclDevKernel_{}{}(ncclDevKernelArgsStorage<4096ul>)", what,
                     sums                 ? "_Sum_f32_RING_LL"
                     : what == "SendRecv" ? ""
                                          : "_RING_LL");
}

std::string_view CollectiveOperator(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "c10d::_allgather_base_";
    case CollectiveKind::kReduceScatter:
      return "c10d::_reduce_scatter_base_";
    case CollectiveKind::kAllToAll:
      return "c10d::alltoall_base_";
    case CollectiveKind::kBarrier:
      return "c10d::barrier";
    case CollectiveKind::kBroadcast:
      return "c10d::broadcast_";
    case CollectiveKind::kReduce:
      return "c10d::reduce_";
    case CollectiveKind::kGather:
      return "c10d::gather_";
    case CollectiveKind::kScatter:
      return "c10d::scatter_";
    default:
      return "c10d::allreduce_";
  }
}

std::string_view CollectiveAnnotation(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "nccl:_all_gather_base";
    case CollectiveKind::kReduceScatter:
      return "nccl:_reduce_scatter_base";
    case CollectiveKind::kAllToAll:
      return "nccl:all_to_all";
    case CollectiveKind::kBarrier:
      return "nccl:all_reduce_barrier";
    case CollectiveKind::kBroadcast:
      return "nccl:broadcast";
    case CollectiveKind::kReduce:
      return "nccl:reduce";
    case CollectiveKind::kGather:
      return "nccl:gather";
    case CollectiveKind::kScatter:
      return "nccl:scatter";
    default:
      return "nccl:all_reduce";
  }
}

std::string_view CollectiveArgument(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "_allgather_base";
    case CollectiveKind::kReduceScatter:
      return "_reduce_scatter_base";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    default:
      return "allreduce";
  }
}

std::string_view MessageOperator(bool send) { return send ? "c10d::send" : "c10d::recv_"; }
std::string_view MessageAnnotation(bool send) { return send ? "nccl:send" : "nccl:recv"; }

std::string AnnotationName(std::string_view range, std::uint8_t category) {
  if (category == 1 && range == "input") return "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__";
  if (category == 4 && range == "optimizer") return "Optimizer.step#AdamW.step";
  return std::string(range);
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      out += c;
  }
  return out;
}

}  // namespace lockstep::make_run
