#pragma once
// Spool files made by hand, block by block, for the decoder's tests.

#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/mpi_ops.h"
#include "core/record.h"
#include "core/ring_layout.h"
#include "core/spool_layout.h"

namespace lockstep::trace {

// Records of one thread, as the probe would write them. Ticks are ns (raw clock).
class ThreadRecords {
 public:
  template <typename Record>
  ThreadRecords& Add(const Record& record) {
    const auto* at = reinterpret_cast<const std::byte*>(&record);
    bytes_.insert(bytes_.end(), at, at + sizeof record);
    return *this;
  }
  ThreadRecords& Text(RecordKind kind, std::uint32_t id, std::string_view text, std::uint8_t flags = 0) {
    const std::size_t slots = 1 + (text.size() + kSlotBytes - 1) / kSlotBytes;
    Add(StringRecord{
        {kind, flags, static_cast<std::uint16_t>(slots)}, id, static_cast<std::uint32_t>(text.size()), {}});
    bytes_.resize(bytes_.size() + (slots - 1) * kSlotBytes);
    std::memcpy(bytes_.data() + bytes_.size() - (slots - 1) * kSlotBytes, text.data(), text.size());
    return *this;
  }
  ThreadRecords& String(std::uint32_t id, std::string_view text) { return Text(RecordKind::kString, id, text); }
  struct Call {
    MpiOp op;
    std::uint64_t begin, end;
    std::uint64_t request = 0, bytes = 0;
    std::uint32_t count = 0;
    std::uint32_t comm = 0;
    std::int32_t peer = -1, tag = -1;
    std::uint32_t seq = 0;
    std::uint8_t flags = 0;
  };
  ThreadRecords& Mpi(const Call& c) {
    return Add(MpiRecord{{RecordKind::kMpi, c.flags, 2},
                         static_cast<std::uint16_t>(c.op),
                         0,
                         c.begin,
                         c.end,
                         c.request,
                         c.bytes,
                         c.count,
                         c.comm,
                         c.peer,
                         c.tag,
                         c.seq,
                         0});
  }
  ThreadRecords& Completion(std::uint64_t request, std::uint8_t flags = 0, std::int32_t source = -1,
                            std::int32_t tag = -1, std::uint64_t bytes = 0) {
    return Add(CompletionRecord{{RecordKind::kCompletion, flags, 1}, source, request, bytes, tag, 0});
  }
  ThreadRecords& Wait(std::uint64_t begin, std::uint64_t end, std::initializer_list<std::uint64_t> requests) {
    Mpi({.op = MpiOp::kWaitall, .begin = begin, .end = end, .bytes = requests.size(), .comm = kNoComm});
    for (const std::uint64_t request : requests) Completion(request);
    return *this;
  }
  ThreadRecords& Poll(MpiOp op, std::uint64_t request, std::uint64_t first, std::uint64_t last, std::uint32_t calls,
                      std::uint8_t flags = 0) {
    return Add(
        PollRecord{{RecordKind::kPoll, flags, 1}, calls, first, last, static_cast<std::uint64_t>(op) | request << 12});
  }
  ThreadRecords& Range(std::uint32_t name, std::uint64_t begin, std::uint64_t end, std::uint32_t depth) {
    return Add(RangeRecord{{RecordKind::kRange, 0, 1}, name, begin, end, static_cast<std::uint16_t>(depth), 0, 0});
  }
  ThreadRecords& Step(std::int64_t index, std::uint64_t ticks, std::int64_t cpu_ns, std::uint8_t flags = 0,
                      std::uint32_t others_cpu_us = 0) {
    return Add(StepRecord{{RecordKind::kStep, flags, 1}, others_cpu_us, index, ticks, cpu_ns});
  }
  ThreadRecords& Gap(std::uint64_t first, std::uint64_t last, std::uint64_t records) {
    return Add(GapRecord{{RecordKind::kGap, 0, 1}, 0, first, last, records});
  }
  ThreadRecords& World(std::uint32_t comm, std::uint64_t global_id, std::uint32_t size, std::int32_t rank,
                       std::uint64_t ticks = 1) {
    return Add(CommRecord{{RecordKind::kComm, 0, 2}, comm, global_id, 0, ticks, size, rank, 0, 1, 0, 0, 0});
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::uint64_t slots() const { return bytes_.size() / kSlotBytes; }

 private:
  std::vector<std::byte> bytes_;
};

class SpoolBuilder {
 public:
  SpoolBuilder& Block(SpoolKind kind, const void* payload, std::size_t bytes, std::uint32_t ring = 0,
                      std::uint32_t generation = 1, std::uint64_t first_slot = 0) {
    SpoolBlockHeader header{.magic = kSpoolMagic,
                            .version = kSpoolVersion,
                            .kind = kind,
                            .bytes = static_cast<std::uint32_t>(bytes),
                            .crc = 0,
                            .ring = ring,
                            .generation = generation,
                            .first_slot = first_slot};
    header.crc = Crc32c(Crc32c(0, &header, sizeof header), payload, bytes);
    block_offsets_.push_back(bytes_.size());
    const auto append = [&](const void* data, std::size_t size) {
      const auto* at = static_cast<const char*>(data);
      bytes_.insert(bytes_.end(), at, at + size);
    };
    append(&header, sizeof header);
    append(payload, bytes);
    return *this;
  }
  SpoolBuilder& Text(SpoolKind kind, std::string_view text) { return Block(kind, text.data(), text.size()); }
  SpoolBuilder& Meta(std::string_view lines = "clock_mode\traw\nrank\t0\n") { return Text(SpoolKind::kMeta, lines); }
  SpoolBuilder& Process(std::uint32_t index = 0, std::int64_t pid = 100, std::int32_t world_rank = 0,
                        std::uint64_t begin_ticks = 1, std::int64_t parent_pid = 0) {
    ProcessEntry entry{};
    entry.generation = 1;
    entry.pid = pid;
    entry.parent_pid = parent_pid;
    entry.begin_ticks = begin_ticks;
    entry.world_rank = world_rank;
    entry.rank_source = world_rank >= 0 ? 1 : 0;
    entry.mpi_used = 1;
    std::strcpy(entry.exe, "/bin/app");
    return Block(SpoolKind::kProcess, &entry, sizeof entry, index);
  }
  SpoolBuilder& Thread(std::uint32_t ring = 0, std::int64_t tid = 100, std::uint32_t process = 0) {
    const SpoolThread thread{tid, process, 1};
    return Block(SpoolKind::kThread, &thread, sizeof thread, ring);
  }
  // Appended behind what the ring has so far.
  SpoolBuilder& Records(const ThreadRecords& records, std::uint32_t ring = 0) {
    Block(SpoolKind::kRecords, records.bytes().data(), records.bytes().size(), ring, 1, next_slot_[ring]);
    next_slot_[ring] += records.slots();
    return *this;
  }
  SpoolBuilder& SkipSlots(std::uint64_t slots, std::uint32_t ring = 0) {
    next_slot_[ring] += slots;
    return *this;
  }
  SpoolBuilder& Snapshot(std::uint64_t ticks, std::int64_t raw_ns) {
    const ClockSnapshot snapshot{ticks, raw_ns, raw_ns, raw_ns, 20};
    return Block(SpoolKind::kSnapshots, &snapshot, sizeof snapshot);
  }
  SpoolBuilder& End(std::uint64_t ticks, int exit_code = 0, int signal = 0) {
    const SpoolEnd end{ticks, exit_code, signal, 7, 3};
    return Block(SpoolKind::kEnd, &end, sizeof end);
  }

  std::vector<char>& bytes() { return bytes_; }
  const std::vector<std::size_t>& block_offsets() const { return block_offsets_; }
  void Write(const std::string& path) const {
    std::remove(path.c_str());  // ext4 flushes a file that is cut to nothing and written again.
    std::ofstream(path, std::ios::binary).write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  }

 private:
  std::vector<char> bytes_;
  std::vector<std::size_t> block_offsets_;
  std::map<std::uint32_t, std::uint64_t> next_slot_;
};

}  // namespace lockstep::trace
