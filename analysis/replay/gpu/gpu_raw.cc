#include "analysis/replay/gpu/gpu_raw.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <tuple>

#include "core/device_waits.h"
#include "core/interval.h"
#include "merge/timeline/kernel_class.h"
#include "trace/file/strings.h"

namespace lockstep::replay {
namespace {

using schema::kNone;
using schema::kNoTime;
constexpr std::uint8_t kEvent = schema::SyncKind::kEvent, kStreamWaits = schema::SyncKind::kStreamWait,
                       kStreamSync = schema::SyncKind::kStream, kContextSync = schema::SyncKind::kContext,
                       kEventRecord = schema::SyncKind::kEventRecord;
constexpr std::uint8_t kCpuOp = schema::RangeSource::kCpuOp, kBlocking = schema::Code(CollectiveMode::kBlocking);

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

class Collector {
 public:
  Collector(const schema::RankTables& tables, const merge::ClockMap& clock, const GpuRankRequest& request, GpuRank& out)
      : t_(tables), clock_(clock), request_(request), out_(out), launches_(gpu::FindLaunches(tables)) {
    FindCalls();
    FindMarks();
    out.end_ns = request.bounds_ns.empty() ? INT64_MIN : C(request.bounds_ns.back());
  }

  GpuRaw Collect() {
    blocking_ = gpu::FindBlockingCalls(t_, launches_);
    for (const gpu::BlockingCall& call : blocking_)
      if (call.copy != kNone) blocking_copy_[call.copy] = true;
    CarriedCollectives();
    CarriedMessages();
    Kernels();
    Copies();
    Waits();
    Syncs();
    MpiCollectives();
    HandOvers();
    Sort();
    FindGates();
    return std::move(raw_);
  }

 private:
  std::uint16_t LaneOf(std::uint16_t device, std::uint32_t context, std::uint32_t stream) {
    if (last_lane_ < out_.lanes.size()) {
      const GpuRank::Lane& last = out_.lanes[last_lane_];
      if (last.device == device && last.context == context && last.stream == stream) return last_lane_;
    }
    const auto [at, fresh] = lanes_.try_emplace({device, context, stream}, 0);
    if (fresh) {
      at->second = static_cast<std::uint16_t>(std::min<std::size_t>(out_.lanes.size(), GpuItem::kNoLane - 1));
      if (at->second == out_.lanes.size()) {
        out_.lanes.push_back({device, context, stream, false});
        raw_.carry_ns.push_back(INT64_MIN);
      }
    }
    return last_lane_ = at->second;
  }
  // Returns the lane of a stream with work; the host's rows may lack the context. kNoLane if there is none.
  std::uint16_t FindLane(std::uint16_t device, std::uint32_t context, std::uint32_t stream) const {
    if (const auto at = lanes_.find({device, context, stream}); at != lanes_.end()) return at->second;
    for (const bool same_device : {true, false})
      for (std::uint16_t lane = 0; lane < out_.lanes.size(); ++lane)
        if (out_.lanes[lane].stream == stream && (!same_device || out_.lanes[lane].device == device)) return lane;
    return GpuItem::kNoLane;
  }
  std::uint16_t ThreadOf(std::uint32_t thread) {
    if (thread == kNone) return GpuRank::kNobody;
    const auto [at, fresh] = threads_.try_emplace(thread, 0);
    if (fresh) at->second = out_.threads < 0xffff ? out_.threads++ : GpuRank::kNobody;
    return at->second;
  }
  std::uint32_t GroupOf(std::uint32_t name, std::uint32_t shape) {
    const auto [at, fresh] = groups_.try_emplace({name, shape}, static_cast<std::uint32_t>(out_.groups.size()));
    if (fresh) out_.groups.push_back(HashOf(name, shape));
    return at->second;
  }
  // It hashes the texts, because their ids differ between files.
  std::uint32_t HashOf(std::uint32_t name, std::uint32_t shape) const {
    std::uint32_t hash = 2'166'136'261u;  // FNV-1a.
    const auto add = [&](std::uint32_t value) { hash = (hash ^ value) * 16'777'619u; };
    for (const char c : trace::TextOf(t_, name)) add(static_cast<unsigned char>(c));
    const schema::KernelShapes& s = t_.kernel_shapes;
    if (name == kNone) {
      add(shape);
    } else if (shape < s.rows()) {
      for (const std::int32_t size :
           {s.grid_x[shape], s.grid_y[shape], s.grid_z[shape], s.block_x[shape], s.block_y[shape], s.block_z[shape]})
        add(static_cast<std::uint32_t>(size));
    }
    return hash;
  }
  std::int64_t C(std::int64_t local_ns) const { return clock_.ToCluster(local_ns); }

