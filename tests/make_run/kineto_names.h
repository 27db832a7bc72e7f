#pragma once
// Names that PyTorch, CUDA and NCCL give to things, as files of torch 1.13 to 2.6 have them.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/collective.h"
#include "make_run/spec.h"

namespace lockstep::make_run {

// Operators around a launch: outermost, inner, and what autograd calls its backward.
struct OperatorFamily {
  std::string_view outer, inner, backward;
};
const OperatorFamily& FamilyOf(std::uint64_t choice);
std::string_view LeafOperator(std::uint64_t choice);  // Operators that launch nothing.
std::string_view ExtraRuntimeCall(std::uint64_t choice, bool amd);
// The runtime's function as the vendor calls it: "cudaLaunchKernel", "hipLaunchKernel".
std::string RuntimeName(std::string_view cuda_name, bool amd);
std::string NcclKernelName(CollectiveKind kind, KinetoSpec::Names names);
std::string_view CollectiveOperator(CollectiveKind kind);    // "c10d::allreduce_"
std::string_view CollectiveAnnotation(CollectiveKind kind);  // "nccl:all_reduce"
std::string_view CollectiveArgument(CollectiveKind kind);    // "Collective name": "allreduce"
std::string_view MessageOperator(bool send);
std::string_view MessageAnnotation(bool send);
std::string AnnotationName(std::string_view range, std::uint8_t category);
// With what JSON needs escaped.
std::string Escaped(std::string_view text);

}  // namespace lockstep::make_run
