#include "core/comm_kernels.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

namespace lockstep {
namespace {

std::string_view WithoutType(std::string_view name) {
  if (name.starts_with("void ")) name.remove_prefix(5);
  return name;
}
bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// What a kernel's function is called, with its namespaces and without its type, template arguments and parameters: in
// small letters, without underscores, as libraries write one name in both styles.
std::string FunctionOf(std::string_view name) {
  constexpr std::string_view kAnonymous = "(anonymous namespace)";
  name = WithoutType(name);
  std::string text;
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name.substr(i).starts_with(kAnonymous)) {
      i += kAnonymous.size() - 1;
      continue;
    }
    if (name[i] == '(' && depth == 0) break;
    if (name[i] == '<') ++depth;
    if (depth == 0 && name[i] != '_' && name[i] != ' ')
      text += static_cast<char>(name[i] >= 'A' && name[i] <= 'Z' ? name[i] + ('a' - 'A') : name[i]);
    if (name[i] == '>' && depth > 0) --depth;
  }
  return text;
}

// What the functions of communication kernels contain, as FunctionOf writes them: the operation, where its name is one
// of communication alone, else the namespace. Dispatch and combine are also parts of computing (attention's split-KV,
// routing of experts), so they count only in a library of their own.
constexpr std::string_view kCommFunctions[] = {
    // Any library. vLLM csrc/custom_all_reduce.cuh and SGLang's copy: cross_device_reduce_1stage. FlashInfer 0.2.6
    // include/flashinfer/comm: allreduce_fusion_kernel_oneshot_lamport, moeAllToAllKernel. TensorRT-LLM 0.20
    // cpp/tensorrt_llm/kernels: oneShotAllReduceKernel, moeA2ADispatchKernel. AITER csrc/include/custom_all_reduce.cuh:
    // reduce_scatter_cross_device_store, and local_device_load_rmsnorm, its second half. PyTorch 2.6
    // c10d/symm_mem/CUDASymmetricMemoryOps.cu: multimem_one_shot_all_reduce_kernel. Triton-distributed.
    "allreduce", "allgather", "reducescatter", "alltoall", "crossdevice", "localdeviceload", "multimemoneshot",
    "multimemtwoshot", "moea2a", "a2amode", "a2adispatch", "a2acombine",
    // DeepEP csrc/kernels (both of its namespaces) and UCCL's, HybridEP, pplx-kernels, mori src/ops/dispatch_combine.
    "deepep::", "dpsk::ep::", "uccl::", "hybridep::", "pplx::", "a2akernels::", "epdispatch", "epcombine",
    // NVSHMEM 3: host/comm and device/coll; torch's c10d/symm_mem/nvshmem_extension.cu.
    "nvshmem", "barrieronstream",
    // MSCCL++ and vLLM's csrc/quickreduce.
    "mscclpp", "quickreduce::",
    // Transformer Engine 2 common/comm_gemm_overlap/userbuffers/userbuffers.cu, and TensorRT-LLM's copy.
    "userbuffers",
    // PyTorch's symmetric memory (barriers, puts) and its forerunner of 2.2 to 2.5.
    "c10d::symmetricmemory::", "c10d::intranodecomm::"};
// With which they begin.
constexpr std::string_view kCommBegins[] = {"nccl", "rccl", "mscclkernel", "msccl::", "oneccl"};
// Within one GPU: sums over a warp or block, GEMMs with communication in their epilogue, which are GEMMs first, and
// what torch.compile names after the operations around it (triton_poi_fused_all_reduce_wait_tensor_3).
constexpr std::string_view kComputeFunctions[] = {"warp",           "block",     "threadallreduce", "waveallreduce",
                                                  "groupallreduce", "gemm",      "matmul",          "tritonpoi",
                                                  "tritonred",      "tritonper", "tritontem",       "tritonmm"};

bool HasAny(std::string_view text, std::span<const std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [text](std::string_view part) { return Has(text, part); });
}

}  // namespace

bool IsCommKernelName(std::string_view name) {
  if (IsNcclKernelName(name)) return true;
  const std::string function = FunctionOf(name);
  for (const std::string_view begin : kCommBegins)
    if (function.starts_with(begin)) return true;
  // MSCCL++'s algorithms for RCCL are called after the operation alone, and take its channels.
  return (HasAny(function, kCommFunctions) && !HasAny(function, kComputeFunctions)) || Has(name, "mscclpp::") ||
         Has(name, "rcclDevKernel");
}

bool IsNcclKernelName(std::string_view name) {
  return WithoutType(name).starts_with("nccl") || Has(name, "ncclDevKernel") || Has(name, "ncclKernel");
}

// Of what FunctionOf gives; the first row that is in it counts.
CollectiveKind CommKernelKind(std::string_view name) {
  static constexpr std::pair<std::string_view, CollectiveKind> kWords[] = {
      // DeepEP's notify_dispatch; its get_dispatch_layout counts tokens and sends nothing.
      {"notify", CollectiveKind::kNotify},
      {"dispatchlayout", CollectiveKind::kNone},
      // NCCL 2.28 src/device/generate.py: broadcasts of several roots.
      {"kernelallgatherv", CollectiveKind::kBroadcast},
      {"reducescatter", CollectiveKind::kReduceScatter},
      {"allreduce", CollectiveKind::kAllReduce},
      {"allgather", CollectiveKind::kAllGather},
      {"alltoall", CollectiveKind::kAllToAll},
      {"a2amode", CollectiveKind::kAllToAll},
      {"dispatch", CollectiveKind::kDispatch},
      {"combine", CollectiveKind::kCombine},
      {"crossdevicereduce", CollectiveKind::kAllReduce},
      {"localdeviceload", CollectiveKind::kAllReduce},  // AITER's second half of one.
      // Transformer Engine's userbuffers_fp16_sum_inplace_gpu_rw, _rr and _mc, and their halves.
      {"inplacegpurwag", CollectiveKind::kAllGather},
      {"inplacegpurrag", CollectiveKind::kAllGather},
      {"inplacegpumcag", CollectiveKind::kAllGather},
      {"inplacegpurwrs", CollectiveKind::kReduceScatter},
      {"inplacegpurrrs", CollectiveKind::kReduceScatter},
      {"inplacegpumcrs", CollectiveKind::kReduceScatter},
      {"suminplacegpu", CollectiveKind::kAllReduce},
      {"sendrecv", CollectiveKind::kSendRecv},
      {"pushsend", CollectiveKind::kSendRecv},
      {"pushrecv", CollectiveKind::kSendRecv},
      {"broadcast", CollectiveKind::kBroadcast},
      {"nvshmemireduce", CollectiveKind::kAllReduce},  // NVSHMEM's reductions give every PE the result.
      {"barrier", CollectiveKind::kBarrier},
      {"kernelreduce", CollectiveKind::kReduce},
  };
  const std::string function = FunctionOf(name);
  for (const auto& [part, kind] : kWords)
    if (Has(function, part)) return kind;
  return CollectiveKind::kNone;
}

}  // namespace lockstep
