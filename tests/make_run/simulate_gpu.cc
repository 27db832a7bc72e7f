// One rank's way through an operation of its GPU.

#include <algorithm>

#include "make_run/simulate.h"

namespace lockstep::make_run {
namespace {

constexpr std::uint32_t kComputeStream = 7, kCopyStream = 14;
constexpr std::int64_t kLaunchLatencyNs = 2'000;

std::string_view NcclName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllGather:
      return "ncclDevKernel_AllGather_RING_LL";
    case CollectiveKind::kReduceScatter:
      return "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL";
    case CollectiveKind::kBroadcast:
      return "ncclDevKernel_Broadcast_RING_LL";
    case CollectiveKind::kAllToAll:
      return "ncclDevKernel_SendRecv";
    default:
      return "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
  }
}

}  // namespace

void Simulation::Gpu(RankState& state, const Place& place, Emitter* out) const {
  const Op& op = *place.op;
  const auto launch = [&](std::string_view name, std::uint8_t kind) {
    const std::int64_t begin = state.t += spec_.dispatch_ns;
    state.t += op.launch_ns;
    state.launched = ++state.correlation;
    state.enqueued = begin;
    if (out != nullptr) out->Api(name, kind, state.correlation, begin, state.t);
  };
  // What follows on the stream waits for what the compute stream holds now.
  const auto wait_for_compute = [&] {
    const std::uint64_t record = ++state.correlation;
    ++state.correlation;
    if (out == nullptr) return;
    out->Sync(5, kComputeStream, record, state.t, state.t);
    out->Sync(2, op.stream, state.correlation, state.t, state.t, record, kComputeStream);
  };
  switch (op.kind) {
    case OpKind::kHost:
      state.t += Duration(state, place, 0);
      return;
    case OpKind::kKernel:
      for (std::uint32_t i = 0; i < op.count; ++i) {
        launch("cudaLaunchKernel", 1);
        const std::int64_t begin = std::max(state.t + kLaunchLatencyNs, state.compute_free);
        state.compute_free = begin + Duration(state, place, i);
        if (out != nullptr) out->Kernel(op.name, kComputeStream, state.correlation, 0, begin, state.compute_free);
      }
      return;
    case OpKind::kNccl:
      if (GroupOf(spec_, op.comm, state.rank) < 0) return;
      if (op.after_compute) wait_for_compute();
      launch("cudaLaunchKernelExC", 1);
      state.entry =
          std::max({state.t + kLaunchLatencyNs, op.after_compute ? state.compute_free : 0, state.CommFree(op.stream)});
      return;
    case OpKind::kNcclSend: {
      wait_for_compute();
      launch("cudaLaunchKernelExC", 1);
      state.entry = std::max({state.t + kLaunchLatencyNs, state.compute_free, state.CommFree(op.stream)});
      const std::int64_t end = state.CommFree(op.stream) = state.entry + Cost(op);
      if (out != nullptr) out->GpuSendRecv(op, true, state.launched, state.entry, end);
      EndNccl(state, op, end, out);
      return;
    }
    case OpKind::kNcclRecv:
      launch("cudaLaunchKernelExC", 1);
      state.entry = std::max(state.t + kLaunchLatencyNs, state.CommFree(op.stream));
      return;
    case OpKind::kCopy: {
      launch(op.copy_kind == 6 ? "cudaMemsetAsync" : op.asynchronous ? "cudaMemcpyAsync" : "cudaMemcpy", 2);
      const std::int64_t begin = std::max(state.t + kLaunchLatencyNs, state.copy_free);
      state.copy_free = begin + kLaunchLatencyNs +
                        static_cast<std::int64_t>(static_cast<__int128>(op.bytes) * 1'000'000'000 / op.bandwidth);
      if (out != nullptr) out->Copy(op, kCopyStream, state.correlation, begin, state.copy_free);
      if (!op.asynchronous) state.t = std::max(state.t, state.copy_free);
      return;
    }
    case OpKind::kJoin: {
      const auto join = [&](const RankState::Stream& stream) {
        state.compute_free = std::max(state.compute_free, stream.free);
        ++state.correlation;
        if (out != nullptr && stream.record != 0)
          out->Sync(2, kComputeStream, state.correlation, state.t, state.t, stream.record, stream.id);
      };
      if (op.name.empty())
        for (const RankState::Stream& stream : state.comm_streams) join(stream);
      else if (const RankState::Stream* end = state.EndOf(op.name))
        join(*end);
      return;
    }
    case OpKind::kSync: {
      const std::int64_t begin = state.t;
      ++state.correlation;
      const RankState::Stream* end = state.EndOf(op.name);
      if (op.name == "device")
        state.t = std::max({state.t, state.compute_free, state.copy_free, state.LastCommFree()});
      else if (op.name.empty())
        state.t = std::max(state.t, state.compute_free);
      else if (end != nullptr)
        state.t = std::max(state.t, end->free);
      if (out == nullptr) return;
      if (op.name == "device") {
        out->Api("cudaDeviceSynchronize", 3, state.correlation, begin, state.t);
        out->Sync(4, schema::kNone, state.correlation, begin, state.t);
      } else if (op.name.empty()) {
        out->Api("cudaStreamSynchronize", 3, state.correlation, begin, state.t);
        out->Sync(3, kComputeStream, state.correlation, begin, state.t);
      } else if (end != nullptr) {
        out->Api("cudaEventSynchronize", 3, state.correlation, begin, state.t);
        out->Sync(1, schema::kNone, state.correlation, begin, state.t, end->record, end->id);
      }
      return;
    }
    case OpKind::kOverhead:
      if (out != nullptr) out->Overhead(state.t, state.t + op.duration_ns);
      state.t += op.duration_ns;
      return;
    default:
      return;
  }
}

// The end of an operation is recorded behind it, as PyTorch does.
void Simulation::EndNccl(RankState& state, const Op& op, std::int64_t end, Emitter* out) const {
  const std::uint64_t record = ++state.correlation;
  if (out != nullptr) out->Sync(5, op.stream, record, state.t, state.t);
  state.CommFree(op.stream) = end;
  for (RankState::Stream& stream : state.comm_streams)
    if (stream.id == op.stream) stream.record = record;
  if (!op.name.empty()) state.Ended(op.name, {op.stream, end, record});
}

void Simulation::LeaveNccl(RankState& state, const Op& op, std::int64_t end, Emitter* out) const {
  if (out != nullptr) {
    const std::uint32_t kernel = out->Kernel(NcclName(op.collective), op.stream, state.launched, 1, state.entry, end);
    for (std::size_t part = 0; part < std::max<std::size_t>(1, op.grouped.size()); ++part) {
      const std::uint32_t row =
          out->Collective({&op, 3, state.entry, end, schema::kNone, kernel, state.enqueued, part});
      out->Complete(row, schema::kNoTime, state.entry, end);
    }
  }
  EndNccl(state, op, end, out);
}

}  // namespace lockstep::make_run
