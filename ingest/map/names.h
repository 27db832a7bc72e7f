#pragma once
// Interprets Kineto's names: runtime calls, copies, synchronisations, ranges, collectives, element types. Names are
// matched by their parts, so that a new version's suffix (cudaLaunchKernelExC_v11060) changes nothing.

#include <cstdint>
#include <string>
#include <string_view>

#include "core/collective.h"
#include "core/schema_enums.h"

namespace lockstep::ingest {

std::uint8_t ApiKind(std::string_view name);  // As api.kind.
bool IsHip(std::string_view name);            // A call of AMD's runtime.

struct CopyKind {
  std::uint8_t kind = schema::CopyKind::kUnknown,
               host_memory = schema::HostMemory::kUnknown;  // As copies.kind, .host_memory.
};
// "Memcpy HtoD (Pageable -> Device)", "CopyHostToDevice"; `kind` is ROCm's args.kind, may be "".
CopyKind CopyKindOf(std::string_view name, std::string_view kind);

std::uint8_t SyncKind(std::string_view name);  // As sync.kind, 0 unknown.

// As ranges.category, by the names that PyTorch and its users give.
std::uint8_t RangeCategory(std::string_view name);
// Whether users call the range around a step like this: the place in a list of such words, the most reliable first; -1:
// they do not. "step 12", "Train Iteration", "iter=3".
int StepWord(std::string_view name);
// PyTorch's profiler without Kineto writes no categories: only "CPU functions" (the process of its events), names and
// nesting identify them. These names are PyTorch's in any trace.
bool IsOfTorch(std::string_view name);

// A range as torch.autograd.profiler.emit_nvtx() names it: "aten::mm, seq = 12, op_id = 34, sizes = [[2, 3], [3, 4]],
// input_op_ids = [[(33, 0)]]". Each of the fields may be missing.
struct EmittedRange {
  std::string_view name;   // Without them.
  std::string_view sizes;  // "[[2, 3], [3, 4]]", "" not told.
  std::int64_t sequence = -1;
  bool emitted = false;  // Has at least one of them.
  // Else it is a range of record_function(), which has no sequence number.
  bool is_operator() const;
};
EmittedRange EmittedRangeOf(std::string_view text);

// N of "ProfilerStep#N", -1 if it is none.
std::int64_t StepNumber(std::string_view name);

// The other side of "nccl:send 0->1", "nccl:recv 0<-1", in the group's ranks; -1 unknown.
std::int64_t PeerOf(std::string_view annotation);

struct ElementType {
  DataType type = DataType::kUnknown;
  std::uint32_t bytes = 0;  // 0 unknown.
};
// c10's names ("Float", "BFloat16"), C++'s of record_shapes ("float", "c10::BFloat16", "long int").
ElementType ElementTypeOf(std::string_view name);

}  // namespace lockstep::ingest
