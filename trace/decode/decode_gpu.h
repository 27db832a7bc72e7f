#pragma once
// Converts records of the CUPTI source to kernels, copies, sync, api, devices, overheads, gpu_memory.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/gpu_records.h"
#include "core/schema.h"
#include "trace/decode/record_context.h"

namespace lockstep::trace {

class ProcessDecoder;

using GpuUuid = std::array<std::uint8_t, 16>;

// One per process. The records' threads are kernel thread ids until ResolveThreads.
class GpuRecords {
 public:
  GpuRecords(ProcessDecoder& decoder, schema::RankTables& tables) : decoder_(decoder), tables_(tables) {}
  void Of(std::uint8_t vendor) { vendor_ = vendor; }  // schema::Vendor; before the first record.

  // Of the kinds kGpuKernel to kGpuMemory; `bytes` holds at least the kind's slots.
  void Add(RecordKind kind, std::span<const std::byte> bytes, const RecordContext& context);

  // Kernel thread ids in api and overheads, in order of appearance.
  const std::vector<std::uint32_t>& tids() const { return tids_; }
  // A thread of the process: rows with its id within its lifetime belong to it. Kernel thread ids are reused, so one id
  // may be several threads.
  struct ThreadLife {
    std::uint32_t row;
    Extent life;
  };
  void ResolveThreads(const std::unordered_multimap<std::int64_t, ThreadLife>& threads);
  // Host activity of a thread without a ring.
  Extent HostLife(std::uint32_t tid) const;

  // Sorts rows by time; then finds the event record to which each wait for an event refers, from the wait's own fields
  // or by the order of calls.
  void SortAndLink();

  // The first kernels after recording went off: when their calls began, when they started.
  struct FirstAfter {
    std::int64_t launch_ns, start_ns;
  };
  const std::vector<FirstAfter>& first_after() const { return first_after_; }

  const Extent& life() const { return life_; }  // Of all rows.
  const std::map<GpuUuid, std::uint16_t>& devices() const { return device_of_; }

 private:
  void OnKernel(const GpuKernelRecord& record, const RecordContext& context);
  void OnShape(const GpuShapeRecord& record, const RecordContext& context);
  void OnCopy(const GpuCopyRecord& record, const RecordContext& context);
  void OnSync(const GpuSyncRecord& record, const RecordContext& context);
  void OnApi(std::span<const std::byte> bytes, const RecordContext& context);
  void OnDevice(const GpuDeviceRecord& record, const RecordContext& context);
  void OnOverhead(const GpuOverheadRecord& record, const RecordContext& context);
  void OnMemory(const GpuMemoryRecord& record, const RecordContext& context);
  // CUPTI's ids have 32 bits and wrap around: a process that makes 10,000 calls a second reaches that in five days.
  std::uint64_t Unwrapped(std::uint32_t correlation);
  void SeeThread(std::uint32_t tid, std::int64_t begin_ns, std::int64_t end_ns);
  void NameDevices();
  void TimeFromCalls();
  void LinkEvents();
  // Row of strings -> row of its readable form, and whether it is a kernel of a communication library.
  struct Name {
    std::uint32_t text;
    bool communicates;
  };
  Name NameOf(std::uint32_t text);

  ProcessDecoder& decoder_;
  schema::RankTables& tables_;
  std::unordered_map<std::uint32_t, Name> names_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> shapes_;  // Thread, its id -> row of kernel_shapes.
  std::map<std::array<std::int32_t, 10>, std::uint32_t> shape_rows_;
  std::map<GpuUuid, std::uint16_t> device_of_;
  std::vector<std::uint32_t> tids_;
  std::unordered_map<std::uint32_t, Extent> host_lives_;
  std::vector<std::uint64_t> event_syncs_;  // Beside the rows of sync until they are linked.
  std::vector<FirstAfter> first_after_;
  std::uint64_t latest_correlation_ = 0;
  std::uint8_t vendor_ = 0;
  bool versions_told_ = false;
  Extent life_;
};

}  // namespace lockstep::trace
