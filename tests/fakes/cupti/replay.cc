// lockstep run -- gpu_replay FILE...: recorded CUPTI buffers (runtime/cupti/raw_file.h) as a process of a run.

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>

#include "runtime/cupti/callbacks.h"
#include "runtime/cupti/decode.h"
#include "runtime/cupti/raw_file.h"

namespace lockstep::cupti {
namespace {

constexpr std::int64_t kMostSpanNs = 60'000'000'000;
constexpr std::int64_t kMarginNs = 20'000'000;
constexpr std::uint32_t kMostTexts = 1 << 20;

// Of the file being replayed; functions are asked for through a pointer without a context.
const char* g_functions[2][kMostCallbacks];

int FunctionName(int domain, std::uint32_t id, const char** name) {
  if (domain < 1 || domain > 2 || id >= kMostCallbacks || g_functions[domain - 1][id] == nullptr)
    return kInvalidParameter;
  *name = g_functions[domain - 1][id];
  return kSuccess;
}

struct File {
  const std::uint8_t* data = nullptr;
  std::size_t bytes = 0;
  const RawHeader& header() const { return *reinterpret_cast<const RawHeader*>(data); }
};

// Calls back with each whole item; stops at the first that is not.
template <typename OnItem>
void ForItems(const File& file, OnItem&& on_item) {
  std::size_t at = file.header().header_bytes;
  while (file.bytes - at >= sizeof(RawBlock)) {
    RawBlock block;
    memcpy(&block, file.data + at, sizeof block);
    at += sizeof block;
    const std::size_t end = at + std::min<std::uint64_t>(block.bytes, file.bytes - at);
    while (end - at >= sizeof(RawItem)) {
      RawItem item;
      memcpy(&item, file.data + at, sizeof item);
      const std::size_t padded = (std::size_t{item.bytes} + 7) & ~std::size_t{7};
      if (padded > end - at - sizeof item) return;
      on_item(item, file.data + at + sizeof item);
      at += sizeof item + padded;
    }
    if (end - at != 0 || end == file.bytes) return;
  }
}

RawMoment LastMoment(const File& file) {
  RawMoment last = file.header().begin;
  std::size_t at = file.header().header_bytes;
  while (file.bytes - at >= sizeof(RawBlock)) {
    RawBlock block;
    memcpy(&block, file.data + at, sizeof block);
    if (block.bytes > file.bytes - at - sizeof block) break;
    last = block.end;
    at += sizeof block + block.bytes;
  }
  return last;
}

const char* OpenFile(const char* path, File& file) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "cannot be opened";
  struct stat info {};
  void* data = MAP_FAILED;
  if (fstat(fd, &info) == 0 && static_cast<std::size_t>(info.st_size) >= sizeof(RawHeader))
    data = mmap(nullptr, static_cast<std::size_t>(info.st_size), PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (data == MAP_FAILED) return "is no recording of CUPTI's buffers";
  file = {static_cast<const std::uint8_t*>(data), static_cast<std::size_t>(info.st_size)};
  const RawHeader& header = file.header();
  if (header.magic != kRawMagic) return "is no recording of CUPTI's buffers";
  if (header.version != kRawVersion || header.header_bytes < sizeof(RawHeader) || header.header_bytes % 8 != 0 ||
      header.header_bytes > file.bytes)
    return "is of another version";
  return nullptr;
}

void SleepNs(std::int64_t ns) {
  timespec wait{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  while (nanosleep(&wait, &wait) != 0) {
  }
}

bool IsText(const std::uint8_t* text, std::uint32_t bytes) { return bytes != 0 && text[bytes - 1] == 0; }

// Writes the records of a file into the calling thread's ring as if the GPU had run them from now on;
// returns once their last moment is past, so it takes as long as the recording did (at most a minute).
// Their number, or -1 and a line on stderr.
long long Replay(const char* path) {
  File file;
  const char* problem = OpenFile(path, file);
  ProcessEntry* process = lockstep_probe.segment != nullptr ? lockstep_process() : nullptr;
  if (problem == nullptr && process == nullptr) problem = "is replayed under lockstep run only";
  const char** texts = static_cast<const char**>(FreshMemory(sizeof(char*) * kMostTexts));
  if (problem == nullptr && texts == nullptr) problem = "needs more memory";
  if (problem != nullptr) {
    std::fprintf(stderr, "lockstep: %s %s\n", path, problem);
    return -1;
  }
  memset(g_functions, 0, sizeof g_functions);
  const RawMoment begin = file.header().begin, end = LastMoment(file), here = RawNow();
  const std::int64_t span_ns = std::clamp<std::int64_t>(end.raw_ns - begin.raw_ns, 0, kMostSpanNs);
  // The first records may be from before the recorder was ready: they belong into this run, too.
  SleepNs(span_ns + 2 * kMarginNs);
  const RawMoment now = RawNow();

  // Their ticks and ours may be of different length.
  const auto rate = [](const RawMoment& from, const RawMoment& to) {
    return to.raw_ns > from.raw_ns && to.ticks > from.ticks
               ? static_cast<double>(to.ticks - from.ticks) / static_cast<double>(to.raw_ns - from.raw_ns)
               : 1.0;
  };
  TimeScale scale;
  scale.foreign = true;
  const bool realtime = file.header().realtime != 0;
  scale.from = realtime ? static_cast<std::uint64_t>(begin.realtime_ns) : begin.ticks;
  scale.ticks = here.ticks + static_cast<std::uint64_t>(rate(here, now) * static_cast<double>(kMarginNs));
  scale.ticks_per_unit = rate(here, now) / (realtime ? 1.0 : rate(begin, end));

  static Api api;
  api = {};
  api.version = file.header().cupti_version;
  api.get_callback_name = FunctionName;
  static const RecordSizes kNone{};
  static Output output;
  alignas(Decoder) static std::byte memory[sizeof(Decoder)];
  Decoder& decoder = *new (memory) Decoder(api, kNone, output);
  decoder.Scale(scale);
  decoder.windows().Follow(*lockstep_probe.window.load(std::memory_order_acquire));
  process->cupti_used.store(1);
  process->cupti_state.store(1);
  long long records = 0;
  ForItems(file, [&](const RawItem& item, const std::uint8_t* data) {
    const auto* text = reinterpret_cast<const char*>(data);
    if (item.type == kRawText && item.number < kMostTexts && IsText(data, item.bytes)) texts[item.number] = text;
    if (item.type == kRawFunction && IsText(data, item.bytes)) {
      const std::uint32_t domain = item.number >> 24, id = item.number & 0xffffff;
      if (domain - 1 < 2 && id < kMostCallbacks) g_functions[domain - 1][id] = text;
    }
    alignas(8) std::uint8_t record[1024];
    if (item.type != kRawRecord || item.bytes < 8 || item.bytes > sizeof record) return;
    memcpy(record, data, item.bytes);
    std::uint32_t kind;
    memcpy(&kind, record, sizeof kind);
    if (const std::uint32_t at = NameOffset(kind); at != 0) {
      std::uint64_t number = 0;
      if (at + sizeof number > item.bytes) return;
      memcpy(&number, record + at, sizeof number);
      const char* name = number < kMostTexts ? texts[number] : nullptr;
      memcpy(record + at, &name, sizeof name);
    }
    decoder.Record(record, item.bytes);
    records += 1;
  });
  decoder.Round(true);
  output.WriteLosses();
  process->gpu_flushed_ticks.store(ring::Ticks());
  munmap(static_cast<void*>(texts), sizeof(char*) * kMostTexts);
  return records;
}

}  // namespace
}  // namespace lockstep::cupti

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fputs("usage: lockstep run -- gpu_replay FILE...\n", stderr);
    return 2;
  }
  int result = 0;
  for (int i = 1; i < argc; ++i) {
    const long long records = lockstep::cupti::Replay(argv[i]);
    if (records < 0) result = 1;
    std::printf("%s: %lld records\n", argv[i], records);
  }
  return result;
}
