#pragma once
// A segment as the agent would make it, and a reader of what the probe wrote into
// it. For tests of the probe without an agent.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core/mpi_ops.h"
#include "core/ring_layout.h"

namespace lockstep::probe {

struct TestRecord {
  RecordKind kind;
  std::uint8_t flags;
  std::uint32_t ring, process;
  std::vector<std::byte> bytes;  // The whole record.
  template <typename T>
  T As() const {
    T value;
    std::memcpy(static_cast<void*>(&value), bytes.data(), sizeof value);
    return value;
  }
  std::string Text() const {
    const auto head = As<StringRecord>();
    return {reinterpret_cast<const char*>(bytes.data()) + sizeof head, head.bytes};
  }
};

struct TestSegmentOptions {
  std::uint64_t bytes = std::uint64_t{32} << 20;
  std::uint32_t main_ring_slots = 1 << 14, other_ring_slots = 1 << 12;
  bool recording = true;
  ClockMode mode = ClockMode::kTsc;
  ClockDistortion distortion;
  bool blocked = false;                           // Waits of watched threads, which other tests do not count on.
  std::uint64_t ready_bytes = ~std::uint64_t{0};  // At most `bytes`.
};

// As the agent switches it, for every process and those to come.
inline void Record(const SegmentView& view, bool on) {
  for (std::uint32_t i = 0; i <= kMaxProcesses; ++i) {
    TurnState(view.windows()[i], on);
    FollowState(view.windows()[i]);
  }
}

class TestSegment {
 public:
  using Options = TestSegmentOptions;

  explicit TestSegment(const Options& options = {}, std::string path = {}) {
    if (path.empty()) {
      std::string name = "/dev/shm/lockstep-test-XXXXXX";
      const int made = mkstemp(name.data());
      close(made);
      path = name;
    }
    path_ = path;
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(options.bytes)) != 0) std::abort();
    const std::uint64_t ready = options.ready_bytes < options.bytes ? options.ready_bytes : options.bytes;
    Map(fd, options.bytes);
    SegmentHeader& header = view_.header();
    header.magic = kSegmentMagic;
    header.version = kSegmentVersion;
    header.header_bytes = sizeof(SegmentHeader);
    header.segment_bytes = options.bytes;
    header.agent_pid = getpid();
    header.run_hash = 42;
    header.slot_rank = -1;
    header.main_ring_slots = options.main_ring_slots;
    header.other_ring_slots = options.other_ring_slots;
    header.clock_mode = options.mode;
    header.distortion = options.distortion;
    header.blocked_off = options.blocked ? 0 : 1;
    Record(view_, options.recording);
    header.next_free = kArenaOffset;
    header.ready_bytes = ready;
  }
  // An existing one, as its file says.
  static TestSegment Open(const std::string& path) { return TestSegment(path, 0); }
  ~TestSegment() {
    if (view_.base != nullptr) munmap(view_.base, view_.bytes);
    if (owner_) unlink(path_.c_str());
  }
  TestSegment(const TestSegment&) = delete;
  TestSegment& operator=(const TestSegment&) = delete;

  const std::string& path() const { return path_; }
  void Keep() { owner_ = false; }  // Do not delete the file.
  SegmentView& view() { return view_; }
  SegmentHeader& header() { return view_.header(); }

  // Committed records of one ring that are not consumed yet; consumes them if told.
  std::vector<TestRecord> Read(std::uint32_t index, bool consume = false) {
    std::vector<TestRecord> records;
    const RingEntry& entry = view_.rings()[index];
    if (entry.offset == 0) return records;
    RingHeader& ring = view_.ring(entry.offset);
    const std::byte* slots = view_.slots(entry.offset);
    std::uint64_t at = ring.tail.load();
    const std::uint64_t head = ring.head.load(std::memory_order_acquire);
    while (at < head) {
      RecordHead first;
      std::memcpy(static_cast<void*>(&first), slots + (at & ring.mask) * kSlotBytes, sizeof first);
      if (first.slots == 0) Broken("a record of no slots", at, head);
      TestRecord record{first.kind, first.flags, index, entry.process, {}};
      for (std::uint32_t i = 0; i < first.slots; ++i) {
        const std::byte* slot = slots + ((at + i) & ring.mask) * kSlotBytes;
        record.bytes.insert(record.bytes.end(), slot, slot + kSlotBytes);
      }
      at += first.slots;
      records.push_back(std::move(record));
    }
    if (at != head) Broken("a record that reaches beyond the head", at, head);
    if (consume) ring.tail.store(at, std::memory_order_release);
    return records;
  }
  std::vector<TestRecord> ReadAll() {
    std::vector<TestRecord> all;
    for (std::uint32_t i = 0; i < header().rings_used; ++i)
      for (TestRecord& record : Read(i)) all.push_back(std::move(record));
    return all;
  }
  std::vector<TestRecord> ReadKind(RecordKind kind) {
    std::vector<TestRecord> some;
    for (TestRecord& record : ReadAll())
      if (record.kind == kind) some.push_back(std::move(record));
    return some;
  }

 private:
  [[noreturn]] static void Broken(const char* what, std::uint64_t at, std::uint64_t head) {
    std::fprintf(stderr, "ring: %s at slot %llu of %llu\n", what, static_cast<unsigned long long>(at),
                 static_cast<unsigned long long>(head));
    std::abort();
  }
  TestSegment(const std::string& path, int) : path_(path), owner_(false) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0) std::abort();
    Map(fd, static_cast<std::uint64_t>(info.st_size));
  }
  void Map(int fd, std::uint64_t bytes) {
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) std::abort();
    close(fd);
    view_ = {static_cast<std::byte*>(base), bytes};
  }

  std::string path_;
  bool owner_ = true;
  SegmentView view_;
};

}  // namespace lockstep::probe
