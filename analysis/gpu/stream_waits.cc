#include "analysis/gpu/stream_waits.h"

#include <algorithm>
#include <boost/sort/spinsort/spinsort.hpp>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

namespace lockstep::gpu {
namespace {

using schema::kNone;
constexpr std::uint8_t kEvent = schema::SyncKind::kEvent, kStreamWaits = schema::SyncKind::kStreamWait,
                       kStream = schema::SyncKind::kStream, kEventRecord = schema::SyncKind::kEventRecord;
using schema::kNoTime;

class Finder {
 public:
  Finder(const schema::RankTables& tables, const GpuTimeline& timeline) : t_(tables), timeline_(timeline) {}

  StreamWaits Find() {
    if (!Collect()) return {};
    const std::size_t ops = timeline_.ops.size(), syncs = t_.sync.rows();
    out_.held_by.assign(ops, kNone);
    out_.wait_of.assign(ops, kNone);
    out_.unknown.assign(ops, false);
    out_.held_ns.assign(ops, 0);
    out_.released_by.assign(syncs, kNone);
    out_.known.assign(syncs, false);
    AddOperations();
    const auto before = [](const Item& a, const Item& b) {
      return std::tuple(a.correlation, a.what, a.row) < std::tuple(b.correlation, b.what, b.row);
    };
    boost::sort::spinsort(items_.begin(), items_.end(), before);  // Sorted runs, one after the other.
    states_.resize(numbers_.size());
    for (const Item& item : items_) Visit(item);
    return std::move(out_);
  }

 private:
  // At one correlation: what a wait waits for before what waits, waits before what they hold.
  enum What : std::uint8_t { kRecord, kWait, kOp };
  struct Item {
    std::uint64_t correlation;
    std::uint32_t row;     // Of sync; kOp: of the timeline's operations.
    std::uint32_t stream;  // Of states_.
    What what;
  };
  struct State {
    std::uint32_t last = kNone;  // What everything asked for so far waits for: the operation that ends last.
    std::uint32_t held = kNone, wait = kNone;
    std::int64_t free_ns = kNoTime;  // End of its own operations.
    bool unknown = false;
  };

  // Streams with operations come first; others are made up as they are met.
  std::uint32_t Number(const GpuStream& stream) {
    return numbers_.try_emplace(stream, static_cast<std::uint32_t>(numbers_.size())).first->second;
  }
  bool HasOperations(const GpuStream& stream) const {
    return std::binary_search(timeline_.streams.begin(), timeline_.streams.end(), stream);
  }
  // Where the record took place: as its own row says, else a stream of that number, of the waiting
  // stream's context if it has one.
  std::uint32_t RecordStream(std::uint32_t row) {
    const schema::Sync& s = t_.sync;
    const auto own = std::lower_bound(records_.begin(), records_.end(), std::pair(s.record_correlation[row], 0u));
    if (own != records_.end() && own->first == s.record_correlation[row])
      return Number({s.device[own->second], s.context[own->second], s.stream[own->second]});
    const GpuStream same{s.device[row], s.context[row], s.record_stream[row]};
    if (HasOperations(same)) return Number(same);
    const auto other = by_number_.find(same.stream);
    return other != by_number_.end() ? other->second : Number(same);
  }
  // A host's wait may lack the context.
  std::uint32_t SyncStream(std::uint32_t row) {
    const GpuStream own{t_.sync.device[row], t_.sync.context[row], t_.sync.stream[row]};
    if (t_.sync.kind[row] == kStreamWaits || HasOperations(own)) return Number(own);
    const auto other = by_device_.find({own.device, own.stream});
    return other != by_device_.end() ? other->second : Number(own);
  }

