#include "trace/nccl/decode_nccl.h"

#include <algorithm>

#include "core/collective.h"
#include "trace/decode/process_decoder.h"
#include "trace/nccl/nccl_operations.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint8_t kCommEnded = 64, kCommNameOnly = 128, kCommSource = 0x3f;
constexpr std::uint8_t kNcclCommKind = schema::CommKind::kNccl;

// Which source is preferred for a communicator's id: NCCL's own value before one that was derived from calls.
int Trust(NcclSource source) { return source == NcclSource::kInterposed ? 0 : source == NcclSource::kNvtx ? 1 : 2; }

}  // namespace

Interval NcclRecords::Add(RecordKind kind, std::span<const std::byte> bytes, const RecordContext& context) {
  switch (kind) {
    case RecordKind::kNcclBegin:
      return OnBegin(LoadRecord<NcclBeginRecord>(bytes), context);
    case RecordKind::kNcclEnd:
      return OnEnd(LoadRecord<NcclEndRecord>(bytes), context);
    case RecordKind::kNcclCall:
      return OnCall(LoadRecord<NcclCallRecord>(bytes), context);
    default:
      return OnComm(LoadRecord<NcclCommRecord>(bytes), context);
  }
}

std::uint32_t NcclRecords::CommRow(std::uint32_t number, std::int64_t ns) {
  if (number == kNoComm) return kNone;
  const auto at = comms_.find(number);
  if (at != comms_.end()) return at->second.row;
  const auto row = static_cast<std::uint32_t>(tables_.comms.rows());
  comms_[number] = {row, NcclSource::kInterposed, false};
  tables_.comms.Append({.comm = row,
                        .global_id = 0,
                        .parent_id = 0,
                        .size = 0,
                        .rank = -1,
                        .kind = kNcclCommKind,
                        .unidentified = 1,
                        .first_world_rank = -1,
                        .stride = 0,
                        .name = kNone,
                        .begin_ns = ns,
                        .end_ns = kNoTime});
  return row;
}

Interval NcclRecords::OnBegin(const NcclBeginRecord& record, const RecordContext& context) {
  const std::int64_t ns = context.clock.Ns(record.ticks);
  events_.push_back({.id = record.id,
                     .parent = record.parent,
                     .group = record.group,
                     .seq = record.seq,
                     .count = record.count,
                     .stream = record.stream,
                     .buffer = record.buffer,
                     .begin_ns = ns,
                     .end_ns = kNoTime,
                     .comm = CommRow(record.comm, ns),
                     .thread = context.thread,
                     .algorithm = context.Text(record.algorithm),
                     .protocol = context.Text(record.protocol),
                     .name = context.Text(record.name),
                     .peer = record.peer,
                     .kind = static_cast<NcclEvent>(record.head.flags),
                     .function = record.function,
                     .dtype = record.dtype,
                     .channels = record.channels,
                     .captured = (record.flags & kNcclCaptured) != 0});
  return {ns, ns};
}

Interval NcclRecords::OnEnd(const NcclEndRecord& record, const RecordContext& context) {
  const std::int64_t ns = context.clock.Ns(record.ticks);
  endings_.push_back({record.id, record.value, ns});
  return {ns, ns};
}

Interval NcclRecords::OnCall(const NcclCallRecord& record, const RecordContext& context) {
  const std::int64_t begin = context.clock.Ns(record.begin_ticks);
  const std::int64_t end = std::max(begin, context.clock.Ns(record.end_ticks));
  calls_.push_back({.begin_ns = begin,
                    .end_ns = end,
                    .count = record.count,
                    .stream = record.stream,
                    .buffer = record.buffer,
                    .seq = record.seq,
                    .comm = CommRow(record.comm, begin),
                    .thread = context.thread,
                    .name = context.Text(record.name),
                    .peer = record.peer,
                    .result = record.result,
                    .source = static_cast<NcclSource>(record.head.flags),
                    .function = record.function,
                    .direction = record.direction,
                    .dtype = record.dtype,
                    .reduction = record.reduction});
  return {begin, end};
}

Interval NcclRecords::OnComm(const NcclCommRecord& record, const RecordContext& context) {
  const std::int64_t ns = context.clock.Ns(record.ticks);
  if (record.comm == kNoComm) return {ns, ns};
  schema::Comms& comms = tables_.comms;
  const std::uint8_t flags = record.head.flags;
  // A number that is used again now refers to another communicator.
  if (const auto at = comms_.find(record.comm);
      at != comms_.end() && at->second.ended && (flags & (kCommEnded | kCommNameOnly)) == 0)
    comms_.erase(at);
  // Plugin and interposition may give one communicator two numbers; its id is the same.
  if (record.id != 0 && (flags & (kCommEnded | kCommNameOnly)) == 0 && !comms_.contains(record.comm))
    for (const auto& [number, known] : comms_)
      if (!known.ended && comms.global_id[known.row] == record.id &&
          (record.rank < 0 || comms.rank[known.row] < 0 || comms.rank[known.row] == record.rank)) {
        const NcclComm same = known;
        comms_[record.comm] = same;
        break;
      }
  const std::uint32_t row = CommRow(record.comm, ns);
  NcclComm& comm = comms_[record.comm];
  if (const std::uint32_t name = context.Text(record.name); name != kNone) comms.name[row] = name;
  if ((flags & kCommNameOnly) != 0) return {ns, ns};
  if ((flags & kCommEnded) != 0) {
    comm.ended = true;
    comms.end_ns[row] = std::max(comms.end_ns[row], ns);  // kNoTime is less than any time.
    return {ns, ns};
  }
  const auto source = static_cast<NcclSource>(flags & kCommSource);
  if (record.id != 0 && (comms.global_id[row] == 0 || Trust(source) > Trust(comm.id_from))) {
    comms.global_id[row] = record.id;
    comms.unidentified[row] = 0;
    comm.id_from = source;
  }
  if (record.parent != 0) comms.parent_id[row] = record.parent;
  if (record.size != 0) comms.size[row] = record.size;
  if (record.rank >= 0) comms.rank[row] = record.rank;
  comms.begin_ns[row] = std::min(comms.begin_ns[row], ns);
  return {ns, ns};
}

void NcclRecords::PairEnds() {
  std::unordered_map<std::uint64_t, std::uint32_t> begun;
  begun.reserve(events_.size());
  for (std::uint32_t i = 0; i < events_.size(); ++i) begun.emplace(events_[i].id, i);
  for (const Ending& ending : endings_) {
    const auto at = begun.find(ending.id);
    if (at == begun.end()) {
      ++orphans_;
      continue;
    }
    NcclEventRow& event = events_[at->second];
    if (event.end_ns != kNoTime) continue;
    event.end_ns = std::max(event.begin_ns, ending.ns);
    event.end_value = ending.value;
  }
  endings_ = {};
}

}  // namespace lockstep::trace
