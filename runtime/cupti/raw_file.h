#pragma once
// CUPTI's buffers in a file that can be replayed elsewhere (tests/fakes/cupti/replay.cc): without a GPU, without
// libcupti. Recorded when LOCKSTEP_GPU_RAW_DIR is set, one file per process: cupti-PID.raw.
//
// Little endian. A RawHeader, then blocks, each a RawBlock followed by `bytes` of payload; a
// payload is a sequence of items, each a RawItem followed by its bytes, padded to 8:
//   kRawRecord    a record as CUPTI gave it (`number`: its kind). The pointer to a name in it is replaced
//                 by the number of a text, 0 none.
//   kRawText      a text and its final 0. `number`: counted from 1.
//   kRawFunction  name and final 0 of a CUDA function. `number`: CUPTI's id, domain << 24 above it.
// Texts and names come before the records that need them. A file that was cut is read as far as it goes.

#include <cstddef>
#include <cstdint>

#include "runtime/cupti/api.h"
#include "runtime/cupti/callbacks.h"
#include "runtime/cupti/table.h"

namespace lockstep::cupti {

inline constexpr std::uint64_t kRawMagic = 0x5741525550474c4cu;  // "LLGPURAW"
inline constexpr std::uint32_t kRawVersion = 1;
inline constexpr std::uint32_t kRawRecord = 1, kRawText = 2, kRawFunction = 3;

// A moment on three clocks; relates the times in records (ticks, or CLOCK_REALTIME) to nanoseconds.
struct RawMoment {
  std::uint64_t ticks;
  std::int64_t raw_ns, realtime_ns;
};
struct RawHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t cupti_version;
  std::uint32_t realtime;  // 1: times in records are CLOCK_REALTIME ns, not ticks.
  std::uint32_t header_bytes;
  RawMoment begin;
};
struct RawBlock {
  std::uint64_t bytes;
  RawMoment end;  // When it was written.
};
struct RawItem {
  std::uint32_t type, number, bytes;
  std::uint32_t reserved;
};

RawMoment RawNow();
// Offset of the name in a record of this kind, 0 if it has none.
std::uint32_t NameOffset(std::uint32_t kind);

class RawWriter {
 public:
  // Flusher's thread. Does nothing without LOCKSTEP_GPU_RAW_DIR, or after a failed write.
  void Write(const Api& api, const RecordSizes& sizes, bool realtime, std::uint8_t* buffer, std::size_t valid_bytes);

 private:
  const RawMoment made_ = RawNow();  // Before the first record.
  bool Open(const Api& api, bool realtime);
  std::uint8_t* Item(std::uint32_t type, std::uint32_t number, std::uint32_t bytes);
  std::uint32_t TextOf(const char* text);
  void Send();

  int fd_ = -1;
  bool looked_ = false;
  std::uint8_t* block_ = nullptr;
  std::size_t used_ = 0;
  std::uint32_t texts_ = 0;
  TextTable text_numbers_;
  std::uint64_t functions_[2][kMostCallbacks / 64] = {};  // Bit per id that is in the file.
};

}  // namespace lockstep::cupti
