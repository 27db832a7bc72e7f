// Walking buffers, and what holds for all kinds: times, windows, what is counted. Kinds: decode_kinds.cc

#include "runtime/cupti/decode.h"

#include <string.h>

namespace lockstep::cupti {

std::uint64_t Decoder::Buffer(const std::uint8_t* buffer, std::size_t valid_bytes) {
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
      // Out of its own buffer: the library and we disagree about lengths.
      output_.Lose(Loss::kGpuBufferCut, nullptr, 1, last_ticks_, last_ticks_);
      return records;
    }
    std::uint32_t kind;
    memcpy(&kind, buffer + at, sizeof kind);
    if (result != kSuccess) {
      // The library does not know how long it is either: what follows cannot be found.
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

Decoder::Verdict Decoder::Check(const char* what, std::uint64_t& begin, std::uint64_t& end) {
  if (begin == 0 || end == 0) {
    output_.Lose(Loss::kGpuTimesMissing, what, 1, last_ticks_, last_ticks_);
    return Verdict::kDrop;
  }
  begin = scale_.Ticks(begin);
  end = scale_.Ticks(end);
  if (begin > end || begin < low_ticks_ || end > high_ticks_) {
    output_.Lose(Loss::kGpuClockTaken, what, 1, last_ticks_, last_ticks_);
    return Verdict::kDrop;
  }
  last_ticks_ = begin;
  if (windows_.On(begin)) return Verdict::kKeep;
  output_.Lose(Loss::kGpuOutOfWindow, what, 1, begin, end);
  return Verdict::kDrop;
}

void Decoder::Record(const void* record, std::uint32_t bytes) {
  const std::uint32_t kind = static_cast<const AnyRecord*>(record)->kind;
  switch (kind) {
    case kKindConcurrentKernel:
    case kKindSerialKernel:
      if (Long(bytes, kKernelBytes)) Kernel(*static_cast<const KernelRecord*>(record), bytes);
      return;
    case kKindMemcpy:
      if (Long(bytes, kCopyBytes)) Copy(*static_cast<const CopyRecord*>(record), bytes);
      return;
    case kKindMemcpyPeer:
      if (Long(bytes, kPeerCopyBytes)) PeerCopy(*static_cast<const PeerCopyRecord*>(record), bytes);
      return;
    case kKindMemset:
      if (Long(bytes, kMemsetBytes)) Memset(*static_cast<const MemsetRecord*>(record), bytes);
      return;
    case kKindSynchronization:
      if (Long(bytes, kSyncBytes)) Sync(*static_cast<const SyncRecord*>(record), bytes);
      return;
    case kKindCudaEvent:
      if (Long(bytes, kEventBytes)) Event(*static_cast<const EventRecord*>(record), bytes);
      return;
    case kKindRuntime:
    case kKindDriver:
      if (Long(bytes, kApiBytes)) Call(*static_cast<const ApiRecord*>(record));
      return;
    case kKindOverhead:
      if (Long(bytes, kOverheadBytes)) Overhead(*static_cast<const OverheadRecord*>(record));
      return;
    case kKindDevice:
      if (Long(bytes, kDeviceBytes)) Device(*static_cast<const DeviceRecord*>(record));
      return;
    case kKindContext:
      if (Long(bytes, kContextBytes)) UseDevice(static_cast<const ContextRecord*>(record)->device);
      return;
    case kKindGraphTrace:
      if (Long(bytes, kGraphBytes)) Graph(*static_cast<const GraphRecord*>(record));
      return;
    case kKindMemory2:
      if (Long(bytes, kMemoryBytes)) Memory(*static_cast<const MemoryRecord2*>(record), bytes);
      return;
    case kKindStream:      // Streams are known by what runs on them.
    case kKindMemoryPool:  // Comes with kKindMemory2.
      return;
    default:
      Unknown(kind);
  }
}

}  // namespace lockstep::cupti
