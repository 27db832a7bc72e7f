#include "ingest/kineto/map/owners.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/rules/common.h"
#include "ingest/kineto/map/rank_label.h"
#include "merge/parallel.h"

namespace lockstep::ingest {
namespace {

using schema::kNone;

constexpr std::size_t kNobody = SIZE_MAX;

// A process, or all processes of one label.
using OwnerKey = std::pair<std::vector<std::pair<std::string, std::int64_t>>, std::int64_t>;

struct Owner {
  OwnerKey key;
  std::string label;  // As written; "": it has none.
  bool launches = false, steps = false;
  std::size_t place = 0;                                         // In the file.
  std::vector<std::pair<std::uint64_t, std::int64_t>> launched;  // Correlation and begin of its calls, in order.
};

// The rows of a batch that are of one owner, as far as their place tells.
struct OwnedRun {
  std::size_t owner = 0;
  bool certain = false;  // By its label, or by its own process.
  RowCounts first, end;
};

class Splitter {
 public:
  Splitter(std::vector<std::unique_ptr<Partial>>& partials, unsigned jobs) : parts_(partials), jobs_(jobs) {}

  Result<std::vector<OwnTrace>> Run() {
    if (!FindOwners()) return std::vector<OwnTrace>();
    FindRuns();
    if (!certain_ && !in_blocks_) {
      FindLaunches();
      LS_CHECK(FindDevices());
    }
    std::vector<OwnTrace> ranks(owners_.size());
    const bool told = RanksTold();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      const Owner& owner = owners_[i];
      ranks[i].name = owner.label.empty() ? fmt::format("process {}", owner.key.second) : owner.label;
      if (told) ranks[i].told_rank = ToldRank(RankLabelOf(owner.label).In("rank"));
      ranks[i].partials.resize(parts_.size());
      for (auto& part : ranks[i].partials) part = std::make_unique<Partial>();
    }
    merge::ParallelFor(jobs_, parts_.size(), [&](std::size_t p) { Divide(p, ranks); });
    parts_.clear();
    return ranks;
  }

 private:
  OwnerKey KeyOf(const std::string& label, std::int64_t pid) const {
    if (!label.empty()) return {RankLabelOf("[" + label + "]").places, -1};
    const auto at = labels_.find(pid);
    return at == labels_.end() ? OwnerKey{{}, pid} : KeyOf(at->second, -1);
  }

  // Owners launch work or mark steps. Of one process another may launch what it asks for, so at least two do the same.
  bool FindOwners() {
    std::map<std::int64_t, std::set<std::string>> given;
    for (const auto& part : parts_)
      for (const GivenName& label : part->process_labels) given[label.pid].insert(label.name);
    // A GPU's number that several ranks use tells nothing.
    for (const auto& [pid, labels] : given)
      if (labels.size() == 1) labels_.emplace(pid, *labels.begin());
    std::map<OwnerKey, Owner> found;
    for (const auto& part : parts_)
      for (const ThreadSeen& thread : part->threads) {
        const std::string& own = part->labels[thread.label];
        if (own.empty() && thread.pid < 0) continue;
        const auto [at, fresh] = found.try_emplace(KeyOf(own, thread.pid));
        if (!fresh) continue;
        at->second.key = at->first;
        at->second.label = !own.empty() || !labels_.contains(thread.pid) ? own : labels_.at(thread.pid);
        at->second.place = found.size();
      }
    if (found.size() < 2) return false;
    for (const auto& part : parts_) {
      std::vector<Owner*> of;
      for (const ThreadSeen& thread : part->threads) {
        const auto at = found.find(KeyOf(part->labels[thread.label], thread.pid));
        of.push_back(at == found.end() ? nullptr : &at->second);
      }
      for (std::size_t i = 0; i < part->api.rows(); ++i)
        if (const std::uint8_t kind = part->api.kind[i];
            (kind == schema::ApiKind::kLaunch || kind == schema::ApiKind::kGraphLaunch) && of[part->api.thread[i]])
          of[part->api.thread[i]]->launches = true;
      for (const StepMark& step : part->steps)
        if (of[step.thread]) of[step.thread]->steps = true;
    }
    for (auto& [key, owner] : found)
      if (owner.launches || owner.steps) owners_.push_back(std::move(owner));
    const auto count = [&](auto&& which) { return std::count_if(owners_.begin(), owners_.end(), which); };
    if (count([](const Owner& owner) { return !owner.label.empty(); }) < 2 &&
        count([](const Owner& owner) { return owner.launches; }) < 2 &&
        count([](const Owner& owner) { return owner.steps; }) < 2)
      return false;
    std::stable_sort(owners_.begin(), owners_.end(), [](const Owner& a, const Owner& b) {
      const RankLabel of_a = RankLabelOf("[" + a.label + "]"), of_b = RankLabelOf("[" + b.label + "]");
      return Before(of_a, of_b) || (!Before(of_b, of_a) && a.place < b.place);
    });
    for (std::size_t i = 0; i < owners_.size(); ++i) index_.emplace(owners_[i].key, i);
    for (const auto& [pid, label] : labels_)
      if (const auto at = index_.find(KeyOf(label, -1)); at != index_.end() && pid >= 0 && pid <= UINT16_MAX)
        devices_.emplace(static_cast<std::uint16_t>(pid), at->second);
    return true;
  }

