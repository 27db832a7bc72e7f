// cupti_decode [ROUNDS]: records per second and core, from CUPTI's buffers to the ring, rows of a table.
// The records are a training step's: a launch and a kernel each, 60 kernels with mangled names of PyTorch's length,
// 20 geometries, a copy, an event and a stream's wait per twenty.

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cupti/buffers.h"
#include "runtime/cupti/decode.h"
#include "tests/unit/runtime/probe/test_segment.h"

namespace {

using namespace lockstep;
using namespace lockstep::cupti;

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;

// Stand-ins where there is no libcupti: as cheap as can be.
constexpr std::uint32_t kLengths[] = {0, 96, 88, 0, 40, 40, 0, 0, 184, 32, 216};
std::uint32_t LengthOf(std::uint32_t kind) { return kind < std::size(kLengths) ? kLengths[kind] : 56; }
int Walk(std::uint8_t* buffer, std::size_t valid, AnyRecord** record) {
  std::size_t at = 0;
  if (*record != nullptr)
    at = static_cast<std::size_t>(reinterpret_cast<std::uint8_t*>(*record) - buffer) + LengthOf((*record)->kind);
  if (at + 4 > valid) return kMaxLimitReached;
  auto* next = reinterpret_cast<AnyRecord*>(buffer + at);
  if (valid - at < LengthOf(next->kind)) return kMaxLimitReached;
  *record = next;
  return kSuccess;
}
int Name(int, std::uint32_t id, const char** name) {
  *name = id == 211 ? "cudaLaunchKernel_v7000" : "cudaEventRecord_v3020";
  return kSuccess;
}

// Nanoseconds per record for handing a buffer out, taking it back and emptying it.
double Handling(std::size_t& bytes, double record_bytes) {
  static BufferPool pool;
  static bool limited = false;
  if (!limited) pool.Limit(std::size_t{256} << 20);
  limited = true;
  pool.Pace(bytes * 4, 1'000'000'000);
  constexpr int kRounds = 2000;
  double best = 1e9;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kRounds; ++i) {
      std::uint8_t* memory = pool.Take(1, nullptr, false, bytes);
      memory[0] = 1;
      pool.Filled(memory, bytes, nullptr, 0);
      pool.Recycle(pool.TakeFilled());
    }
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kRounds);
  }
  return best * 1e9 / (static_cast<double>(bytes) / record_bytes);
}

double Seconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 40;
  probe::TestSegmentOptions options;
  options.bytes = std::uint64_t{128} << 20;
  options.main_ring_slots = 1 << 18;
  // Never unmapped: the probe writes its last records when the process ends.
  probe::TestSegment& segment = *new probe::TestSegment(options);
  unlink(segment.path().c_str());
  lockstep_probe.segment_bytes = options.bytes;
  lockstep_probe.clock.mode = ClockMode::kTsc;
  lockstep_probe.segment = &segment.header();

  static Api api{};
  api.version = 130001;
  api.get_next_record = Walk;
  api.get_callback_name = Name;
  const char* library_name = "own iterator (no libcupti here)";
