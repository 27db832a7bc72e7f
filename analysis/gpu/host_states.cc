#include "analysis/gpu/host_states.h"

#include <limits>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/comm_calls.h"

namespace lockstep::gpu {
namespace {

using schema::kNone;

bool Contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

// Loads GPU code, or makes it: cuModuleLoadData, cuLibraryLoadData, hipModuleLoad, cuLinkComplete, nvrtcCompileProgram.
bool LoadsCode(std::string_view name) {
  return Contains(name, "ModuleLoad") || Contains(name, "LibraryLoad") || name.starts_with("cuLink") ||
         name.starts_with("hiprtc") || name.starts_with("nvrtc");
}

// Something that is open for a time, of one thread.
struct Open {
  Interval at;
  std::uint32_t row;
};

// What is innermost when: of all that is open the one that began last; of those the shortest, then the last one given.
// f(interval, row) in order of time, disjoint.
template <typename F>
void Innermost(std::vector<Open> items, F&& f) {
  const auto before = [](const Open& a, const Open& b) {
    return a.at.begin != b.at.begin ? a.at.begin < b.at.begin : a.at.end > b.at.end;
  };
  if (!std::is_sorted(items.begin(), items.end(), before)) std::stable_sort(items.begin(), items.end(), before);
  std::vector<Open> stack;
  std::int64_t now = std::numeric_limits<std::int64_t>::min();
  const auto advance = [&](std::int64_t to) {
    while (!stack.empty() && now < to) {
      const Open top = stack.back();
      if (top.at.end <= now) {
        stack.pop_back();
        continue;
      }
      const std::int64_t until = std::min(top.at.end, to);
      f(Interval{now, until}, top.row);
      now = until;
    }
    now = std::max(now, to);
  };
  for (const Open& item : items) {
    if (item.at.begin >= item.at.end) continue;
    advance(item.at.begin);
    stack.push_back(item);
  }
  advance(std::numeric_limits<std::int64_t>::max());
}

struct ThreadEvents {
  std::vector<Open> ranges, calls;
  std::vector<Interval> input, communication, load;
};

// A walk through disjoint intervals in order, for times that do not decrease.
template <typename T>
class Cursor {
 public:
  explicit Cursor(const std::vector<T>& all) : all_(all) {}
  const T* At(std::int64_t time_ns) {
    while (at_ < all_.size() && IntervalOf(all_[at_]).end <= time_ns) ++at_;
    return at_ < all_.size() && IntervalOf(all_[at_]).begin <= time_ns ? &all_[at_] : nullptr;
  }

