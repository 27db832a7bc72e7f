#pragma once
// Which GPU kernels compute and which communicate.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/comm_kernels.h"
#include "core/schema.h"

namespace lockstep::merge {

enum class KernelClass : std::uint8_t { kCompute = 0, kComm = 1, kNone = 2, kMemory = 3 };

// HTA's classification by name (HolisticTraceAnalysis f4d0062, first hit wins);
// kNone is its OTHER.
KernelClass HtaClass(std::string_view name);

// Classifies a kernel by its name and work; each name is examined once.
class KernelClassifier {
 public:
  // `hta`: by name only. `texts` holds strings.
  KernelClassifier(const schema::RankTables& texts, bool hta);
  KernelClass Of(std::uint32_t name, std::uint8_t work, std::uint8_t work_rule) const {
    const KernelClass named = name < by_name_.size() ? by_name_[name] : KernelClass::kCompute;
    if (hta_) return named;
    if (work == schema::Work::kCompute) return work_rule == schema::WorkRule::kDefault ? named : KernelClass::kCompute;
    return work == schema::Work::kCommunication ? KernelClass::kComm : KernelClass::kNone;
  }

 private:
  bool hta_;
  std::vector<KernelClass> by_name_;
};

// One class per row of kernels. `hta`: by name only; else as recorded, a kernel
// that carried a recorded collective communicates, then the list of names.
std::vector<KernelClass> ClassifyKernels(const schema::RankTables& events, const schema::Collectives& collectives,
                                         bool hta);

}  // namespace lockstep::merge