  bool RanksTold() const {
    std::set<std::int64_t> ranks;
    for (const Owner& owner : owners_) ranks.insert(RankLabelOf("[" + owner.label + "]").In("rank"));
    return ranks.size() == owners_.size() && !ranks.contains(-1);
  }

  // Whose each run is. One of another process, or of none, is of the block in which it stands.
  void FindRuns() {
    runs_.resize(parts_.size());
    std::vector<std::size_t> blocks;
    std::vector<std::uint64_t> gpu_rows(owners_.size(), 0);
    std::size_t current = kNobody;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const Partial& part = *parts_[p];
      std::map<std::pair<std::uint32_t, std::int64_t>, std::size_t> known;
      for (std::size_t r = 0; r < part.runs.size(); ++r) {
        const EventRun& run = part.runs[r];
        const auto [own_owner, fresh] = known.try_emplace({run.label, run.pid}, kNobody);
        if (fresh)
          if (const auto at = index_.find(KeyOf(part.labels[run.label], run.pid)); at != index_.end())
            own_owner->second = at->second;
        if (own_owner->second != kNobody) current = own_owner->second;
        OwnedRun& own = runs_[p].emplace_back();
        own.owner = current;
        own.certain = run.label != 0 && own_owner->second != kNobody;
        own.first = run.first;
        own.end = r + 1 < part.runs.size() ? part.runs[r + 1].first : part.Rows();
        if (own.first == own.end) continue;
        certain_ &= own.certain;
        if (current == kNobody) continue;
        gpu_rows[current] += own.end.kernels - own.first.kernels + own.end.copies - own.first.copies;
        if (blocks.empty() || blocks.back() != current) blocks.push_back(current);
      }
    }
    in_blocks_ = blocks.size() == std::set<std::size_t>(blocks.begin(), blocks.end()).size();
    // Where the GPUs' events follow those of all processes, the blocks tell nothing of them.
    for (std::size_t o = 0; o < owners_.size(); ++o) in_blocks_ &= gpu_rows[o] > 0 || !owners_[o].launches;
    for (auto& runs : runs_)
      for (OwnedRun& run : runs)
        if (run.owner == kNobody) run.owner = blocks.front();
  }

  void FindLaunches() {
    for (std::size_t p = 0; p < parts_.size(); ++p)
      for (const OwnedRun& run : runs_[p])
        for (std::uint32_t i = run.first.api; i < run.end.api; ++i)
          if (const std::uint64_t correlation = parts_[p]->api.correlation[i]; correlation != 0)
            owners_[run.owner].launched.emplace_back(correlation, parts_[p]->api.begin_ns[i]);
    merge::ParallelFor(jobs_, owners_.size(),
                       [&](std::size_t o) { std::sort(owners_[o].launched.begin(), owners_[o].launched.end()); });
  }