#ifdef LOCKSTEP_REAL_CUPTI
  if (void* library = dlopen(LOCKSTEP_REAL_CUPTI, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
    api.get_next_record = reinterpret_cast<decltype(api.get_next_record)>(dlsym(library, "cuptiActivityGetNextRecord"));
    api.get_callback_name = reinterpret_cast<decltype(api.get_callback_name)>(dlsym(library, "cuptiGetCallbackName"));
    library_name = "libcupti's iterator";
  }
#endif
  static RecordSizes sizes{};
  MeasureRecords(api, sizes);

  std::vector<std::string> names;
  for (int i = 0; i < 60; ++i)
    names.push_back("_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_12_GLOBAL__N_1" + std::to_string(i) +
                    std::string(140, 'x') + "EEvS4_");
  std::vector<std::uint8_t> buffer;
  std::uint64_t records = 0, time = 1'000'000;
  const auto add = [&](const auto& record) {
    std::vector<std::uint8_t> whole(sizes.bytes[record.kind]);
    std::memcpy(whole.data(), static_cast<const void*>(&record), std::min(whole.size(), sizeof record));
    buffer.insert(buffer.end(), whole.begin(), whole.end());
    records += 1;
  };
  for (std::uint32_t i = 0; buffer.size() + 1024 < kBufferBytes; ++i) {
    time += 2000;
    ApiRecord call{};
    call.kind = kKindRuntime;
    call.callback = 211;
    call.start = time;
    call.end = time + 900;
    call.thread = 4711;
    call.correlation = i + 1;
    add(call);
    KernelRecord kernel{};
    kernel.kind = kKindConcurrentKernel;
    kernel.start = time + 1000;
    kernel.end = time + 2500;
    kernel.grid[0] = static_cast<std::int32_t>(i % 20 + 1);
    kernel.block[0] = 256;
    kernel.correlation = i + 1;
    kernel.stream = 7;
    kernel.name = names[i % names.size()].c_str();
    add(kernel);
    if (i % 20 != 0) continue;
    CopyRecord copy{};
    copy.kind = kKindMemcpy;
    copy.copy_kind = 1;
    copy.start = time;
    copy.end = time + 5000;
    copy.bytes = 1 << 20;
    add(copy);
    EventRecord event{};
    event.kind = kKindCudaEvent;
    event.device_timestamp = time;
    add(event);
    SyncRecord sync{};
    sync.kind = kKindSynchronization;
    sync.type = 2;
    sync.start = sync.end = time;
    add(sync);
  }

  RingPage* page = ring::Page();
  static Output output;
  static Decoder decoder(api, sizes, output);
  decoder.Believe(1, time * 2);
  decoder.windows().Follow(segment.view().slot_window());
  double walk = 1e9, decode = 1e9;
  std::uint64_t checksum = 0, slots = 0;
  for (int i = 0; i < rounds; ++i) {
    auto begin = std::chrono::steady_clock::now();
    AnyRecord* record = nullptr;
    while (api.get_next_record(buffer.data(), buffer.size(), &record) == kSuccess) checksum += record->kind;
    walk = std::min(walk, Seconds(begin));
    page->header.tail.store(page->header.head.load());
    const std::uint64_t head = page->header.head.load();
    begin = std::chrono::steady_clock::now();
    decoder.Buffer(buffer.data(), buffer.size());
    decode = std::min(decode, Seconds(begin));
    slots = page->header.head.load() - head;
  }
  const auto count = static_cast<double>(records);
  char measured[64];
  const auto row = [](const char* what, const char* text, const char* target) {
    std::printf("  %-46s %-34s %s\n", what, text, target);
  };
  std::snprintf(measured, sizeof measured, "%.1f M records/s", count / walk / 1e6);
  row("walk alone", measured, library_name);
  std::snprintf(measured, sizeof measured, "%.1f M records/s", count / decode / 1e6);
  row("CUPTI buffers to ring records", measured, ">= 5 M records/s per core");
  std::snprintf(measured, sizeof measured, "%.0f B in the ring, %.0f from CUPTI",
                static_cast<double>(slots * kSlotBytes) / count, static_cast<double>(buffer.size()) / count);
  row("per record", measured, "");
  for (std::size_t bytes : {std::size_t{32} << 10, std::size_t{256} << 10, std::size_t{1} << 20}) {
    const double ns = Handling(bytes, static_cast<double>(buffer.size()) / count);
    char what[64];
    std::snprintf(what, sizeof what, "handling buffers of %zu KiB", bytes >> 10);
    std::snprintf(measured, sizeof measured, "%.2f ns per record", ns);
    row(what, measured, "");
  }
  return checksum == 0 || page->header.total_dropped != 0 ? 1 : 0;
}