  bool Collect() {
    const schema::Sync& s = t_.sync;
    const auto recorded = [&](std::uint32_t row) {
      return s.record_correlation[row] != 0 && s.record_stream[row] != kNone &&
             s.record_correlation[row] <= s.correlation[row];
    };
    bool any = false;
    for (std::uint32_t row = 0; row < s.rows(); ++row) {
      const bool wait = s.kind[row] == kStreamWaits && s.correlation[row] != 0 && recorded(row);
      out_.told |= wait;
      any |= wait || (s.kind[row] == kEvent && s.correlation[row] != 0 && recorded(row));
    }
    if (!any) return false;
    for (std::uint32_t i = 0; i < timeline_.streams.size(); ++i) {
      const GpuStream& stream = timeline_.streams[i];
      numbers_.emplace(stream, i);
      by_number_.emplace(stream.stream, i);
      by_device_.emplace(std::pair(stream.device, stream.stream), i);
    }
    for (std::uint32_t row = 0; row < s.rows(); ++row)
      if (s.kind[row] == kEventRecord && s.correlation[row] != 0) records_.emplace_back(s.correlation[row], row);
    std::sort(records_.begin(), records_.end());
    for (std::uint32_t row = 0; row < s.rows(); ++row) {
      const std::uint8_t kind = s.kind[row];
      if (s.correlation[row] == 0 || (kind != kEvent && kind != kStreamWaits && kind != kStream)) continue;
      if (kind == kStream) {
        // Of a stream it is known only if what the stream itself waits for is.
        if (out_.told && s.stream[row] != kNone) items_.push_back({s.correlation[row], row, SyncStream(row), kWait});
        continue;
      }
      if (recorded(row)) items_.push_back({s.record_correlation[row], row, RecordStream(row), kRecord});
      if (kind == kStreamWaits && s.stream[row] != kNone)
        items_.push_back({s.correlation[row], row, SyncStream(row), kWait});
    }
    return true;
  }

  void AddOperations() {
    items_.reserve(items_.size() + timeline_.ops.size());
    for (std::uint32_t i = 0; i < timeline_.ops.size(); ++i) {
      const GpuOp& op = timeline_.ops[i];
      const std::uint64_t correlation = op.copy ? t_.copies.correlation[op.row] : t_.kernels.correlation[op.row];
      if (op.busy && correlation != 0) items_.push_back({correlation, i, op.stream, kOp});
    }
  }

  std::uint32_t Later(std::uint32_t a, std::uint32_t b) const {
    if (a == kNone || b == kNone) return a == kNone ? b : a;
    const auto key = [&](std::uint32_t op) { return std::pair(timeline_.ops[op].end_ns, op); };
    return key(a) < key(b) ? b : a;
  }

  std::int64_t HeldFor(const State& state, std::uint32_t i) const {
    const GpuOp& op = timeline_.ops[i];
    std::int64_t ready = state.free_ns;
    if (op.api != kNone) ready = std::max(ready, t_.api.begin_ns[op.api] + t_.api.duration_ns[op.api]);
    if (state.held == kNone || ready == kNoTime || timeline_.ops[state.held].end_ns > op.begin_ns) return 0;
    return std::max<std::int64_t>(0, timeline_.ops[state.held].end_ns - ready);
  }

  void Visit(const Item& item) {
    State& state = states_[item.stream];
    switch (item.what) {
      case kRecord:
        out_.released_by[item.row] = state.last;
        out_.known[item.row] = true;
        return;
      case kWait:
        if (t_.sync.kind[item.row] == kStream) {
          out_.released_by[item.row] = state.last;
          out_.known[item.row] = true;
        } else if (!out_.known[item.row]) {
          state.unknown = true;
        } else {
          const std::uint32_t released = out_.released_by[item.row];
          state.last = Later(state.last, released);
          if (released != kNone && Later(state.held, released) == released && state.held != released) {
            state.held = released;
            state.wait = item.row;
          }
        }
        return;
      case kOp:
        out_.held_by[item.row] = state.held;
        out_.wait_of[item.row] = state.wait;
        out_.unknown[item.row] = state.unknown;
        out_.held_ns[item.row] = HeldFor(state, item.row);
        state = {Later(state.last, item.row), kNone, kNone, std::max(state.free_ns, timeline_.ops[item.row].end_ns),
                 false};
        return;
    }
  }

  const schema::RankTables& t_;
  const GpuTimeline& timeline_;
  StreamWaits out_;
  std::map<GpuStream, std::uint32_t> numbers_;
  std::map<std::uint32_t, std::uint32_t> by_number_;
  std::map<std::pair<std::uint16_t, std::uint32_t>, std::uint32_t> by_device_;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> records_;  // Correlation, row of sync.
  std::vector<Item> items_;
  std::vector<State> states_;
};

}  // namespace

StreamWaits FindStreamWaits(const schema::RankTables& tables, const GpuTimeline& timeline) {
  return Finder(tables, timeline).Find();
}

}  // namespace lockstep::gpu
