#include "merge/timeline/kernel_class.h"

#include <algorithm>

#include "trace/file/strings.h"

namespace lockstep::merge {
namespace {

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace

KernelClass HtaClass(std::string_view name) {
  if (name.starts_with("nccl") || name.starts_with("hip") || name.starts_with("hccl") || Has(name, "ncclKernel"))
    return KernelClass::kComm;
  if (name.starts_with("Memcpy") || name.starts_with("Memset") || name.starts_with("dma")) return KernelClass::kMemory;
  for (const std::string_view part : {"Memcpy", "Memset", "dma", "Sync"})
    if (Has(name, part)) return KernelClass::kNone;
  for (const std::string_view prefix : {"Stream Wait Event", "runFunction", "job_exe", "packet", "pe_exe",
                                        "cpum_exe_subgraph", "collective_subgraph_execution"})
    if (name.starts_with(prefix)) return KernelClass::kNone;
  if (name.starts_with("cuda") && Has(name.substr(4), "LaunchKernel")) return KernelClass::kNone;
  return KernelClass::kCompute;
}

KernelClassifier::KernelClassifier(const schema::RankTables& texts, bool hta)
    : hta_(hta), by_name_(texts.strings.rows(), KernelClass::kCompute) {
  for (std::uint32_t id = 0; id < by_name_.size(); ++id) {
    const std::string_view name = trace::TextOf(texts, id);
    by_name_[id] = hta ? HtaClass(name) : IsCommKernelName(name) ? KernelClass::kComm : KernelClass::kCompute;
  }
}

std::vector<KernelClass> ClassifyKernels(const schema::RankTables& events, const schema::Collectives& collectives,
                                         bool hta) {
  const schema::Kernels& kernels = events.kernels;
  const KernelClassifier classifier(events, hta);
  std::vector<KernelClass> classes(kernels.rows());
  for (std::size_t i = 0; i < classes.size(); ++i)
    classes[i] = classifier.Of(kernels.name[i], kernels.work[i], kernels.work_rule[i]);
  if (!hta)
    for (const std::uint32_t row : collectives.kernel)
      if (row < classes.size()) classes[row] = KernelClass::kComm;
  return classes;
}

}  // namespace lockstep::merge
