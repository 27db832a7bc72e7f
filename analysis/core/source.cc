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
  source.nsys = source.imported.find("nsys") != std::string::npos;
  source.torch = source.imported.find("kineto") != std::string::npos || timeline.tables.gradient_buckets.rows() > 0;
  // Steps that PyTorch's hooks or its profiler mark.
  const std::string_view steps = timeline.Meta("step_source");
  source.torch |= steps == "torch hook" || steps == "ProfilerStep";
  // Of Nsight Systems: whether kernels of PyTorch's ran (ingest/nsys/map/report_import.cc).
  const std::string_view framework = timeline.Meta("fact.framework");
  source.torch |= framework == "torch";
  source.other = !framework.empty() && !source.torch;
  const auto& meta = timeline.tables.meta;
  for (std::size_t i = 0; i < meta.rows() && !source.torch; ++i) {
    const std::string_view key = timeline.Text(meta.key[i]);
    source.torch = std::any_of(kFactsOfTorch.begin(), kFactsOfTorch.end(),
                               [&](std::string_view fact) { return key.starts_with(fact); });
  }
  return source;
}

Clauses Advise(const Source& source, Word general, Word in_torch) {
  if (source.torch) return {{Say(in_torch)}};
  if (source.imported.empty() || source.other) return {{Say(general)}};
  return {{Say(general), Say(Word::kInPyTorch, {{"advice", Clauses{{Say(in_torch)}}}})}};
}

Clause ToMarkSteps(const Source& source) {
  if (source.imported.empty()) return Say(Word::kMarkStepsByLockstep);
  return Say(source.nsys ? Word::kMarkStepsByNsys : Word::kMarkStepsByTorchProfiler);
}

}  // namespace lockstep::analysis
