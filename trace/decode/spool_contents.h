#pragma once
// Everything that a spool and its segment hold, by process and ring: blocks are parsed, records are not yet.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/spool_layout.h"
#include "trace/decode/process_decoder.h"
#include "trace/spool/leftover_rings.h"
#include "trace/spool/spool_reader.h"

namespace lockstep::trace {

using SpoolKey = std::pair<std::uint32_t, std::uint32_t>;  // Index and generation of a ring or process.

struct SpoolLoss {
  std::string name, detail;
  std::uint64_t count = 0, first_ticks = 0, last_ticks = 0;
};

// A line of SpoolKind::kStacks.
struct SpoolFrame {
  std::uint32_t number = 0, parent = 0, line = 0;
  bool python = false, library = false;
  std::string file, function;
};

struct SpoolRing {
  SpoolKey process{};
  bool process_known = false;
  std::uint32_t order = 0;  // Of appearance.
  // What its thread is inside of (`thread.left_open`) was written after so many slots, while it went on; 0: at its end.
  std::uint64_t open_at_slot = 0;
  DecoderThread thread;
};

// Everything except records, unchanged from spool and segment.
struct SpoolContents {
  std::map<std::string, std::string> meta;
  std::map<SpoolKey, ProcessState> processes;
  std::vector<SpoolKey> process_order;
  std::map<SpoolKey, SpoolRing> rings;
  std::vector<ClockSnapshot> snapshots;
  std::vector<BurstRow> bursts;
  std::vector<SpoolWindow> windows;
  std::vector<GpuSample> gpu_samples;
  std::vector<SpoolFrame> frames;
  std::vector<SpoolStackSample> samples;
  std::vector<SpoolCallStack> call_stacks;
  std::vector<SpoolLoss> losses;
  std::optional<SpoolEnd> end;
  std::uint64_t malformed_blocks = 0;  // Blocks with a good checksum but invalid content.
};

// A number at the beginning of a text, 0 without one.
std::uint64_t Number(std::string_view text);

void AddProcess(SpoolContents& contents, ProcessState state);
// A block whose content does not fit its kind is counted in malformed_blocks.
void AddBlock(SpoolContents& contents, const SpoolBlock& block);
// Adds what the segment holds beyond the spool. `leftover` must outlive the streams.
void AddLeftover(SpoolContents& contents, const Leftover& leftover);

}  // namespace lockstep::trace
