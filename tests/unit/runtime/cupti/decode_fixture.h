#pragma once
// A decoder in this process that writes into a segment of the test's, and buffers for it.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "runtime/cupti/decode.h"
#include "tests/unit/runtime/probe/test_segment.h"

namespace lockstep::cupti {

inline constexpr std::uint64_t kLow = 1'000'000, kHigh = 1'000'000'000;

// Lengths of records by CUPTI's version, from the headers of each.
inline std::uint32_t LengthOf(std::uint32_t kind, std::uint32_t version) {
  switch (kind) {
    case 10:
      return version >= 130000 ? 216
             : version >= 19   ? 208
             : version >= 18   ? 200
             : version >= 17   ? 176
             : version >= 14   ? 168
             : version >= 13   ? 160
                               : 144;
    case 1:
      return version >= 130000 ? 96 : version >= 18 ? 88 : version >= 14 ? 80 : version >= 13 ? 72 : 64;
    case 2:
      return version >= 18 ? 88 : version >= 14 ? 80 : version >= 13 ? 72 : 64;
    case 22:
      return version >= 18 ? 96 : version >= 14 ? 88 : version >= 13 ? 80 : 72;
    case 4:
    case 5:
      return 40;
    case 8:
      return version >= 130000 ? 184 : 144;
    case 9:
      return version >= 130000 ? 32 : 16;
    case 17:
      return version >= 26 ? 56 : 40;
    case 36:
    case 38:
      return version >= 26 ? 56 : kind == 36 ? 24 : 40;
    case 37:
      return 24;
    case 49:
      return version >= 18 ? 128 : 112;
    case 53:
      return version >= 26 ? 56 : 0;
    case 51:
      return version >= 130000 ? 56 : 48;
    case 11:
      return 32;  // NAME: known to CUPTI, not to us.
    default:
      return 0;
  }
}

// What the library of that version does.
inline std::uint32_t g_walked_version = 0;
inline int WalkVersion(std::uint8_t* buffer, std::size_t valid, AnyRecord** record) {
  std::size_t at = 0;
  if (*record != nullptr)
    at = static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(*record) - buffer) +
         LengthOf((*record)->kind, g_walked_version);
  if (at + 4 > valid) return kMaxLimitReached;
  std::uint32_t kind;
  std::memcpy(&kind, buffer + at, sizeof kind);
  const std::uint32_t bytes = LengthOf(kind, g_walked_version);
  if (bytes == 0) return kInvalidKind;
  if (valid - at < bytes) return kMaxLimitReached;
  *record = reinterpret_cast<AnyRecord*>(buffer + at);
  return kSuccess;
}

inline int TestName(int domain, std::uint32_t id, const char** name) {
  static const std::map<std::pair<int, std::uint32_t>, const char*> kNames = {
      {{2, 211}, "cudaLaunchKernel_v7000"},      {{2, 13}, "cudaGetDevice_v3020"},
      {{2, 165}, "cudaDeviceSynchronize_v3020"}, {{1, 307}, "cuLaunchKernel"},
      {{2, 41}, "cudaMemcpyAsync_v3020"},        {{2, 311}, "cudaGraphLaunch_v10000"}};
  const auto found = kNames.find({domain, id});
  *name = found != kNames.end() ? found->second : "INVALID";
  return id < 1000 ? kSuccess : kInvalidParameter;
}

class DecodeTest : public ::testing::Test {
 protected:
  static probe::TestSegment& Segment() {
    static probe::TestSegment& segment = *[] {
      probe::TestSegmentOptions options;
      options.bytes = std::uint64_t{64} << 20;
      options.main_ring_slots = 1 << 16;
      auto* made = new probe::TestSegment(options);
      unlink(made->path().c_str());
      lockstep_probe.segment_bytes = options.bytes;
      lockstep_probe.clock.mode = ClockMode::kTsc;
      lockstep_probe.segment = &made->header();
      return made;
    }();
    return segment;
  }

  // This process's.
  static ProcessWindow& Own() { return Segment().view().windows()[0]; }

