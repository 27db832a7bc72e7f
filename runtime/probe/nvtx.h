#pragma once
// The NVTX source: what NVTX's calls become in the thread's ring.
//
//   nvtx.cc          what is injected: NVTX's own functions, and their fast path
//   nvtx_ranges.cc   the slow path, which knows every case
//   nvtx_payload.cc  the extension that attaches structured data
//   nvtx_nccl.cc     NCCL's payloads: its calls, where no other source sees them
//   nvtx_names.cc    domains, registered strings, categories
//
// Push and pop keep a stack per thread over all domains (RingHeader::nvtx), because
// ranges of two domains may overlap in any way; a pop closes the topmost one of its
// domain. Each pair is one record, written by the pop.

#include "core/ring_writer.h"
#include "core/schema_enums.h"
#include "runtime/probe/nvtx_abi.h"
#include "runtime/probe/nvtx_names.h"

namespace lockstep::probe {

inline constexpr std::uint8_t kSourceNvtx = schema::RangeSource::kNvtx;

struct NvtxPayload {
  std::int64_t value = 0;
  std::uint8_t kind = 0;  // As in the table ranges.
};

// NCCL's description of one of its calls, from the payload of the range around it.
struct NcclRange {
  std::uint64_t bytes = 0, seq = 0;
  std::uint32_t comm = 0;  // Number of the records.
  std::int32_t peer = -1;
  std::uint8_t function = 0;  // CollectiveKind; 0: no such call, or another source sees it.
  std::uint8_t direction = 0, reduction = 0;
};

// A range or mark as the application describes it; one of the three texts.
struct NvtxEvent {
  const char* text = nullptr;
  const wchar_t* wide = nullptr;
  const NvtxName* registered = nullptr;
  std::uint32_t category = 0;
  NvtxPayload payload;
  NcclRange nccl;
};

// Reads the attributes; null and too short ones give an empty event.
NvtxEvent NvtxEventOf(const NvtxName* domain, const nvtx::EventAttributes* attributes);

// nvtx_ranges.cc. Whether recording is on or off; thread: any. Levels are of the domain.
int NvtxPush(NvtxName* domain, const NvtxEvent& event);
int NvtxPop(NvtxName* domain);
void NvtxMark(NvtxName* domain, const NvtxEvent& event);
std::uint64_t NvtxStart(NvtxName* domain, const NvtxEvent& event);
void NvtxEnd(std::uint64_t id);
void NvtxNameThread(std::uint32_t tid, const char* name);

// nvtx_payload.cc: the first integer, else the first floating point number.
NvtxPayload ReadPayload(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count);
// Text for calls that have a payload and nothing else.
const char* PayloadText(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count);

// nvtx_nccl.cc. The call that a range of NCCL's represents; it is counted even if recording is off.
NcclRange ReadNccl(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count);
// Payloads at the end of a range describe communicators.
void LearnNccl(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count);
// The call's record; `name` is the thread's id of the function.
void WriteNccl(const NcclRange& range, std::uint32_t name, std::uint64_t begin_ticks, std::uint64_t end_ticks);
void ForgetNccl();  // In a forked child.

// InitializeInjectionNvtxExtension.
bool InjectPayload(const nvtx::ExtensionModule& module);

// Counts this process's NVTX objects.
void CountInjectedObject();
void MarkNvtxUsed();

}  // namespace lockstep::probe