 private:
  static const Interval& IntervalOf(const Interval& interval) { return interval; }
  static const Interval& IntervalOf(const Open& open) { return open.at; }
  const std::vector<T>& all_;
  std::size_t at_ = 0;
};

std::vector<Open> Flat(std::vector<Open> items) {
  std::vector<Open> flat;
  Innermost(std::move(items), [&](Interval at, std::uint32_t row) { flat.push_back({at, row}); });
  return flat;
}

}  // namespace

void HostStates::ClassifyCalls(const RankView& rank, const LaunchIndex& launches,
                               const std::vector<BlockingCall>& blocking) {
  const schema::RankTables& t = rank.tables;
  const std::vector<HostCall> calls = ClassifyHostCalls(t);
  constexpr std::uint8_t kToDevice = schema::CopyKind::kHostToDevice, kPageable = schema::HostMemory::kPageable;
  std::vector<bool> pageable(t.api.rows(), false);
  for (std::uint32_t row = 0; row < t.copies.rows(); ++row)
    if (launches.of_copy[row] != kNone && t.copies.kind[row] == kToDevice && t.copies.host_memory[row] == kPageable)
      pageable[launches.of_copy[row]] = true;
  of_call_.assign(t.api.rows(), HostState::kCall);
  for (std::uint32_t row = 0; row < of_call_.size(); ++row) {
    switch (calls[row]) {
      case HostCall::kLaunch:
      case HostCall::kGraphLaunch:
        of_call_[row] = HostState::kLaunch;
        break;
      case HostCall::kCopy:
        of_call_[row] = pageable[row] ? HostState::kCopy : HostState::kLaunch;
        break;
      case HostCall::kMemory:
        of_call_[row] = HostState::kMemory;
        break;
      default:
        if (LoadsCode(rank.Text(t.api.name[row]))) of_call_[row] = HostState::kLoad;
        break;
    }
  }
  for (const BlockingCall& call : blocking) {
    if (call.api == kNone) continue;
    if (Contains(rank.Text(t.api.name[call.api]), "Free"))
      of_call_[call.api] = HostState::kMemory;
    else
      of_call_[call.api] = pageable[call.api] ? HostState::kCopy : HostState::kSync;
  }
}

HostStates::HostStates(const RankView& rank, const LaunchIndex& launches, const std::vector<BlockingCall>& blocking) {
  ClassifyCalls(rank, launches, blocking);
  const schema::RankTables& t = rank.tables;
  std::map<std::uint32_t, ThreadEvents> threads;
  const auto of = [](const auto& table, std::uint32_t row) {
    return Interval{table.begin_ns[row], table.begin_ns[row] + table.duration_ns[row]};
  };
  for (std::uint32_t row = 0; row < t.ranges.rows(); ++row) {
    if (t.ranges.kind[row] == schema::RangeKind::kMark) continue;
    ThreadEvents& thread = threads[t.ranges.thread[row]];
    const std::uint8_t source = t.ranges.source[row], category = t.ranges.category[row];
    knows_operators_ |= source == schema::RangeSource::kCpuOp || source == schema::RangeSource::kPython;
    thread.ranges.push_back({of(t.ranges, row), row});
    if (category == schema::Category::kInput)
      thread.input.push_back(of(t.ranges, row));
    else if (category == schema::Category::kCommunication && !HostBackend(rank.Text(t.ranges.name[row])).empty())
      thread.communication.push_back(of(t.ranges, row));
  }
  for (std::uint32_t row = 0; row < t.api.rows(); ++row)
    threads[t.api.thread[row]].calls.push_back({of(t.api, row), row});
  for (std::uint32_t row = 0; row < t.mpi_calls.rows(); ++row)
    threads[t.mpi_calls.thread[row]].communication.push_back(of(t.mpi_calls, row));
  for (std::uint32_t row = 0; row < t.overheads.rows(); ++row)
    if (t.overheads.thread[row] != kNone && (t.overheads.kind[row] == schema::OverheadKind::kCompiler ||
                                             t.overheads.kind[row] == schema::OverheadKind::kLazyLoading))
      threads[t.overheads.thread[row]].load.push_back(of(t.overheads, row));

  for (auto& [number, events] : threads) {
    const std::vector<Open> ranges = Flat(std::move(events.ranges)), calls = Flat(std::move(events.calls));
    const IntervalSet input = Normalize(std::move(events.input)), load = Normalize(std::move(events.load)),
                      communication = Normalize(std::move(events.communication));
    std::vector<std::int64_t> edges;
    // Each list is in order: merged, not sorted.
    const auto add = [&](const auto& list, auto&& interval_of) {
      const auto before = static_cast<std::ptrdiff_t>(edges.size());
      for (const auto& one : list) {
        const Interval& at = interval_of(one);
        edges.push_back(at.begin);
        edges.push_back(at.end);
      }
      std::inplace_merge(edges.begin(), edges.begin() + before, edges.end());
    };
    edges.reserve(2 * (ranges.size() + calls.size() + input.size() + load.size() + communication.size()));
    for (const std::vector<Open>* list : {&ranges, &calls})
      add(*list, [](const Open& open) -> const Interval& { return open.at; });
    for (const IntervalSet* set : {&input, &load, &communication})
      add(*set, [](const Interval& interval) -> const Interval& { return interval; });
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());

    std::vector<HostMoment>& moments = moments_[number];
    Cursor range_at(ranges), call_at(calls);
    Cursor input_at(input), load_at(load), communication_at(communication);
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) {
      const std::int64_t now = edges[i];
      const Open *range = range_at.At(now), *call = call_at.At(now);
      const Interval *in_input = input_at.At(now), *in_load = load_at.At(now), *in_comm = communication_at.At(now);
      HostMoment moment{{now, edges[i + 1]},
                        HostState::kNone,
                        range != nullptr ? range->row : kNone,
                        call != nullptr ? call->row : kNone};
      if (in_input != nullptr) {
        moment.state = HostState::kInput;
      } else if (call != nullptr) {
        moment.state = of_call_[call->row];
      } else if (in_comm != nullptr) {
        moment.state = HostState::kCommunication;
      } else if (in_load != nullptr) {
        moment.state = HostState::kLoad;
      } else if (range != nullptr) {
        const std::uint8_t source = t.ranges.source[range->row];
        const bool function = source == schema::RangeSource::kPython || source == schema::RangeSource::kSystemCall;
        moment.state = source == schema::RangeSource::kCpuOp ? HostState::kOperator
                       : function                            ? HostState::kFunction
                                                             : HostState::kRange;
      } else {
        continue;
      }
      const bool goes_on = !moments.empty() && moments.back().at.end == now &&
                           std::tuple(moments.back().state, moments.back().range, moments.back().call) ==
                               std::tuple(moment.state, moment.range, moment.call);
      if (goes_on)
        moments.back().at.end = moment.at.end;
      else
        moments.push_back(moment);
    }
  }
}

}  // namespace lockstep::gpu
