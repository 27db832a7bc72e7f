#include "analysis/gpu/blocking_calls.h"

#include <algorithm>

namespace lockstep::gpu {
namespace {

using schema::kNone;

}  // namespace

std::vector<BlockingCall> FindBlockingCalls(const schema::RankTables& tables, const LaunchIndex& launches) {
  const schema::Api& api = tables.api;
  const std::vector<HostCall> calls = ClassifyHostCalls(tables);
  constexpr std::uint8_t kDeviceToHost = schema::CopyKind::kDeviceToHost, kPageable = schema::HostMemory::kPageable,
                         kStreamWaits = schema::SyncKind::kStreamWait, kEventRecord = schema::SyncKind::kEventRecord;
  std::vector<std::uint32_t> copy_of(api.rows(), kNone), sync_of(api.rows(), kNone);
  std::vector<bool> pageable(api.rows(), false);
  for (std::uint32_t row = 0; row < tables.copies.rows(); ++row) {
    const std::uint32_t call = launches.of_copy[row];
    if (call == kNone) continue;
    copy_of[call] = row;
    if (tables.copies.kind[row] == kDeviceToHost && tables.copies.host_memory[row] == kPageable) pageable[call] = true;
  }
  std::vector<BlockingCall> found;
  for (std::uint32_t row = 0; row < tables.sync.rows(); ++row) {
    if (tables.sync.kind[row] == kStreamWaits || tables.sync.kind[row] == kEventRecord) continue;
    if (launches.of_sync[row] != kNone)
      sync_of[launches.of_sync[row]] = row;
    else
      found.push_back({tables.sync.begin_ns[row], tables.sync.begin_ns[row] + tables.sync.duration_ns[row], kNone, row,
                       kNone, kNone});
  }
  for (std::uint32_t row = 0; row < api.rows(); ++row) {
    const bool copies = calls[row] == HostCall::kBlockingCopy || (calls[row] == HostCall::kCopy && pageable[row]);
    if (!copies && calls[row] != HostCall::kSync && sync_of[row] == kNone) continue;
    found.push_back({api.begin_ns[row], api.begin_ns[row] + api.duration_ns[row], row, sync_of[row],
                     copies ? copy_of[row] : kNone, api.thread[row]});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const BlockingCall& a, const BlockingCall& b) { return a.begin_ns < b.begin_ns; });
  return found;
}

}  // namespace lockstep::gpu
