#pragma once
// What the NCCL source left in the rings, with the texts in place of their ids.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/gpu_records.h"
#include "tests/unit/runtime/probe/probe_child.h"

namespace lockstep::nccl {

inline constexpr char kGpuLibrary[] = LOCKSTEP_GPU_LIBRARY;

struct NcclRecords {
  explicit NcclRecords(probe::TestSegment& segment) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> texts;
    const auto text = [&](const probe::TestRecord& record, std::uint32_t id) {
      if (id == 0) return std::string();
      const auto at = texts.find({record.ring, id});
      EXPECT_TRUE(at != texts.end()) << "a text is told before its use";
      return at == texts.end() ? std::string("?") : at->second;
    };
    for (const probe::TestRecord& record : segment.ReadAll()) {
      switch (record.kind) {
        case RecordKind::kString:
          texts[{record.ring, record.As<StringRecord>().id}] = record.Text();
          break;
        case RecordKind::kNcclBegin: {
          const auto begin = record.As<NcclBeginRecord>();
          begins.push_back({begin, static_cast<NcclEvent>(record.flags), text(record, begin.name),
                            text(record, begin.algorithm), text(record, begin.protocol), record.ring});
          order.push_back({record.ring, 'b', record.flags, begin.id});
          break;
        }
        case RecordKind::kNcclEnd: {
          const auto end = record.As<NcclEndRecord>();
          ends.push_back(end);
          order.push_back({record.ring, 'e', record.flags, end.id});
          break;
        }
        case RecordKind::kNcclCall: {
          const auto call = record.As<NcclCallRecord>();
          calls.push_back({call, text(record, call.name), record.flags});
          break;
        }
        case RecordKind::kNcclComm: {
          const auto comm = record.As<NcclCommRecord>();
          comms.push_back({comm, text(record, comm.name), record.flags});
          break;
        }
        case RecordKind::kLoss: {
          const auto loss = record.As<LossRecord>();
          losses[text(record, loss.name)] += loss.count;
          details[text(record, loss.name)] = text(record, loss.detail);
          break;
        }
        case RecordKind::kFact:
          facts.push_back(record.Text());
          break;
        default:
          break;
      }
    }
  }

  struct Begin {
    NcclBeginRecord record;
    NcclEvent kind;
    std::string name, algorithm, protocol;
    std::uint32_t ring;
  };
  struct Call {
    NcclCallRecord record;
    std::string name;
    std::uint8_t flags;
  };
  struct Comm {
    NcclCommRecord record;
    std::string name;
    std::uint8_t flags;
  };
  struct Order {
    std::uint32_t ring;
    char what;
    std::uint8_t kind;
    std::uint64_t id;
  };

  std::vector<Begin> Of(NcclEvent kind) const {
    std::vector<Begin> some;
    for (const Begin& begin : begins)
      if (begin.kind == kind) some.push_back(begin);
    return some;
  }
  std::size_t EndsOf(std::uint64_t id) const {
    std::size_t n = 0;
    for (const NcclEndRecord& end : ends) n += end.id == id ? 1 : 0;
    return n;
  }
  std::vector<Call> CallsOf(const std::string& name) const {
    std::vector<Call> some;
    for (const Call& call : calls)
      if (call.name == name) some.push_back(call);
    return some;
  }

  std::vector<Begin> begins;
  std::vector<NcclEndRecord> ends;
  std::vector<Call> calls;
  std::vector<Comm> comms;
  std::vector<Order> order;
  std::map<std::string, std::uint64_t> losses;
  std::map<std::string, std::string> details;
  std::vector<std::string> facts;
};

}  // namespace lockstep::nccl
