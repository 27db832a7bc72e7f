// Makes a segment and prints what a job wrote into it, one record a line, for
// tests that run real MPI jobs without an agent.
//
//   segment_tool make PATH [raw]     segment_tool dump PATH

#include <cstdio>
#include <cstring>

#include "tests/unit/runtime/probe/test_segment.h"

namespace {

using namespace lockstep;

const char* OpName(std::uint16_t op) {
  const MpiOpInfo* info = FindMpiOp(op);
  return info != nullptr ? info->name.data() : "?";
}

void Print(const probe::TestRecord& record) {
  std::printf("p%u t%u ", record.process, record.ring);
  switch (record.kind) {
    case RecordKind::kMpi: {
      const auto r = record.As<MpiRecord>();
      std::printf("mpi %s comm=%d seq=%u bytes=%llu count=%u dtype=%u peer=%d tag=%d flags=%u request=%llx ns=%llu\n",
                  OpName(r.op), static_cast<int>(r.comm), r.seq, static_cast<unsigned long long>(r.bytes), r.count,
                  r.dtype, r.peer, r.tag, record.flags, static_cast<unsigned long long>(r.request),
                  static_cast<unsigned long long>(r.end_ticks - r.begin_ticks));
      return;
    }
    case RecordKind::kCompletion: {
      const auto r = record.As<CompletionRecord>();
      std::printf("completion request=%llx source=%d tag=%d bytes=%llu index=%u flags=%u\n",
                  static_cast<unsigned long long>(r.request), r.source, r.tag, static_cast<unsigned long long>(r.bytes),
                  r.index, record.flags);
      return;
    }
    case RecordKind::kPoll: {
      const auto r = record.As<PollRecord>();
      std::printf("poll %s calls=%u request=%llx\n", OpName(r.op_and_request & 0xfff), r.calls,
                  static_cast<unsigned long long>(r.op_and_request >> 12));
      return;
    }
    case RecordKind::kComm: {
      const auto r = record.As<CommRecord>();
      std::printf("comm %u id=%llx parent=%llx size=%u rank=%d first=%d stride=%d flags=%u members=", r.comm,
                  static_cast<unsigned long long>(r.global_id), static_cast<unsigned long long>(r.parent_id), r.size,
                  r.rank, r.first_world_rank, r.stride, record.flags);
      for (std::uint32_t i = 0; i < r.explicit_members; ++i) {
        std::int32_t member = 0;
        std::memcpy(&member, record.bytes.data() + sizeof r + i * sizeof member, sizeof member);
        std::printf("%s%d", i != 0 ? "," : "", member);
      }
      std::printf("\n");
      return;
    }
    case RecordKind::kString:
    case RecordKind::kThreadName:
      std::printf("text %u '%s'\n", record.As<StringRecord>().id, record.Text().c_str());
      return;
    case RecordKind::kStep:
      std::printf("step %lld cpu=%lld flags=%u\n", static_cast<long long>(record.As<StepRecord>().index),
                  static_cast<long long>(record.As<StepRecord>().cpu_ns), record.flags);
      return;
    case RecordKind::kRange:
    case RecordKind::kMark:
      std::printf("range name=%u depth=%u flags=%u\n", record.As<RangeRecord>().name, record.As<RangeRecord>().depth,
                  record.flags);
      return;
    case RecordKind::kCpu:
      std::printf("cpu ticks=%llu cpu_ns=%lld\n", static_cast<unsigned long long>(record.As<CpuRecord>().ticks),
                  static_cast<long long>(record.As<CpuRecord>().cpu_ns));
      return;
    default:
      std::printf("kind %d\n", static_cast<int>(record.kind));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (std::strcmp(argv[1], "make") == 0) {
    probe::TestSegmentOptions options;
    if (argc > 3 && std::strcmp(argv[3], "raw") == 0) options.mode = ClockMode::kRaw;
    if (argc > 3 && std::strcmp(argv[3], "off") == 0) options.recording = false;
    probe::TestSegment(options, argv[2]).Keep();
    return 0;
  }
  probe::TestSegment segment = probe::TestSegment::Open(argv[2]);
  for (std::uint32_t i = 0; i < segment.header().processes_used; ++i) {
    const ProcessEntry& process = segment.view().processes()[i];
    std::printf("process %u rank=%d source=%d level=%d self_test=%d initialized=%d finalized=%d no_ring=%llu exe=%s\n",
                i, process.world_rank.load(), process.rank_source.load(), process.mpi_thread_level.load(),
                process.self_test.load(), process.mpi_initialized.load(), process.mpi_finalized.load(),
                static_cast<unsigned long long>(process.dropped_no_ring.load()), process.exe);
  }
  for (const probe::TestRecord& record : segment.ReadAll()) Print(record);
  return 0;
}