  // Begin of the owner's last call with this number that is not after `by_ns`, else of its first one; kNoTime: none.
  std::int64_t Launched(std::size_t owner, std::uint64_t correlation, std::int64_t by_ns) const {
    const auto& launched = owners_[owner].launched;
    const auto first = std::lower_bound(launched.begin(), launched.end(), std::pair(correlation, schema::kNoTime));
    const auto after = std::upper_bound(first, launched.end(), std::pair(correlation, by_ns));
    if (after != first) return std::prev(after)->second;
    return first != launched.end() && first->first == correlation ? first->second : schema::kNoTime;
  }

  // Calls f(correlation, begin, device) with each operation of a GPU whose run does not tell whose it is.
  template <typename F>
  void Doubtful(F&& f) const {
    for (std::size_t p = 0; p < parts_.size(); ++p)
      for (const OwnedRun& run : runs_[p]) {
        if (run.certain) continue;
        const auto each = [&](const auto& table, std::uint32_t first, std::uint32_t end) {
          for (std::uint32_t i = first; i < end; ++i) f(table.correlation[i], table.begin_ns[i], table.device[i]);
        };
        each(parts_[p]->kernels, run.first.kernels, run.end.kernels);
        each(parts_[p]->copies, run.first.copies, run.end.copies);
        each(parts_[p]->sync, run.first.sync, run.end.sync);
      }
  }

  // The owners that called with this number; `one`: the only one.
  std::size_t Callers(std::uint64_t correlation, std::int64_t begin_ns, std::size_t& one) const {
    std::size_t callers = 0;
    for (std::size_t o = 0; correlation != 0 && o < owners_.size(); ++o)
      if (Launched(o, correlation, begin_ns) != schema::kNoTime) one = o, ++callers;
    return callers;
  }

  // Of a file whose events are sorted by time, correlations tell whose a GPU is; ranks that count alike launch before
  // their own GPU's work begins, and not always before the others'.
  Status FindDevices() {
    struct Votes {
      std::map<std::size_t, std::uint64_t> sure, possible;
    };
    std::map<std::uint16_t, Votes> votes;
    Doubtful([&](std::uint64_t correlation, std::int64_t begin_ns, std::uint16_t device) {
      std::size_t one = 0;
      const std::size_t callers = Callers(correlation, begin_ns, one);
      if (callers == 1) ++votes[device].sure[one];
      if (callers < 2) return;
      for (std::size_t o = 0; o < owners_.size(); ++o)
        if (const std::int64_t at = Launched(o, correlation, begin_ns); at != schema::kNoTime && at <= begin_ns)
          ++votes[device].possible[o];
    });
    for (const auto& [device, of] : votes) {
      if (devices_.contains(device)) continue;
      if (of.sure.size() == 1) devices_[device] = of.sure.begin()->first;
      if (!of.sure.empty()) continue;
      std::size_t best = 0;
      std::uint64_t most = 0, second = 0;
      for (const auto& [owner, count] : of.possible) {
        if (count > most) best = owner;
        second = std::max(second, std::min(most, count));
        most = std::max(most, count);
      }
      if (most > second) devices_[device] = best;
    }
    std::uint64_t unknown = 0, all = 0;
    Doubtful([&](std::uint64_t correlation, std::int64_t begin_ns, std::uint16_t device) {
      std::size_t one = 0;
      ++all;
      unknown += !devices_.contains(device) && Callers(correlation, begin_ns, one) > 1;
    });
    if (static_cast<double>(unknown) <= rules::kWorthShare * static_cast<double>(all)) return Ok();
    return Error{
        ErrorCode::kUnsupported,
        fmt::format("events of {} ranks that a tool merged: of {} GPU operations it cannot be told whose they are",
                    owners_.size(), unknown),
        "", "give the ranks' own traces instead of the merged one"};
  }

