// Walks buffers, and does what all kinds need: times, windows, counts. The kinds are in decode_kinds.cc.

#include "runtime/cupti/decode.h"

#include <string.h>

#include <array>

namespace lockstep::cupti {
namespace {

// By kind: the least length of the records that are read; 0: of this kind nothing is read.
constexpr std::array<std::uint16_t, kKindLimit> kLeastOfKind = [] {
  std::array<std::uint16_t, kKindLimit> least{};
  least[kKindConcurrentKernel] = least[kKindSerialKernel] = kKernelBytes;
  least[kKindMemcpy] = kCopyBytes;
  least[kKindMemcpyPeer] = kPeerCopyBytes;
  least[kKindMemset] = kMemsetBytes;
  least[kKindSynchronization] = kSyncBytes;
  least[kKindCudaEvent] = kEventBytes;
  least[kKindRuntime] = least[kKindDriver] = kApiBytes;
  least[kKindOverhead] = kOverheadBytes;
  least[kKindDevice] = kDeviceBytes;
  least[kKindContext] = kContextBytes;
  least[kKindGraphTrace] = kGraphBytes;
  least[kKindDeviceGraphTrace] = kDeviceGraphBytes;
  least[kKindMemory2] = kMemoryBytes;
  return least;
}();

}  // namespace

std::uint64_t Decoder::Buffer(const std::uint8_t* buffer, std::size_t valid_bytes) {
  const std::uint64_t records = Walk(buffer, valid_bytes);
  Settle(false, 0);
  return records;
}

std::uint64_t Decoder::Walk(const std::uint8_t* buffer, std::size_t valid_bytes) {
  last_ticks_ = 0;
  std::uint64_t records = 0;
  std::size_t done = 0;
  AnyRecord* record = nullptr;
  for (;;) {
    const int result = api_.get_next_record(const_cast<std::uint8_t*>(buffer), valid_bytes, &record);
    if (result == kMaxLimitReached) {
      if (done < valid_bytes) output_.Lose(Loss::kGpuBufferCut, nullptr, 1, last_ticks_, last_ticks_);
      return records;
    }
    const std::size_t at =
        result == kSuccess ? static_cast<std::size_t>(reinterpret_cast<const std::uint8_t*>(record) - buffer) : done;
    if (at >= valid_bytes || valid_bytes - at < sizeof(std::uint32_t) || (records != 0 && at < done)) {
      // The position is outside of the buffer: the library and we disagree about lengths.
      output_.Lose(Loss::kGpuBufferCut, nullptr, 1, last_ticks_, last_ticks_);
      return records;
    }
    std::uint32_t kind;
    memcpy(&kind, buffer + at, sizeof kind);
    if (result != kSuccess) {
      // The library does not know the record's length either, so the records after it cannot be found.
      Unknown(kind);
      return records;
    }
    const std::uint32_t bytes = kind < kKindLimit && sizes_.bytes[kind] != 0 ? sizes_.bytes[kind] : 8;
    if (valid_bytes - at < bytes) {
      output_.Lose(Loss::kGpuBufferCut, nullptr, 1, last_ticks_, last_ticks_);
      return records;
    }
    Record(record, bytes);
    records += 1;
    done = at + bytes;
  }
}

void Decoder::Unknown(std::uint32_t kind) {
  static char texts[kKindLimit][12];
  if (kind >= kKindLimit) return output_.Lose(Loss::kGpuRecordUnknown, "kind above 63", 1, last_ticks_, last_ticks_);
  char* text = texts[kind];
  if (text[0] == 0) {
    memcpy(text, "kind ", 5);
    std::uint32_t at = 5;
    if (kind >= 10) text[at++] = static_cast<char>('0' + kind / 10);
    text[at] = static_cast<char>('0' + kind % 10);
  }
  output_.Lose(Loss::kGpuRecordUnknown, text, 1, last_ticks_, last_ticks_);
}

bool Decoder::Long(std::uint32_t bytes, std::uint32_t needed) {
  if (bytes >= needed) return true;
  output_.Lose(Loss::kGpuRecordUnknown, "records shorter than CUDA 11's", 1, last_ticks_, last_ticks_);
  return false;
}

bool Decoder::Times(const char* what, std::uint64_t& begin, std::uint64_t& end) {
  if (begin == 0 || end == 0) {
    output_.Lose(forced_ ? Loss::kGpuTimesMissing : Loss::kGpuMemoryFull, what, 1, last_ticks_, last_ticks_);
    return false;
  }
  begin = scale_.Ticks(begin);
  end = scale_.Ticks(end);
  if (begin < low_ticks_ || begin > high_ticks_ || end < low_ticks_ || end > high_ticks_) {
    output_.Lose(Loss::kGpuClockTaken, what, 1, last_ticks_, last_ticks_);
    return false;
  }
  if (begin > end) {
    output_.Lose(Loss::kGpuTimesReversed, what, 1, end, begin);
    return false;
  }
  last_ticks_ = begin;
  return true;
}

bool Decoder::HostOn(const char* what, std::uint64_t& begin, std::uint64_t& end) {
  if (!Times(what, begin, end)) return false;
  if (windows_.On(begin)) return true;
  output_.Lose(Loss::kGpuOutOfWindow, what, 1, begin, end);
  return false;
}

Decoder::Place Decoder::PlaceOf(const char* what, std::uint32_t correlation, std::uint64_t ticks) {
  // Recording never changed, so the decision does not depend on the launch.
  if (windows_.Constant()) {
    if (windows_.On(ticks)) return Place::kKeep;
    output_.Lose(Loss::kGpuOutOfWindow, what, 1, ticks, ticks);
    return Place::kDrop;
  }
  switch (launches_.Of(correlation)) {
    case Launches::Place::kOn:
      return Place::kKeep;
    case Launches::Place::kOff:
      output_.Lose(Loss::kGpuOutOfWindow, what, 1, ticks, ticks);
      return Place::kDrop;
    default:
      return correlation != 0 ? Place::kWait : PlaceByTime(what, ticks);
  }
}

Decoder::Place Decoder::PlaceByTime(const char* what, std::uint64_t ticks) {
  output_.Lose(Loss::kGpuLaunchUnknown, what, 1, ticks, ticks);
  if (windows_.On(ticks)) return Place::kKeep;
  output_.Lose(Loss::kGpuOutOfWindow, what, 1, ticks, ticks);
  return Place::kDrop;
}

void Decoder::WritePending(const PendingRecord& pending) {
  static_assert(sizeof(GpuKernelRecord) == sizeof pending.record && sizeof(GpuCopyRecord) == sizeof pending.record &&
                sizeof(GpuSyncRecord) == sizeof pending.record);
  output_.WriteSlots(pending.record, sizeof pending.record / kSlotBytes);
}

void Decoder::Settle(bool fall_back, std::uint32_t older) {
  if (pending_.empty()) return;
  pending_.Sweep([&](const PendingRecord& pending) {
    Place place = PlaceOf(pending.what, pending.correlation, pending.ticks);
    if (place == Place::kWait && fall_back && static_cast<std::int32_t>(pending.round - older) <= 0)
      place = PlaceByTime(pending.what, pending.ticks);
    if (place == Place::kKeep) WritePending(pending);
    if (place == Place::kDrop && pending.record[0] == static_cast<std::uint8_t>(RecordKind::kGpuKernel)) {
      GpuKernelRecord kernel;
      memcpy(static_cast<void*>(&kernel), pending.record, sizeof kernel);
      WriteAfterWindow(kernel.correlation, kernel.begin_ticks, kernel.end_ticks);
    }
    return place == Place::kWait;
  });
}

void Decoder::Round(bool last) {
  // Calls are recorded when they return, within a round or two; a thread's buffer may be delayed by a call that waits.
  constexpr std::uint32_t kRounds = 4;
  Settle(true, last ? round_ : round_ - kRounds);
  round_ += 1;
}

void Decoder::WriteAfterWindow(std::uint32_t correlation, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t launched = after_window_.Starts(correlation, begin);
  if (launched == 0) return;
  GpuKernelRecord kernel{};
  kernel.head = {RecordKind::kGpuKernel, kGpuAfterWindow, 2};
  kernel.begin_ticks = begin;
  kernel.end_ticks = end;
  kernel.correlation = correlation;
  kernel.launch_ticks = launched;
  output_.Write(kernel);
}

void Decoder::Record(const void* record, std::uint32_t bytes) {
  const std::uint32_t kind = static_cast<const AnyRecord*>(record)->kind;
  if (!Long(bytes, kind < kKindLimit ? kLeastOfKind[kind] : 0)) return;
  switch (kind) {
    case kKindConcurrentKernel:
    case kKindSerialKernel:
      return Kernel(*static_cast<const KernelRecord*>(record), bytes);
    case kKindMemcpy:
      return Copy(*static_cast<const CopyRecord*>(record), bytes);
    case kKindMemcpyPeer:
      return PeerCopy(*static_cast<const PeerCopyRecord*>(record), bytes);
    case kKindMemset:
      return Memset(*static_cast<const MemsetRecord*>(record), bytes);
    case kKindSynchronization:
      return Sync(*static_cast<const SyncRecord*>(record), bytes);
    case kKindCudaEvent:
      return Event(*static_cast<const EventRecord*>(record), bytes);
    case kKindRuntime:
    case kKindDriver:
      return Call(*static_cast<const ApiRecord*>(record));
    case kKindOverhead:
      return Overhead(*static_cast<const OverheadRecord*>(record));
    case kKindDevice:
      return Device(*static_cast<const DeviceRecord*>(record));
    case kKindContext:
      return UseDevice(static_cast<const ContextRecord*>(record)->device);
    case kKindGraphTrace:
      return Graph(*static_cast<const GraphRecord*>(record));
    case kKindDeviceGraphTrace:
      return DeviceGraph(*static_cast<const DeviceGraphRecord*>(record));
    case kKindMemory2:
      return Memory(*static_cast<const MemoryRecord2*>(record), bytes);
    case kKindStream:      // Streams are known from what runs on them.
    case kKindMemoryPool:  // Comes together with kKindMemory2.
      return;
    default:
      Unknown(kind);
  }
}

}  // namespace lockstep::cupti
