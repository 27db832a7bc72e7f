#include "analysis/causes/kernel_patterns.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

#include "analysis/rules/causes.h"

namespace lockstep::analysis {
namespace {

using schema::kNone;

// Kernel names as they appear in traces of PyTorch 1.13 to 2.5, cuBLAS, cuDNN 8 and 9 and MIOpen.
constexpr KernelPattern kPatterns[] = {
    {FindingId::kKernelAttention, Word::kKernelAttention, Word::kKernelAttention, "softmax", "logsoftmax|nll",
     KernelPattern::kBetweenGemms, 1.0, 0.02, Word::kKernelAttentionAction, Word::kKernelAttentionTorchAction},
    // TF32 kernels are named ..._tf32_..., s1688 or s16816, 16-bit ones h or bf16: none of these is single precision.
    {FindingId::kKernelFp32Gemm, Word::kKernelFp32Gemm, Word::kKernelFp32GemmBrief,
     "sgemm|_simt_|scudnn|_ffma_|gemmsn_", "tf32|s1688|s16816|bf16|fp16|h884|h1688|h16816|tensorop",
     KernelPattern::kTensorCores, 0.875, 0.02, Word::kKernelFp32GemmAction, Word::kKernelFp32GemmTorchAction},
    {FindingId::kKernelLayout, Word::kKernelLayout, Word::kKernelLayout,
     "nchwtonhwc|nhwctonchw|nchw2nhwc|nhwc2nchw|tensortransformgeneric|batched_transpose_|transpose_nchw", "",
     KernelPattern::kNothing, 1.0, 0.02, Word::kKernelLayoutAction, Word::kKernelLayoutTorchAction},
    {FindingId::kKernelScatter, Word::kKernelScatter, Word::kKernelScatter,
     "embedding_backward|embeddingbackward|compute_grad_weight|krn_partial|sum_and_scatter|indexfunclargeindex|"
     "indexfuncsmallindex|indexing_backward_kernel|index_put|scatter_gather_elementwise|embeddingbag_updategradinput",
     "", KernelPattern::kNothing, 1.0, 0.03, Word::kKernelScatterAction, Word::kKernelScatterTorchAction},
    {FindingId::kKernelOptimizer, Word::kKernelOptimizer, Word::kKernelOptimizer,
     "elementwise_kernel|addcmul|addcdiv|reduce_kernel", "multi_tensor|fused", KernelPattern::kInOptimizer, 1.0, 0.02,
     Word::kKernelOptimizerAction, Word::kKernelOptimizerTorchAction},
    {FindingId::kKernelCasts, Word::kKernelCasts, Word::kKernelCasts,
     "direct_copy_kernel|bfloat16_copy_kernel|catarraybatchedcopy", "", KernelPattern::kNothing, 1.0, 0.05,
     Word::kKernelCastsAction, Word::kKernelCastsTorchAction},
    {FindingId::kKernelElementwise, Word::kKernelElementwise, Word::kKernelElementwiseBrief,
     "elementwise_kernel|elementwise_unary|elementwise_binary", "multi_tensor|fused|triton", KernelPattern::kNothing,
     1.0, 0.10, Word::kKernelElementwiseAction, Word::kKernelElementwiseTorchAction},
};

bool HasAnyOf(std::string_view list, std::string_view lower_name) {
  while (!list.empty()) {
    const std::size_t bar = std::min(list.find('|'), list.size());
    if (lower_name.find(list.substr(0, bar)) != std::string_view::npos) return true;
    list.remove_prefix(std::min(bar + 1, list.size()));
  }
  return false;
}

bool IsGemm(std::string_view lower_name) {
  return HasAnyOf("gemm|cijk_|_mma_|cutlass", lower_name) && !HasAnyOf("splitk_reduce|splitkreduce", lower_name);
}

// The relevant properties of a name, found once per name.
struct Name {
  std::vector<bool> fits;  // Per pattern.
  bool gemm = false;
};

class Matcher {
 public:
  explicit Matcher(const RankEvents& events)
      : events_(events), t_(events.view().tables), ops_(events.activity().timeline.ops) {
    for (std::uint32_t row = 0; row < t_.devices.rows(); ++row)
      tensor_cores_[t_.devices.device[row]] =
          t_.devices.vendor[row] != schema::Vendor::kAmd && t_.devices.compute_major[row] >= rules::kTf32ComputeMajor;
  }

