#include "runtime/agent/late/wait_sums.h"

#include <algorithm>
#include <cmath>

#include "core/mpi_ops.h"
#include "runtime/agent/live/all_wait.h"
#include "runtime/agent/live/record_reader.h"

namespace lockstep::agent {
namespace {

// What never ends, and programs that make communicators all the time, must not take memory without end.
constexpr std::size_t kMostWorks = 4096, kMostComms = 4096;

}  // namespace

void WaitSums::Take(const RingEntry& entry, std::span<const iovec> parts) {
  const RecordReader reader(parts);
  RecordHead head;
  for (std::size_t at = 0; reader.Copy(at, &head, sizeof head) && head.slots != 0;
       at += std::size_t{head.slots} * kSlotBytes) {
    // The process that made a communicator last is followed: a slot's program may start others, one after the other.
    if (head.kind == RecordKind::kComm && process_ != entry.process) {
      *this = WaitSums();
      process_ = entry.process;
    }
    if (process_ == entry.process) OnRecord(head, reader, at);
  }
}

void WaitSums::OnRecord(const RecordHead& head, const RecordReader& reader, std::size_t at) {
  const std::size_t bytes = std::size_t{head.slots} * kSlotBytes;
  const auto load = [&](auto& record) { return bytes >= sizeof record && reader.Copy(at, &record, sizeof record); };
  switch (head.kind) {
    case RecordKind::kComm:
      if (CommRecord record; load(record)) OnComm(record);
      break;
    case RecordKind::kMpi:
      if (MpiRecord record; load(record)) OnMpi(record);
      break;
    case RecordKind::kTorchBegin:
      if (TorchBeginRecord record; load(record)) OnTorchBegin(record);
      break;
    case RecordKind::kTorchEnd:
      if (TorchEndRecord record; load(record)) OnTorchEnd(record);
      break;
    default:
      break;
  }
}

void WaitSums::OnComm(const CommRecord& record) {
  if ((record.head.flags & kCommRenamed) != 0) return;
  if ((record.head.flags & kCommFreed) != 0) {
    comms_.erase(record.comm);
  } else if (comms_.size() < kMostComms) {
    const bool known = (record.head.flags & kCommUnidentified) == 0;
    comms_[record.comm] = {known ? record.global_id : 0, record.size};
  }
}

const WaitSums::Comm* WaitSums::Find(std::uint32_t comm) const {
  const auto found = comms_.find(comm);
  return found == comms_.end() || found->second.global_id == 0 || found->second.size < 2 ? nullptr : &found->second;
}

void WaitSums::Add(std::uint64_t comm, std::uint64_t begin_ticks, std::uint64_t end_ticks) {
  if (end_ticks < begin_ticks || (sums_.size() >= kMostComms && !sums_.contains(comm))) return;
  Sum& sum = sums_[comm];
  ++sum.count;
  sum.ticks += end_ticks - begin_ticks;
}

void WaitSums::OnMpi(const MpiRecord& record) {
  const MpiOpInfo* info = InfoOfMpi(record.op);
  if (info == nullptr || info->cls != MpiClass::kCollective) return;
  if ((record.head.flags & (kMpiUnrecorded | kMpiError)) != 0 || !AllWait(record, *info)) return;
  if (const Comm* comm = Find(record.comm)) Add(comm->global_id, record.begin_ticks, record.end_ticks);
}

void WaitSums::OnTorchBegin(const TorchBeginRecord& record) {
  const auto early = ended_early_.find(record.work);
  const bool ended = early != ended_early_.end();
  const std::uint64_t end_ticks = ended ? early->second : 0;
  if (ended) ended_early_.erase(early);
  const Comm* comm = record.message == kTorchCollective ? Find(record.comm) : nullptr;
  if (comm != nullptr && !AllWait(record, comm->size)) comm = nullptr;
  if (ended && comm != nullptr) Add(comm->global_id, record.ticks, end_ticks);
  // Those that do not count are kept, too: else their ends would look as if they came before the begin.
  if (!ended && works_.size() < kMostWorks) works_[record.work] = {comm == nullptr ? 0 : comm->global_id, record.ticks};
}

void WaitSums::OnTorchEnd(const TorchEndRecord& record) {
  if (record.sender != 0) return;
  const auto found = works_.find(record.work);
  if (found == works_.end()) {
    if (ended_early_.size() < kMostWorks) ended_early_[record.work] = record.ticks;
    return;
  }
  if (found->second.comm != 0) Add(found->second.comm, found->second.begin_ticks, record.ticks);
  works_.erase(found);
}

std::vector<WaitSum> WaitSums::Largest(std::size_t most, double ns_per_tick) const {
  std::vector<WaitSum> all;
  for (const auto& [comm, sum] : sums_)
    all.push_back({comm, sum.count, std::llround(static_cast<double>(sum.ticks) * ns_per_tick)});
  std::sort(all.begin(), all.end(),
            [](const WaitSum& a, const WaitSum& b) { return a.ns != b.ns ? a.ns > b.ns : a.comm < b.comm; });
  if (all.size() > most) all.resize(most);
  return all;
}

}  // namespace lockstep::agent