  // Correlations increase with each call: an operation without a call in the trace was requested after the one with the
  // next lower correlation.
  void FindCalls() {
    const auto add = [&](const std::vector<std::uint64_t>& correlations, const std::vector<std::uint32_t>& calls) {
      for (std::size_t row = 0; row < calls.size(); ++row)
        if (calls[row] != kNone)
          calls_.emplace_back(correlations[row], t_.api.begin_ns[calls[row]]);
        else
          some_unlaunched_ = true;
    };
    add(t_.kernels.correlation, launches_.of_kernel);
    add(t_.copies.correlation, launches_.of_copy);
    if (!some_unlaunched_) calls_.clear();
    std::sort(calls_.begin(), calls_.end());
  }
  std::int64_t CallOf(std::uint32_t api, std::uint64_t correlation, std::int64_t begin) const {
    if (api != kNone) return t_.api.begin_ns[api];
    if (correlation == 0 || calls_.empty()) return begin;
    const auto after = std::lower_bound(calls_.begin(), calls_.end(), std::pair(correlation, INT64_MIN));
    return std::min(begin, after == calls_.begin() ? after->second : after[-1].second);
  }

  // The kernels with which a step begins on the GPU (merge/timeline/gpu_windows.h), and when they were launched.
  void FindMarks() {
    if (request_.bounds_ns.empty()) return;
    std::map<std::int64_t, std::pair<std::int64_t, std::uint32_t>> first;  // Begin -> launch, row.
    for (const std::int64_t bound : request_.bounds_ns) first.emplace(bound, std::pair(INT64_MAX, kNone));
    for (std::uint32_t row = 0; row < t_.kernels.rows(); ++row) {
      const std::int64_t begin = t_.kernels.begin_ns[row];
      if (begin < first.begin()->first || begin > first.rbegin()->first) continue;
      if (const auto at = first.find(begin); at != first.end())
        at->second =
            std::min(at->second, std::pair(CallOf(launches_.of_kernel[row], t_.kernels.correlation[row], begin), row));
    }
    for (const std::int64_t bound : request_.bounds_ns) gate_rows_.push_back(first.at(bound).second);
    begin_ns_ = gate_rows_.front() == kNone ? request_.bounds_ns.front() : first.begin()->second.first;
  }

  void CarriedCollectives() {
    carried_.assign(t_.kernels.rows(), kNone);
    for (const auto& [row, collective] : request_.collectives) {
      if (row >= t_.collectives.rows()) continue;
      const std::uint32_t kernel = t_.collectives.kernel[row];
      if (kernel >= carried_.size()) continue;
      if (carried_[kernel] == kNone)
        carried_[kernel] = collective;
      else
        out_.same_kernel.emplace_back(carried_[kernel], collective);
    }
  }

