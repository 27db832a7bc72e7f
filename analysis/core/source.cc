#include "analysis/core/source.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::analysis {

Source SourceOf(const merge::Timeline& timeline) {
  // Facts that only PyTorch's hooks record (core/fact.h); sizes of gradients may come from any program.
  constexpr std::array<std::string_view, 2> kFactsOfTorch{"fact.torch_", "fact.ddp_"};
  Source source;
  source.imported = timeline.Meta("imported");
  source.torch = source.imported.find("kineto") != std::string::npos || timeline.tables.gradient_buckets.rows() > 0;
  // Steps that PyTorch's hooks or its profiler mark.
  const std::string_view steps = timeline.Meta("step_source");
  source.torch |= steps == "torch hook" || steps == "ProfilerStep";
  const auto& meta = timeline.tables.meta;
  for (std::size_t i = 0; i < meta.rows() && !source.torch; ++i) {
    const std::string_view key = timeline.Text(meta.key[i]);
    source.torch = std::any_of(kFactsOfTorch.begin(), kFactsOfTorch.end(),
                               [&](std::string_view fact) { return key.starts_with(fact); });
  }
  return source;
}

std::string Advise(const Source& source, std::string_view general, std::string_view in_torch) {
  if (source.torch) return std::string(in_torch);
  std::string text(general);
  if (!source.imported.empty()) text.append("; in PyTorch: ").append(in_torch);
  return text;
}

std::string ToMarkSteps(const Source& source) {
  if (source.imported.empty()) return "call lockstep_step() once per step, or name a range with --step-range";
  if (source.imported.find("nsys") != std::string::npos)
    return "put an NVTX range around each step, and name it with --step-range";
  return "call prof.step() once per step (torch.profiler)";
}

}  // namespace lockstep::analysis
