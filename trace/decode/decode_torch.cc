// Works of PyTorch's c10d -> rows of collectives and p2p.
//
// A backend's thread carries one work at a time, from its begin to its end, so a collective is one of a blocking call
// on that thread. A message of gloo is completed by the thread that waits for it.

#include "core/data_type_name.h"
#include "core/torch_records.h"
#include "trace/decode/process_decoder.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

}  // namespace

void ProcessDecoder::OnTorchBegin(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<TorchBeginRecord>(bytes);
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  thread.life.Cover(ns, ns);
  const std::int64_t queued_ns = record.queued_ticks == 0 ? kNoTime : thread.clock.Ns(record.queued_ticks);
  const std::uint64_t bytes_moved = record.count * TextOfDataType(record.dtype).bytes;
  TorchWork work{0, record.message != kTorchCollective};
  if (work.message) {
    work.row = static_cast<std::uint32_t>(tables_.p2p.rows());
    tables_.p2p.Append(
        {.comm = CommRow(record.comm, ns),
         .direction = record.message == kTorchSend ? schema::Direction::kSend : schema::Direction::kReceive,
         .mode = schema::Code(CollectiveMode::kNonBlocking),
         .peer = record.peer,
         .peer_world_rank = -1,
         .tag = record.tag,
         .seq = 0,
         .thread = thread.row,
         .begin_ns = ns,
         .post_end_ns = ns,
         .last_incomplete_ns = kNoTime,
         .wait_begin_ns = kNoTime,
         .end_ns = kNoTime,
         .bytes = bytes_moved,
         .outcome = schema::RequestOutcome::kNeverCompleted,
         .call = kNone,
         .kernel = kNone,
         .caller = StackOf(record.stack)});
    if (record.message == kTorchReceive && record.peer < 0) torch_from_any_[record.work] = work.row;
  } else {
    work.row = static_cast<std::uint32_t>(tables_.collectives.rows());
    // With gloo, only the root passes the size of a scatter.
    const bool uneven = record.count == 0 && record.head.flags == schema::Code(CollectiveKind::kScatter);
    tables_.collectives.Append({.comm = CommRow(record.comm, ns),
                                .seq = record.seq,
                                .start = 0,
                                .kind = record.head.flags,
                                .mode = schema::Code(CollectiveMode::kBlocking),
                                .uneven = uneven,
                                .thread = thread.row,
                                .begin_ns = ns,
                                .post_end_ns = kNoTime,
                                .last_incomplete_ns = kNoTime,
                                .wait_begin_ns = kNoTime,
                                .end_ns = kNoTime,
                                .bytes = bytes_moved,
                                .count = record.count,
                                .dtype = record.dtype,
                                .root = record.peer,
                                .call = kNone,
                                .kernel = kNone,
                                .kernel_operations = 0,
                                .enqueue_begin_ns = queued_ns,
                                .reduction = schema::Reduction::kNone,
                                .algorithm = kNone,
                                .protocol = kNone,
                                .channels = 0,
                                .buffer = 0,
                                .caller = StackOf(record.stack)});
  }
  torch_works_[record.work] = work;
}

void ProcessDecoder::OnTorchEnd(Thread& thread, std::span<const std::byte> bytes) {
  const auto record = LoadRecord<TorchEndRecord>(bytes);
  const std::int64_t ns = thread.clock.Ns(record.ticks);
  thread.life.Cover(ns, ns);
  if (record.sender != 0) {
    if (const auto from_any = torch_from_any_.find(record.work); from_any != torch_from_any_.end()) {
      tables_.p2p.peer[from_any->second] = static_cast<std::int32_t>(record.sender - 1);
      torch_from_any_.erase(from_any);
    }
    return;
  }
  const auto at = torch_works_.find(record.work);
  if (at == torch_works_.end()) {
    ++unknown_requests_;  // Its begin was lost, or came while recording was off.
    return;
  }
  const TorchWork work = at->second;
  torch_works_.erase(at);
  if (work.message) {
    // The record shows that a thread waited, not since when: the message may have ended at any time after the post.
    schema::P2p& p2p = tables_.p2p;
    p2p.wait_begin_ns[work.row] = p2p.begin_ns[work.row];
    p2p.end_ns[work.row] = ns;
    p2p.outcome[work.row] = schema::RequestOutcome::kCompleted;
    return;
  }
  schema::Collectives& c = tables_.collectives;
  c.wait_begin_ns[work.row] = c.begin_ns[work.row];
  c.post_end_ns[work.row] = c.end_ns[work.row] = ns;
}

}  // namespace lockstep::trace