  void CarriedMessages() {
    const schema::P2p& p = t_.p2p;
    for (std::uint32_t row = 0; row < p.rows(); ++row) {
      const std::uint32_t kernel = p.kernel[row];
      if (kernel >= carried_.size() || carried_[kernel] != kNone || p.comm[row] >= t_.comms.rows() ||
          t_.comms.global_id[p.comm[row]] == 0 || p.peer[row] < 0)
        continue;
      GpuMessage message;
      message.comm = t_.comms.global_id[p.comm[row]];
      message.seq = p.seq[row];
      message.bytes = p.bytes[row];
      message.send = p.direction[row] == schema::Direction::kSend;
      message.source = message.send ? t_.comms.rank[p.comm[row]] : p.peer[row];
      message.destination = message.send ? p.peer[row] : t_.comms.rank[p.comm[row]];
      message.tag = p.tag[row];
      message.item = kernel;
      out_.messages.push_back(message);
    }
    std::stable_sort(out_.messages.begin(), out_.messages.end(),
                     [](const GpuMessage& a, const GpuMessage& b) { return a.item < b.item; });
  }
  std::uint32_t MessagesOf(std::uint32_t kernel) const {
    const auto at = std::lower_bound(out_.messages.begin(), out_.messages.end(), kernel,
                                     [](const GpuMessage& each, std::uint32_t row) { return each.item < row; });
    return at != out_.messages.end() && at->item == kernel ? static_cast<std::uint32_t>(at - out_.messages.begin())
                                                           : kNone;
  }

  // Launch, lane and times of a kernel or copy; false if it belongs to the time before the first step.
  bool Operation(RawItem& raw, std::uint32_t api, std::int64_t begin, std::int64_t duration, std::uint16_t device,
                 std::uint32_t context, std::uint32_t stream) {
    const std::uint16_t lane = LaneOf(device, context, stream);
    raw.launched = api != kNone;
    const std::int64_t call = CallOf(api, raw.correlation, begin);
    if (call < begin_ns_) {
      raw_.carry_ns[lane] = std::max(raw_.carry_ns[lane], C(begin + duration));
      return false;
    }
    raw.item.lane = lane;
    raw.item.thread = raw.launched ? ThreadOf(t_.api.thread[api]) : GpuRank::kNobody;
    raw.item.call_ns = raw.key_ns = C(call);
    raw.call_end_ns = raw.launched ? C(call + t_.api.duration_ns[api]) : raw.key_ns;
    raw.item.begin_ns = C(begin);
    raw.item.end_ns = C(begin + duration);
    return true;
  }

  void Kernels() {
    const schema::Kernels& k = t_.kernels;
    const std::vector<merge::KernelClass> classes = merge::ClassifyKernels(t_, t_.collectives, false);
    raw_.items.reserve(k.rows() + t_.copies.rows());
    for (std::uint32_t row = 0; row < k.rows(); ++row) {
      if (classes[row] == merge::KernelClass::kNone) continue;
      RawItem raw;
      raw.row = row;
      raw.correlation = k.correlation[row];
      if (!Operation(raw, launches_.of_kernel[row], k.begin_ns[row], k.duration_ns[row], k.device[row], k.context[row],
                     k.stream[row]))
        continue;
      if (carried_[row] != kNone) {
        raw.item.kind = GpuItem::kMember;
        raw.item.ref = carried_[row];
      } else if (const std::uint32_t messages = MessagesOf(row); messages != kNone) {
        raw.item.kind = GpuItem::kMessages;
        raw.item.ref = messages;
      } else if (classes[row] == merge::KernelClass::kComm) {
        raw.item.kind = GpuItem::kFixed;
      } else {
        raw.item.ref = GroupOf(k.name[row], k.shape[row]);
      }
      raw_.items.push_back(raw);
    }
  }

  void Copies() {
    const schema::Copies& c = t_.copies;
    for (std::uint32_t row = 0; row < c.rows(); ++row) {
      RawItem raw;
      raw.row = raw.copy_row = row;
      raw.correlation = c.correlation[row];
      if (!Operation(raw, launches_.of_copy[row], c.begin_ns[row], c.duration_ns[row], c.device[row], c.context[row],
                     c.stream[row]))
        continue;
      raw.item.kind = GpuItem::kCopy;
      raw.item.ref = GroupOf(kNone, c.kind[row]);
      raw.blocks = blocking_copy_.contains(row);
      raw_.items.push_back(raw);
    }
  }