  std::vector<std::uint8_t> Match() {
    std::vector<std::uint8_t> of(ops_.size(), kNoPattern);
    for (std::uint32_t i = 0; i < ops_.size(); ++i) {
      if (ops_[i].copy || ops_[i].cls != merge::KernelClass::kCompute) continue;
      const Name& name = NameOf(ops_[i]);
      for (std::uint8_t p = 0; p < std::size(kPatterns); ++p)
        if (name.fits[p] && Holds(kPatterns[p].needs, i)) {
          of[i] = p;
          break;
        }
    }
    for (std::uint8_t p = 0; p < std::size(kPatterns); ++p)
      if (kPatterns[p].needs == KernelPattern::kBetweenGemms) Surround(p, of);
    return of;
  }

 private:
  const Name& NameOf(const gpu::GpuOp& op) {
    const std::uint32_t id = t_.kernels.name[op.row];
    const auto [at, fresh] = names_.try_emplace(id);
    if (!fresh) return at->second;
    std::string lower(events_.view().Text(id));
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const KernelPattern& pattern : kPatterns)
      at->second.fits.push_back(HasAnyOf(pattern.any, lower) && !HasAnyOf(pattern.none, lower) &&
                                !(pattern.needs == KernelPattern::kBetweenGemms && IsLogSoftmax(lower)));
    at->second.gemm = IsGemm(lower);
    return at->second;
  }

  // softmax_warp_forward<input, output, accumulator, log2 elements, is_log_softmax, ...>, which the loss uses.
  static bool IsLogSoftmax(std::string_view lower) {
    const std::size_t warp = lower.find("softmax_warp_");
    if (warp == std::string_view::npos) return false;
    std::size_t from = warp;
    for (int comma = 0; comma < 4; ++comma) {
      from = lower.find(',', from);
      if (from == std::string_view::npos) return false;
      ++from;
    }
    while (from < lower.size() && lower[from] == ' ') ++from;
    return lower.substr(from).starts_with("true") || lower.substr(from).starts_with("(bool)1");
  }

  bool Holds(KernelPattern::Needs needs, std::uint32_t i) {
    const gpu::GpuOp& op = ops_[i];
    switch (needs) {
      case KernelPattern::kNothing:
        return true;
      case KernelPattern::kTensorCores: {
        const auto device = tensor_cores_.find(events_.activity().timeline.DeviceOf(op));
        return device != tensor_cores_.end() && device->second;
      }
      case KernelPattern::kInOptimizer: {
        constexpr std::uint8_t kOptimizer = schema::Category::kOptimizer;
        return op.api != kNone &&
               events_.PhaseOf(events_.nest().At(t_.api.thread[op.api], t_.api.begin_ns[op.api])) == kOptimizer;
      }
      case KernelPattern::kBetweenGemms:
        return FindGemm(i, false) != kNone && FindGemm(i, true) != kNone;
    }
    return false;
  }

  // Finds the matrix product within a few kernels on the same stream.
  std::uint32_t FindGemm(std::uint32_t i, bool forward) {
    int between = 0;
    std::uint32_t at = i;
    for (int looked = 0; looked < rules::kAttentionKernelsLooked; ++looked) {
      if (forward ? at + 1 >= ops_.size() : at == 0) return kNone;
      at = forward ? at + 1 : at - 1;
      const gpu::GpuOp& op = ops_[at];
      if (op.stream != ops_[i].stream || op.copy || !op.busy) continue;
      if (NameOf(op).gemm) return at;
      if (op.cls != merge::KernelClass::kCompute || ++between >= rules::kAttentionKernelsBetween) return kNone;
    }
    return kNone;
  }

  // Marks what a fused kernel would contain: the kernels from one product to the next.
  void Surround(std::uint8_t p, std::vector<std::uint8_t>& of) {
    std::vector<std::uint32_t> cores;
    for (std::uint32_t i = 0; i < ops_.size(); ++i)
      if (of[i] == p) cores.push_back(i);
    for (const std::uint32_t core : cores) {
      const std::uint32_t from = FindGemm(core, false), to = FindGemm(core, true);
      for (std::uint32_t i = from; i <= to && i < ops_.size(); ++i)
        if (ops_[i].stream == ops_[core].stream && !ops_[i].copy && ops_[i].cls == merge::KernelClass::kCompute)
          of[i] = p;
    }
  }

  const RankEvents& events_;
  const schema::RankTables& t_;
  const std::vector<gpu::GpuOp>& ops_;
  std::map<std::uint16_t, bool> tensor_cores_;
  std::map<std::uint32_t, Name> names_;
};

}  // namespace

std::span<const KernelPattern> KernelPatterns() { return kPatterns; }

std::vector<std::uint8_t> MatchPatterns(const RankEvents& events) { return Matcher(events).Match(); }

}  // namespace lockstep::analysis
