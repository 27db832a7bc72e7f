#pragma once
// The spool: an append-only file per slot, which survives a crash and is authoritative until the rank file is complete.
// It is a sequence of blocks, each with its own checksum; a reader uses every good block and counts the others
// (SpoolBlock, SpoolTail).

#include <cstddef>
#include <cstdint>

namespace lockstep {

inline constexpr std::uint32_t kSpoolMagic = 0x4b42534c;  // "LSBK"
inline constexpr std::uint16_t kSpoolVersion = 1;
inline constexpr std::uint32_t kSpoolBlockBytes = 64 * 1024;  // Payload limit of one block.

enum class SpoolKind : std::uint16_t {
  kMeta = 1,         // UTF-8 "key\tvalue\n" lines; a later value of a key wins.
  kProcess = 2,      // ProcessEntry, unchanged; a later one of (index, generation) wins.
  kThread = 3,       // SpoolThread
  kRecords = 4,      // Whole records of one ring, in order.
  kSnapshots = 5,    // ClockSnapshot[]
  kBursts = 6,       // BurstRow[]
  kCpu = 7,          // SpoolCpu[]
  kLoss = 8,         // UTF-8 "name\tcount\tfirst_ticks\tlast_ticks\tdetail\n" lines, additive.
  kEnd = 9,          // SpoolEnd: the application has ended and the rings are drained.
  kWindows = 11,     // SpoolWindow[]: recording switched by the agent.
  kGpuSamples = 12,  // GpuSample[], NVML read by the agent.
  kStacks = 13,      // UTF-8 "number\tparent\tline\tpython\tlibrary\tfile\tfunction\n" lines, see SpoolStackSample.
  kSamples = 14,     // SpoolStackSample[]
  kCallStacks = 15,  // SpoolCallStack[]
  kRing = 10,        // A ring's first kRingHeaderBytes as its owner left them (RingHeader: call and ranges still
                     // open, polls not yet written). Written when its owner ended with any of those; the segment is
                     // gone afterwards. An open gap (dropped_records) is in kLoss already: not to be counted again.
                     // first_slot not 0: as they were while its owner was quiet after so many slots, for readers on
                     // other machines. It says nothing any more once there are more records of this ring.
};

struct SpoolBlockHeader {
  std::uint32_t magic;
  std::uint16_t version;
  SpoolKind kind;
  std::uint32_t bytes;       // Payload that follows.
  std::uint32_t crc;         // CRC-32C of this header with crc = 0, then the payload.
  std::uint32_t ring;        // kRecords, kThread, kRing: ring index; kProcess: process index.
  std::uint32_t generation;  // Of that ring or process.
  std::uint64_t first_slot;  // kRecords: slot number of the first record since the ring was claimed.
};
static_assert(sizeof(SpoolBlockHeader) == 32);

struct SpoolThread {
  std::int64_t tid;
  std::uint32_t process, process_generation;
};
struct SpoolCpu {
  std::uint64_t ticks;
  std::int64_t cpu_ns, run_delay_ns;
  std::uint32_t ring, generation;
};
struct SpoolEnd {
  std::uint64_t ticks;
  std::int32_t exit_code;  // Application's, valid if signal == 0.
  std::int32_t signal;
  std::int64_t app_cpu_ns, agent_cpu_ns;
};

struct SpoolWindow {
  std::uint64_t ticks;
  std::int64_t step;  // As in WindowRecord.
  std::uint32_t on;
  std::uint8_t cause, cut;  // WindowCause.
  std::uint8_t reserved[2];
};
static_assert(sizeof(SpoolWindow) == 24);

// One reading of one GPU. Fields that the device does not report: 0xffffffff (throttle_reasons: 0).
struct GpuSample {
  std::uint64_t ticks;
  std::uint64_t throttle_reasons;  // NVML's bits, as gpu_samples.throttle_reasons.
  std::uint8_t uuid[16];
  std::uint32_t sm_clock_mhz, memory_clock_mhz, power_mw, temperature_c, utilization_percent;
  std::uint32_t vendor;  // schema::Vendor
};
static_assert(sizeof(GpuSample) == 56);

// A look at a thread. Stacks form a tree, whose lines (kStacks) are written before the samples that need them: numbers
// count from 1 on, and the parent, the frame that called, has a lower one; 0: the outermost.
struct SpoolStackSample {
  std::uint64_t ticks;
  std::int64_t tid;
  std::uint32_t stack;       // The innermost frame; 0: it was inside communication, and was left alone.
  std::uint32_t stopped_ns;  // How long the thread stood still.
};
static_assert(sizeof(SpoolStackSample) == 24);

// Which stack (kStacks) a CallStackRecord of a process is.
struct SpoolCallStack {
  std::uint32_t process, process_generation;  // As in SpoolThread.
  std::uint32_t number, stack;                // Never 0.
};
static_assert(sizeof(SpoolCallStack) == 16);

// CRC-32C (Castagnoli), in hardware where SSE4.2 exists. `crc` chains calls; start with 0.
std::uint32_t Crc32c(std::uint32_t crc, const void* data, std::size_t bytes);

}  // namespace lockstep