  // Takes the host call of a row of sync.
  void Call(RawItem& raw, std::uint32_t api, std::int64_t begin, std::int64_t end, std::uint32_t thread) {
    raw.item.thread = ThreadOf(api != kNone ? t_.api.thread[api] : thread);
    raw.item.call_ns = raw.key_ns = C(begin);
    raw.call_end_ns = C(end);
  }

  void RecordOf(std::uint32_t row, RawItem& raw) {
    const schema::Sync& s = t_.sync;
    raw.record_correlation = s.record_correlation[row];
    raw.record_unknown = raw.record_correlation == 0 || s.record_stream[row] == kNone;
    if (raw.record_unknown) return;
    const auto own = records_.find(raw.record_correlation);
    raw.record_lane = own != records_.end()
                          ? FindLane(s.device[own->second], s.context[own->second], s.stream[own->second])
                          : FindLane(s.device[row], s.context[row], s.record_stream[row]);
  }

  void Waits() {
    const schema::Sync& s = t_.sync;
    for (std::uint32_t row = 0; row < s.rows(); ++row) {
      if (s.kind[row] == kEventRecord && s.correlation[row] != 0 && s.stream[row] != kNone)
        records_.emplace(s.correlation[row], row);
      if (s.kind[row] == kStreamWaits && s.stream[row] != kNone) LaneOf(s.device[row], s.context[row], s.stream[row]);
    }
    for (std::uint32_t row = 0; row < s.rows(); ++row) {
      if (s.kind[row] != kStreamWaits || s.stream[row] == kNone) continue;
      const std::uint32_t api = launches_.of_sync[row];
      const std::int64_t begin = api == kNone ? s.begin_ns[row] : t_.api.begin_ns[api];
      RawItem raw;
      raw.item.kind = GpuItem::kWait;
      raw.row = row;
      raw.correlation = s.correlation[row];
      RecordOf(row, raw);
      raw_.told |= !raw.record_unknown;
      if (begin < begin_ns_) continue;
      Call(raw, api, begin, api == kNone ? begin : begin + t_.api.duration_ns[api], kNone);
      if (api == kNone) raw.item.thread = MainThread();
      raw.item.lane = LaneOf(s.device[row], s.context[row], s.stream[row]);
      raw_.items.push_back(raw);
    }
  }

  // The thread with the most requests so far, for calls without a known thread.
  std::uint16_t MainThread() {
    if (main_thread_ != GpuRank::kNobody) return main_thread_;
    std::map<std::uint16_t, std::size_t> count;
    for (const RawItem& raw : raw_.items)
      if (raw.item.thread != GpuRank::kNobody) ++count[raw.item.thread];
    std::size_t most = 0;
    for (const auto& [thread, n] : count)
      if (n > most) std::tie(most, main_thread_) = std::pair(n, thread);
    return main_thread_;
  }

  void Syncs() {
    const schema::Sync& s = t_.sync;
    for (const gpu::BlockingCall& call : blocking_) {
      if (call.begin_ns < begin_ns_) continue;
      RawItem raw;
      raw.item.kind = GpuItem::kSync;
      raw.row = call.api != kNone ? call.api : call.sync;
      if (call.api != kNone)
        raw.correlation = t_.api.correlation[call.api];
      else if (call.sync != kNone)
        raw.correlation = s.correlation[call.sync];
      Call(raw, call.api, call.begin_ns, call.end_ns, call.thread);
      if (raw.item.thread == GpuRank::kNobody) raw.item.thread = MainThread();
      if (raw.item.thread == GpuRank::kNobody) continue;
      const std::uint8_t kind = call.sync == kNone ? 0 : s.kind[call.sync];
      if (call.copy != kNone) {
        raw.sync = RawItem::kCopyDone;
        raw.copy_row = call.copy;
      } else if (kind == kEvent) {
        RecordOf(call.sync, raw);
        raw.sync = raw.record_unknown ? RawItem::kUnknown : RawItem::kRecord;
      } else if (kind == kStreamSync && s.stream[call.sync] != kNone) {
        raw.sync = RawItem::kStream;
        raw.item.lane = FindLane(s.device[call.sync], s.context[call.sync], s.stream[call.sync]);
      } else if (kind == kContextSync) {
        raw.sync = RawItem::kDevice;
        raw.device = s.device[call.sync];
      } else if (call.api != kNone) {
        const std::string_view name = trace::TextOf(t_, t_.api.name[call.api]);
        if (WaitsForDevice(name) || Has(name, "Free")) raw.sync = RawItem::kDevice;
      }
      raw_.items.push_back(raw);
    }
  }