  void SetUp() override {
    Segment();
    ring::Page();
    Own().recording = 1;
    Own().switches.count = 0;
    Records();
    output_ = std::make_unique<Output>();
  }
  // version 0: the real library, if there is one.
  bool Use(std::uint32_t version) {
    api_ = {};
    api_.version = version;
    api_.get_callback_name = TestName;
    if (version == 0) {
#ifdef LOCKSTEP_REAL_CUPTI
      void* library = dlopen(LOCKSTEP_REAL_CUPTI, RTLD_NOW | RTLD_LOCAL);
      if (library == nullptr) return false;
      api_.get_next_record =
          reinterpret_cast<decltype(api_.get_next_record)>(dlsym(library, "cuptiActivityGetNextRecord"));
      reinterpret_cast<int (*)(std::uint32_t*)>(dlsym(library, "cuptiGetVersion"))(&api_.version);
#else
      return false;
#endif
    } else {
      g_walked_version = version;
      api_.get_next_record = WalkVersion;
    }
    MeasureRecords(api_, sizes_);
    decoder_ = std::make_unique<Decoder>(api_, sizes_, *output_);
    decoder_->Believe(kLow, kHigh);
    decoder_->windows().Follow(Own());
    return true;
  }
  template <typename Record>
  void Add(const Record& record) {
    const std::uint32_t bytes = sizes_.bytes[record.kind];
    std::vector<std::uint8_t> whole(bytes);
    std::memcpy(whole.data(), static_cast<const void*>(&record), std::min<std::size_t>(bytes, sizeof record));
    buffer_.insert(buffer_.end(), whole.begin(), whole.end());
  }
  std::uint64_t Decode() {
    // Exactly as large as it is valid, so that a sanitizer sees what reads beyond.
    const auto copy = std::make_unique<std::uint8_t[]>(buffer_.size());
    std::memcpy(copy.get(), buffer_.data(), buffer_.size());
    const std::uint64_t records = decoder_->Buffer(copy.get(), buffer_.size());
    buffer_.clear();
    output_->WriteLosses();
    return records;
  }
  // What was written since the last call, strings kept by id.
  std::vector<probe::TestRecord> Records() {
    std::vector<probe::TestRecord> some;
    for (probe::TestRecord& record : Segment().Read(0, true)) {
      if (record.kind == RecordKind::kString) strings_[record.As<StringRecord>().id] = record.Text();
      if (record.kind == RecordKind::kString || record.kind == RecordKind::kThreadName ||
          record.kind == RecordKind::kGap)
        continue;
      some.push_back(std::move(record));
    }
    return some;
  }
  std::map<std::string, std::uint64_t> Losses(const std::vector<probe::TestRecord>& records) {
    std::map<std::string, std::uint64_t> losses;
    for (const probe::TestRecord& record : records)
      if (record.kind == RecordKind::kLoss) {
        const auto loss = record.As<LossRecord>();
        losses[strings_[loss.name] + (loss.detail != 0 ? ": " + strings_[loss.detail] : "")] += loss.count;
      }
    return losses;
  }

  Api api_{};
  RecordSizes sizes_{};
  std::unique_ptr<Output> output_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<std::uint8_t> buffer_;
  static inline std::map<std::uint32_t, std::string> strings_;
};

inline KernelRecord AKernel() {
  KernelRecord kernel{};
  kernel.kind = kKindConcurrentKernel;
  kernel.registers_per_thread = 48;
  kernel.start = 2'000'000;
  kernel.end = 2'500'000;
  kernel.device = 3;
  kernel.context = 1;
  kernel.stream = 21;
  const std::int32_t grid[3] = {80, 2, 1}, block[3] = {256, 1, 4};
  std::memcpy(kernel.grid, grid, sizeof grid);
  std::memcpy(kernel.block, block, sizeof block);
  kernel.static_shared_bytes = 1024;
  kernel.dynamic_shared_bytes = 4096;
  kernel.local_bytes_per_thread = 16;
  kernel.correlation = 4711;
  kernel.name = "_Z4gemmPKfPf";
  kernel.graph_node = 0x500000007;
  kernel.graph = 9;
  kernel.cluster[0] = 2;
  kernel.cluster[1] = kernel.cluster[2] = 1;
  return kernel;
}

}  // namespace lockstep::cupti