  std::size_t OwnerOf(const OwnedRun& run, std::uint64_t correlation, std::int64_t begin_ns,
                      std::uint16_t device) const {
    if (run.certain) return run.owner;
    if (const auto at = devices_.find(device); at != devices_.end()) return at->second;
    // The calls say less: some are not recorded, and ranks that are alike number theirs alike.
    if (in_blocks_) return run.owner;
    std::size_t one = run.owner;
    const std::size_t callers = Callers(correlation, begin_ns, one);
    if (callers == 1) return one;
    return callers == 0 ? run.owner : LastCaller(correlation, begin_ns);
  }

  std::size_t LastCaller(std::uint64_t correlation, std::int64_t begin_ns) const {
    std::size_t last = 0;
    std::int64_t last_ns = schema::kNoTime;
    for (std::size_t o = 0; o < owners_.size(); ++o)
      if (const std::int64_t at = Launched(o, correlation, begin_ns); at > last_ns && at <= begin_ns)
        last = o, last_ns = at;
    return last;
  }

  // How the numbers of a batch are translated to those of one owner's part of it.
  struct Translated {
    std::vector<std::uint32_t> strings, threads, shapes;
  };

  void Divide(std::size_t p, std::vector<OwnTrace>& ranks) {
    Partial& from = *parts_[p];
    std::vector<Translated> maps(owners_.size());
    for (Translated& map : maps) {
      map.strings.assign(from.strings.size(), kNone);
      map.threads.assign(from.threads.size(), kNone);
      map.shapes.assign(from.shapes.rows(), kNone);
    }
    const auto to = [&](std::size_t owner) -> Partial& { return *ranks[owner].partials[p]; };
    const auto text = [&](std::size_t owner, std::uint32_t& id) {
      if (id == kNone) return;
      std::uint32_t& own = maps[owner].strings[id];
      if (own == kNone) own = to(owner).strings.Intern(from.strings.Text(id));
      id = own;
    };
    const auto shape = [&](std::size_t owner, std::uint32_t& id) {
      if (id == kNone) return;
      std::uint32_t& own = maps[owner].shapes[id];
      if (own == kNone) {
        own = static_cast<std::uint32_t>(to(owner).shapes.rows());
        to(owner).shapes.Append(from.shapes.Get(id));
      }
      id = own;
    };
    const auto thread = [&](std::size_t owner, std::uint32_t& id) -> ThreadSeen& {
      std::uint32_t& own = maps[owner].threads[id];
      std::vector<ThreadSeen>& threads = to(owner).threads;
      if (own == kNone) {
        own = static_cast<std::uint32_t>(threads.size());
        ThreadSeen seen = from.threads[id];
        std::swap(seen.begin_ns, seen.end_ns);  // Its rows extend it.
        seen.records = seen.cpu_ops = seen.label = 0;
        threads.push_back(std::move(seen));
      }
      id = own;
      return threads[own];
    };
    const auto on_thread = [&](std::size_t owner, auto& row) {
      ThreadSeen& seen = thread(owner, row.thread);
      seen.begin_ns = std::min(seen.begin_ns, row.begin_ns);
      seen.end_ns = std::max(seen.end_ns, row.begin_ns + row.duration_ns);
      ++seen.records;
      text(owner, row.name);
      return &seen;
    };
    const auto args = [&](std::size_t owner, CommArgs& a) {
      for (std::uint32_t* id : {&a.name, &a.dtype, &a.group, &a.description, &a.ranks, &a.in_split, &a.out_split})
        text(owner, *id);
    };
    std::size_t comm_kernel = 0;
    for (std::size_t r = 0; r < runs_[p].size(); ++r) {
      const OwnedRun& run = runs_[p][r];
      Partial& host = to(run.owner);
      for (std::uint32_t i = run.first.api; i < run.end.api; ++i) {
        schema::Api::Row row = from.api.Get(i);
        on_thread(run.owner, row);
        host.api.Append(row);
      }
      for (std::uint32_t i = run.first.ranges; i < run.end.ranges; ++i) {
        schema::Ranges::Row row = from.ranges.Get(i);
        on_thread(run.owner, row)->cpu_ops += row.source == schema::RangeSource::kCpuOp;
        host.ranges.Append(row);
      }
      for (std::uint32_t i = run.first.gpu_memory; i < run.end.gpu_memory; ++i)
        host.gpu_memory.Append(from.gpu_memory.Get(i));
      for (std::uint32_t i = run.first.comm_events; i < run.end.comm_events; ++i) {
        CommEvent event = from.comm_events[i];
        thread(run.owner, event.thread);
        text(run.owner, event.name), text(run.owner, event.input_type), args(run.owner, event.args);
        host.comm_events.push_back(event);
      }
      for (std::uint32_t i = run.first.launch_shapes; i < run.end.launch_shapes; ++i) {
        auto launch = from.launch_shapes[i];
        shape(run.owner, launch.second);
        host.launch_shapes.push_back(launch);
      }
      for (std::uint32_t i = run.first.steps; i < run.end.steps; ++i) {
        StepMark step = from.steps[i];
        thread(run.owner, step.thread);
        host.steps.push_back(step);
      }
      for (std::uint32_t i = run.first.kernels; i < run.end.kernels; ++i) {
        schema::Kernels::Row row = from.kernels.Get(i);
        const std::size_t owner = OwnerOf(run, row.correlation, row.begin_ns, row.device);
        text(owner, row.name), shape(owner, row.shape);
        while (comm_kernel < from.comm_kernels.size() && from.comm_kernels[comm_kernel].row == i) {
          CommKernel kernel = from.comm_kernels[comm_kernel++];
          kernel.row = static_cast<std::uint32_t>(to(owner).kernels.rows());
          args(owner, kernel.args);
          to(owner).comm_kernels.push_back(kernel);
        }
        to(owner).kernels.Append(row);
      }
      const auto of_gpu = [&](auto Partial::*table, std::uint32_t first, std::uint32_t end) {
        for (std::uint32_t i = first; i < end; ++i) {
          const auto row = (from.*table).Get(i);
          (to(OwnerOf(run, row.correlation, row.begin_ns, row.device)).*table).Append(row);
        }
      };
      of_gpu(&Partial::copies, run.first.copies, run.end.copies);
      of_gpu(&Partial::sync, run.first.sync, run.end.sync);
      EventRun& own = host.runs.front();
      own.window_end_ns = std::max(own.window_end_ns, from.runs[r].window_end_ns);
      own.gpu_step_ns = std::max(own.gpu_step_ns, from.runs[r].gpu_step_ns);
    }
    for (std::size_t owner = 0; owner < owners_.size(); ++owner)
      to(owner).hip = from.hip, to(owner).host_backends = from.host_backends;
    for (const GivenName& name : from.names) {
      const auto at = index_.find(KeyOf(from.labels[name.label], name.pid));
      for (std::size_t owner = 0; owner < owners_.size(); ++owner)
        if (at == index_.end() || at->second == owner) to(owner).names.push_back(name);
    }
    // What is of no use is said once.
    Partial& first = to(0);
    first.other_categories = std::move(from.other_categories);
    first.device_categories = std::move(from.device_categories);
    std::copy(std::begin(from.skipped), std::end(from.skipped), std::begin(first.skipped));
    first.events = from.events;
    parts_[p].reset();
  }

  std::vector<std::unique_ptr<Partial>>& parts_;
  const unsigned jobs_;
  std::map<std::int64_t, std::string> labels_;  // Of processes, that metadata gives.
  std::vector<Owner> owners_;                   // In the order of ranks.
  std::map<OwnerKey, std::size_t> index_;
  std::vector<std::vector<OwnedRun>> runs_;       // Per batch, as Partial::runs.
  bool certain_ = true;                           // All runs with rows are.
  bool in_blocks_ = true;                         // One rank after the other.
  std::map<std::uint16_t, std::size_t> devices_;  // Whose they are, as far as it is known of all their work.
};

}  // namespace

Result<std::vector<OwnTrace>> TakeApart(std::vector<std::unique_ptr<Partial>>& partials, unsigned jobs) {
  return Splitter(partials, jobs).Run();
}

}  // namespace lockstep::ingest