  void MpiCollectives() {
    const schema::Collectives& c = t_.collectives;
    for (const auto& [row, collective] : request_.collectives) {
      if (row >= c.rows() || c.mode[row] != kBlocking || c.end_ns[row] == kNoTime || c.begin_ns[row] < begin_ns_)
        continue;
      RawItem raw;
      raw.item.kind = GpuItem::kMpi;
      raw.item.ref = collective;
      raw.row = row;
      Call(raw, kNone, c.begin_ns[row], c.end_ns[row], c.thread[row]);
      raw.item.begin_ns = raw.item.call_ns;
      raw.item.end_ns = raw.call_end_ns;
      raw_.items.push_back(raw);
    }
  }

  void HandOvers() {
    if (threads_.size() < 2) return;
    std::vector<std::vector<Interval>> busy(out_.threads);
    const auto add = [&](std::uint32_t thread, std::int64_t begin, std::int64_t duration) {
      const auto at = threads_.find(thread);
      if (at != threads_.end() && begin + duration >= begin_ns_)
        busy[at->second].push_back({std::max(begin, begin_ns_), begin + duration});
    };
    for (std::size_t i = 0; i < t_.api.rows(); ++i) add(t_.api.thread[i], t_.api.begin_ns[i], t_.api.duration_ns[i]);
    for (std::size_t i = 0; i < t_.ranges.rows(); ++i)
      if (t_.ranges.source[i] == kCpuOp) add(t_.ranges.thread[i], t_.ranges.begin_ns[i], t_.ranges.duration_ns[i]);
    for (std::size_t i = 0; i < t_.mpi_calls.rows(); ++i)
      add(t_.mpi_calls.thread[i], t_.mpi_calls.begin_ns[i], t_.mpi_calls.duration_ns[i]);
    std::vector<IntervalSet> activity;
    for (auto& each : busy) activity.push_back(Normalize(std::move(each)));
    std::uint32_t number = 0;
    for (const HandOver& hand_over : FindHandOvers(activity)) {
      RawItem give, take;
      give.item.kind = GpuItem::kGive;
      take.item.kind = GpuItem::kTake;
      give.row = take.row = number++;
      give.item.thread = static_cast<std::uint16_t>(hand_over.from);
      take.item.thread = static_cast<std::uint16_t>(hand_over.to);
      give.item.call_ns = give.key_ns = C(hand_over.give_ns);
      take.item.call_ns = take.key_ns = C(hand_over.take_ns);
      take.item.begin_ns = hand_over.stopped_ns == INT64_MIN ? INT64_MIN : C(hand_over.stopped_ns);
      raw_.items.push_back(give);
      raw_.items.push_back(take);
    }
  }

  static int OrderOf(GpuItem::Kind kind) { return kind == GpuItem::kGive ? 0 : kind == GpuItem::kTake ? 1 : 2; }

