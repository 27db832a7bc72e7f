// NCCL's calls as its own NVTX ranges report them: the third source, for an NCCL that is
// linked statically and whose profiler slot is taken, so that neither the plugin nor the
// interposed functions of liblockstep-gpu.so see it.
//
// Domain "NCCL"; a range per call, with a payload of a static schema (NCCL's own number
// above 1 << 24). Since 2.25 payloads begin with the communicator's hash, which is what the
// profiler calls commId; before that with the bytes (2.18 to 2.30, src/include/nvtx.h and
// nvtx_payload_schemas.h). What a communicator is comes with the end of the range that made
// it. The ranges contain no stream and no result.

#include <string.h>

#include "core/collective.h"
#include "core/gpu_records.h"
#include "runtime/probe/nvtx.h"
#include "runtime/probe/ring.h"

namespace lockstep::probe {
namespace {

constexpr std::uint64_t kFirstStaticSchema = 1 << 24;
constexpr std::uint32_t kCommInitRank = 0, kCommInitRankConfig = 11, kCommInitRankScalable = 12, kCommSplit = 13;
// ProcessEntry::nccl_used, as comms/nccl/state.h has them.
constexpr std::uint32_t kSeenOtherwise = 1 | 2, kSeenHere = 4;

struct Call {
  std::uint32_t schema;
  CollectiveKind function;
  std::uint8_t direction;
  enum : std::uint8_t { kNothing, kReduction, kPeer, kPeerAndReduction } behind;  // Bytes.
};
constexpr Call kCalls[] = {
    {4, CollectiveKind::kAllGather, 0, Call::kNothing},
    {5, CollectiveKind::kAllReduce, 0, Call::kReduction},
    {6, CollectiveKind::kBroadcast, 0, Call::kPeer},
    {7, CollectiveKind::kReduceScatter, 0, Call::kReduction},
    {8, CollectiveKind::kReduce, 0, Call::kPeerAndReduction},
    {9, CollectiveKind::kSendRecv, 0, Call::kPeer},
    {10, CollectiveKind::kSendRecv, 1, Call::kPeer},
    {16, CollectiveKind::kAllToAll, 0, Call::kNothing},
    {17, CollectiveKind::kGather, 0, Call::kPeer},
    {18, CollectiveKind::kScatter, 0, Call::kPeer},
};

// Communicators by hash; one that does not fit into the table has no number.
struct Comm {
  std::atomic<std::uint64_t> hash;
  std::atomic<std::uint32_t> written;
  std::atomic<std::uint64_t> calls[16];  // Per CollectiveKind; receives after them.
};
constexpr std::uint32_t kComms = 1024;
constinit Comm g_comms[kComms] = {};
// Distinct from the numbers that liblockstep-gpu.so gives in the same process.
constexpr std::uint32_t kNumbers = kNcclCommBit | 1u << 30;

Comm* CommOf(std::uint64_t hash) {
  if (hash == 0) return nullptr;
  for (std::uint32_t i = 0, at = static_cast<std::uint32_t>((hash * 0x9e3779b97f4a7c15u) >> 54); i < 64; ++i) {
    Comm& comm = g_comms[(at + i) % kComms];
    std::uint64_t there = comm.hash.load(std::memory_order_acquire);
    if (there == 0 && comm.hash.compare_exchange_strong(there, hash)) return &comm;
    if (there == hash) return &comm;
  }
  return nullptr;
}
static_assert(kComms == 1u << (64 - 54));

std::uint32_t NumberOf(const Comm& comm) { return kNumbers | static_cast<std::uint32_t>(&comm - g_comms); }

void WriteComm(Comm& comm, std::uint32_t size, std::int32_t rank, std::int32_t device, std::uint64_t parent) {
  NcclCommRecord record{};
  record.head = {RecordKind::kNcclComm, static_cast<std::uint8_t>(NcclSource::kNvtx), 2};
  record.comm = NumberOf(comm);
  record.id = comm.hash.load(std::memory_order_relaxed);
  record.parent = parent;
  record.ticks = ring::Ticks();
  record.size = size;
  record.rank = rank;
  record.device = device;
  if (ring::Emit(&record, 2)) comm.written.store(1, std::memory_order_relaxed);
}

bool IsNccl(const NvtxName* domain) { return domain != nullptr && strcmp(domain->text(), "NCCL") == 0; }

// Whether this source has to record NCCL's calls.
bool OnlyHere() {
  ProcessEntry* process = lockstep_process();
  if (process == nullptr || (lockstep_probe.segment->gpu_options & kGpuOff) != 0) return false;
  const std::uint32_t used = process->nccl_used.load(std::memory_order_relaxed);
  if ((used & kSeenOtherwise) != 0) return false;
  if ((used & kSeenHere) == 0) process->nccl_used.fetch_or(kSeenHere, std::memory_order_relaxed);
  return true;
}

template <typename T>
T At(const nvtx::PayloadData& payload, std::size_t offset) {
  T value;
  memcpy(&value, static_cast<const char*>(payload.data) + offset, sizeof value);
  return value;
}

}  // namespace

NcclRange ReadNccl(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  NcclRange range;
  if (lockstep_probe.segment == nullptr || data == nullptr || count == 0 || !IsNccl(domain)) return range;
  const nvtx::PayloadData& payload = data[0];
  for (const Call& call : kCalls) {
    if (payload.schema != kFirstStaticSchema + call.schema || payload.data == nullptr) continue;
    const std::size_t behind = call.behind == Call::kNothing ? 0 : 8;
    const bool has_comm = payload.bytes == 16 + behind;
    if ((!has_comm && payload.bytes != 8 + behind) || !OnlyHere()) return range;
    std::size_t at = 0;
    Comm* comm = nullptr;
    if (has_comm) {
      comm = CommOf(At<std::uint64_t>(payload, 0));
      at = 8;
    }
    range.function = static_cast<std::uint8_t>(call.function);
    range.direction = call.direction;
    range.bytes = At<std::uint64_t>(payload, at);
    at += 8;
    if (call.behind == Call::kPeer || call.behind == Call::kPeerAndReduction) {
      range.peer = At<std::int32_t>(payload, at);
      at += 4;
    }
    if (call.behind == Call::kReduction || call.behind == Call::kPeerAndReduction) {
      const auto operation = At<std::int32_t>(payload, at);
      range.reduction = operation < 0 ? 0 : static_cast<std::uint8_t>(operation < 5 ? operation + 1 : 6);
    }
    range.comm = kNoComm;
    if (comm == nullptr) return range;
    range.comm = NumberOf(*comm);
    range.seq = comm->calls[range.function + range.direction].fetch_add(1, std::memory_order_relaxed);
    return range;
  }
  return range;
}

void LearnNccl(const NvtxName* domain, const nvtx::PayloadData* data, std::size_t count) {
  if (lockstep_probe.segment == nullptr || data == nullptr || count == 0 || !IsNccl(domain)) return;
  const nvtx::PayloadData& payload = data[0];
  if (payload.schema < kFirstStaticSchema || payload.data == nullptr) return;
  const std::uint64_t schema = payload.schema - kFirstStaticSchema;
  const bool split = schema == kCommSplit && payload.bytes == 40;
  const bool init = (schema == kCommInitRank || schema == kCommInitRankConfig || schema == kCommInitRankScalable) &&
                    payload.bytes == 24;
  if ((!split && !init) || !OnlyHere()) return;
  const std::size_t at = split ? 16 : 8;
  const auto size = At<std::int32_t>(payload, at), rank = At<std::int32_t>(payload, at + 4),
             device = At<std::int32_t>(payload, at + 8);
  Comm* comm = CommOf(At<std::uint64_t>(payload, 0));
  if (comm == nullptr || size <= 0 || rank < 0 || rank >= size || ring::Page() == nullptr) return;
  WriteComm(*comm, static_cast<std::uint32_t>(size), rank, device, split ? At<std::uint64_t>(payload, 8) : 0);
}

void WriteNccl(const NcclRange& range, std::uint32_t name, std::uint64_t begin_ticks, std::uint64_t end_ticks) {
  if (range.comm != kNoComm)
    if (Comm& comm = g_comms[range.comm % kComms]; comm.written.load(std::memory_order_relaxed) == 0)
      WriteComm(comm, 0, -1, -1, 0);
  NcclCallRecord record{};
  record.head = {RecordKind::kNcclCall, static_cast<std::uint8_t>(NcclSource::kNvtx), 3};
  record.comm = range.comm;
  record.begin_ticks = begin_ticks;
  record.end_ticks = end_ticks;
  record.count = range.bytes;
  record.peer = range.peer;
  record.function = range.function;
  record.direction = range.direction;
  record.dtype = static_cast<std::uint8_t>(DataType::kByte);
  record.reduction = range.reduction;
  record.name = name;
  record.seq = range.seq;
  ring::Emit(&record, 3);
}

void ForgetNccl() {
  for (Comm& comm : g_comms) comm.written.store(0, std::memory_order_relaxed);
}

}  // namespace lockstep::probe