  void Sort() {
    // If time and correlation are equal, a copy precedes the call that waits for it.
    std::sort(raw_.items.begin(), raw_.items.end(), [](const RawItem& a, const RawItem& b) {
      return std::tuple(a.key_ns, OrderOf(a.item.kind), a.correlation, a.item.kind == GpuItem::kSync, a.item.begin_ns,
                        a.row) < std::tuple(b.key_ns, OrderOf(b.item.kind), b.correlation,
                                            b.item.kind == GpuItem::kSync, b.item.begin_ns, b.row);
    });
    if (begin_ns_ != INT64_MIN)
      out_.origin_ns = C(begin_ns_);
    else
      out_.origin_ns = raw_.items.empty() ? 0 : raw_.items.front().key_ns;
  }

  static bool IsKernel(const GpuItem& item) {
    return item.kind == GpuItem::kKernel || item.kind == GpuItem::kMember || item.kind == GpuItem::kMessages ||
           item.kind == GpuItem::kFixed;
  }

  // In a run without steps: the first item of the GPU.
  void FindGates() {
    auto& items = raw_.items;
    if (gate_rows_.empty()) {
      std::uint32_t first = kNone;
      for (std::uint32_t i = 0; i < items.size(); ++i) {
        if (items[i].item.kind > GpuItem::kFixed) continue;
        if (first == kNone || items[i].item.begin_ns < items[first].item.begin_ns) first = i;
        out_.end_ns = std::max(out_.end_ns, items[i].item.end_ns);
      }
      raw_.gates = {first, kNone};
      // Host work before the first and after the last operation is part of it where the recording's time has it.
      const std::int64_t begin_ns = C(request_.whole.begin), end_ns = C(request_.whole.end);
      if (begin_ns == end_ns || first == kNone) return;
      out_.end_ns = std::max(out_.end_ns, end_ns);
      if (begin_ns > out_.origin_ns) return;
      out_.origin_ns = begin_ns;
      raw_.gates.front() = kNone;
      return;
    }
    std::map<std::uint32_t, std::uint32_t> at;
    for (const std::uint32_t row : gate_rows_) at.emplace(row, kNone);
    for (std::uint32_t i = 0; i < items.size(); ++i)
      if (IsKernel(items[i].item))
        if (const auto gate = at.find(items[i].row); gate != at.end()) gate->second = i;
    at[kNone] = kNone;
    for (const std::uint32_t row : gate_rows_) raw_.gates.push_back(at.at(row));
    if (raw_.gates.back() != kNone) items.resize(raw_.gates.back() + 1);
    out_.end_ns = C(request_.bounds_ns.back());
    if (raw_.gates.back() == kNone && request_.launched_before_ns != INT64_MAX)
      std::erase_if(items,
                    [until = C(request_.launched_before_ns)](const RawItem& raw) { return raw.key_ns >= until; });
  }

  const schema::RankTables& t_;
  const merge::ClockMap& clock_;
  const GpuRankRequest& request_;
  GpuRank& out_;
  const gpu::LaunchIndex launches_;
  GpuRaw raw_;
  // Correlation and call; used if some operations have no call.
  std::vector<std::pair<std::uint64_t, std::int64_t>> calls_;
  bool some_unlaunched_ = false;
  std::vector<std::uint32_t> gate_rows_;  // Rows of kernels.
  std::int64_t begin_ns_ = INT64_MIN;
  std::vector<gpu::BlockingCall> blocking_;
  std::map<std::uint32_t, bool> blocking_copy_;
  std::vector<std::uint32_t> carried_;  // Per kernel: its collective, or kNone.
  std::map<std::tuple<std::uint16_t, std::uint32_t, std::uint32_t>, std::uint16_t> lanes_;
  std::uint16_t last_lane_ = 0;
  std::map<std::uint32_t, std::uint16_t> threads_;
  std::uint16_t main_thread_ = GpuRank::kNobody;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> groups_;
  std::map<std::uint64_t, std::uint32_t> records_;  // Correlation to row of sync.
};

}  // namespace

GpuRaw CollectGpuRaw(const schema::RankTables& tables, const merge::ClockMap& clock, const GpuRankRequest& request,
                     GpuRank& out) {
  return Collector(tables, clock, request, out).Collect();
}

}  // namespace lockstep::replay
