#include "ingest/kineto/map/join.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

#include "ingest/map/launches.h"
#include "merge/parallel.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

using schema::kNone;
using schema::kNoTime;

// How the numbers of one batch are translated.
struct Maps {
  std::vector<std::uint32_t> strings, threads, shapes;
};

std::uint32_t Mapped(const std::vector<std::uint32_t>& map, std::uint32_t id) {
  return id < map.size() ? map[id] : kNone;
}

void AddNew(const std::vector<std::string>& from, std::vector<std::string>& to) {
  constexpr std::size_t kMost = 8;
  for (const std::string& text : from)
    if (to.size() < kMost && std::find(to.begin(), to.end(), text) == to.end()) to.push_back(text);
}

class Joiner {
 public:
  Joiner(std::vector<std::unique_ptr<Partial>> partials, std::int64_t base_ns, unsigned jobs)
      : parts_(std::move(partials)), base_ns_(base_ns), jobs_(jobs), maps_(parts_.size()) {}

  std::unique_ptr<JoinedTrace> Run() {
    schema::RankTables& t = out_->tables;
    out_->strings = std::make_unique<Strings>(t.strings, t.string_bytes);
    MapStrings();
    MapThreads();
    MapShapes();
    SmallParts();
    Table(t.kernels, &Partial::kernels);
    Table(t.copies, &Partial::copies);
    Table(t.sync, &Partial::sync);
    Table(t.api, &Partial::api);
    Table(t.gpu_memory, &Partial::gpu_memory);
    Table(t.ranges, &Partial::ranges);
    parts_.clear();
    Vendor();
    // The two work on different tables.
    merge::ParallelFor(jobs_, 2, [&](std::size_t i) { i == 0 ? FromLaunches() : SetDepths(out_->tables, jobs_); });
    return std::move(out_);
  }

 private:
  void MapStrings() {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const LocalStrings& local = parts_[p]->strings;
      maps_[p].strings.reserve(local.size());
      for (std::uint32_t id = 0; id < local.size(); ++id)
        maps_[p].strings.push_back(out_->strings->Intern(local.Text(id), local.Hash(id)));
    }
  }

  void MapThreads() {
    std::map<std::tuple<std::int64_t, std::int64_t, std::string>, std::uint32_t> known;
    std::map<std::int64_t, std::uint32_t> processes;
    std::map<std::pair<std::int64_t, std::int64_t>, std::string> names;
    for (const auto& part : parts_)
      for (const GivenName& given : part->names) names[{given.pid, given.tid}] = given.name;
    schema::RankTables& t = out_->tables;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      for (const ThreadSeen& seen : parts_[p]->threads) {
        const std::int64_t begin = Shifted(seen.begin_ns, base_ns_), end = Shifted(seen.end_ns, base_ns_);
        const auto [process, new_process] =
            processes.try_emplace(seen.pid, static_cast<std::uint32_t>(t.processes.rows()));
        if (new_process) {
          const auto name = names.find({seen.pid, -1});
          t.processes.Append({.process = process->second,
                              .pid = seen.pid,
                              .parent_pid = -1,
                              .exe = name == names.end() ? kNone : out_->strings->Intern(name->second),
                              .begin_ns = begin,
                              .end_ns = end,
                              .world_rank = -1,
                              .rank_source = schema::RankSource::kNone,
                              .ended = schema::ProcessEnd::kUnknown,
                              .end_code = 0,
                              .mpi_thread_level = schema::MpiThreadLevel::kNoMpi});
        }
        const auto [at, fresh] =
            known.try_emplace({seen.pid, seen.tid, seen.name}, static_cast<std::uint32_t>(t.threads.rows()));
        if (fresh) {
          const auto name = names.find({seen.pid, seen.tid});
          const std::string& text = seen.tid >= 0 && name != names.end() ? name->second : seen.name;
          t.threads.Append({.thread = at->second,
                            .process = process->second,
                            .tid = seen.tid,
                            .name = text.empty() ? kNone : out_->strings->Intern(text),
                            .begin_ns = begin,
                            .end_ns = end,
                            .records = 0,
                            .dropped = 0,
                            .training = 0});
          cpu_ops_.push_back(0);
        }
        const std::uint32_t row = at->second;
        maps_[p].threads.push_back(row);
        t.threads.begin_ns[row] = std::min(t.threads.begin_ns[row], begin);
        t.threads.end_ns[row] = std::max(t.threads.end_ns[row], end);
        t.threads.records[row] += seen.records;
        cpu_ops_[row] += seen.cpu_ops;
        auto& of_process = t.processes;
        of_process.begin_ns[process->second] = std::min(of_process.begin_ns[process->second], begin);
        of_process.end_ns[process->second] = std::max(of_process.end_ns[process->second], end);
      }
    }
    Train();
  }

  // Chooses the thread that marks the steps, else the one with the most operators.
  void Train() {
    std::vector<std::uint64_t> marks(cpu_ops_.size(), 0);
    for (std::size_t p = 0; p < parts_.size(); ++p)
      for (const StepMark& mark : parts_[p]->steps) ++marks[maps_[p].threads[mark.thread]];
    std::size_t best = 0;
    for (std::size_t i = 1; i < marks.size(); ++i)
      if (std::tie(marks[i], cpu_ops_[i]) > std::tie(marks[best], cpu_ops_[best])) best = i;
    if (!marks.empty()) out_->tables.threads.training[best] = 1;
  }

  void MapShapes() {
    using Shape = schema::KernelShapes::Row;
    const auto key = [](const Shape& s) {
      return std::tuple(s.grid_x, s.grid_y, s.grid_z, s.block_x, s.block_y, s.block_z, s.registers_per_thread,
                        s.static_shared_bytes, s.dynamic_shared_bytes, s.occupancy_percent);
    };
    std::map<decltype(key(Shape())), std::uint32_t> known;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      const schema::KernelShapes& shapes = parts_[p]->shapes;
      for (std::size_t i = 0; i < shapes.rows(); ++i) {
        const Shape shape = shapes.Get(i);
        const auto [at, fresh] =
            known.try_emplace(key(shape), static_cast<std::uint32_t>(out_->tables.kernel_shapes.rows()));
        if (fresh) out_->tables.kernel_shapes.Append(shape);
        maps_[p].shapes.push_back(at->second);
      }
    }
  }

  void SmallParts() {
    std::size_t kernels = 0;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      Partial& part = *parts_[p];
      const Maps& map = maps_[p];
      const auto text = [&](std::uint32_t& id) { id = id == kNone ? kNone : Mapped(map.strings, id); };
      const auto args = [&](CommArgs& a) {
        for (std::uint32_t* id : {&a.name, &a.dtype, &a.group, &a.description, &a.ranks, &a.in_split, &a.out_split})
          text(*id);
      };
      for (CommEvent& event : part.comm_events) {
        event.thread = Mapped(map.threads, event.thread);
        event.begin_ns = Shifted(event.begin_ns, base_ns_);
        event.end_ns = Shifted(event.end_ns, base_ns_);
        text(event.name), text(event.input_type), args(event.args);
        out_->comm_events.push_back(event);
      }
      for (CommKernel& kernel : part.comm_kernels) {
        kernel.row += static_cast<std::uint32_t>(kernels);
        args(kernel.args);
        out_->comm_kernels.push_back(kernel);
      }
      for (const StepMark& mark : part.steps)
        out_->steps.push_back({mark.index, Shifted(mark.begin_ns, base_ns_), Shifted(mark.end_ns, base_ns_),
                               Mapped(map.threads, mark.thread)});
      for (const auto& [correlation, shape] : part.launch_shapes)
        launch_shapes_.emplace_back(correlation, Mapped(map.shapes, shape));
      AddNew(part.other_categories, out_->other_categories);
      AddNew(part.device_categories, out_->device_categories);
      for (std::size_t i = 0; i < std::size(part.skipped); ++i) out_->skipped[i] += part.skipped[i];
      for (const EventRun& run : part.runs)
        for (const auto& [latest, ns] :
             {std::pair(&out_->gpu_step_ns, run.gpu_step_ns), std::pair(&out_->window_end_ns, run.window_end_ns)})
          if (ns != kNoTime) *latest = std::max(*latest, Shifted(ns, base_ns_));
      out_->hip |= part.hip;
      out_->host_backends.merge(part.host_backends);
      kernels += part.kernels.rows();
    }
  }

  // Copies one column after the other from every batch, with its numbers translated, and frees it there.
  template <typename Columns>
  void Table(Columns& to, Columns Partial::*member) {
    std::vector<std::size_t> first(parts_.size() + 1, 0);
    for (std::size_t p = 0; p < parts_.size(); ++p) first[p + 1] = first[p] + ((*parts_[p]).*member).rows();
    std::size_t column = 0;
    to.ForEachColumn([&](const schema::ColumnInfo& info, auto& values) {
      const std::size_t wanted = column++;
      values.resize(first.back());
      merge::ParallelFor(jobs_, parts_.size(), [&](std::size_t p) {
        std::size_t at = 0;
        ((*parts_[p]).*member).ForEachColumn([&](const schema::ColumnInfo&, auto& from) {
          if (at++ != wanted) return;
          if constexpr (std::is_same_v<std::remove_reference_t<decltype(from)>,
                                       std::remove_reference_t<decltype(values)>>) {
            Copy(info, maps_[p], from, values.data() + first[p]);
            // It could be freed, but rows() counts the first column, so it stays until the table is finished.
            if (wanted > 0) std::remove_reference_t<decltype(from)>().swap(from);
          }
        });
      });
    });
    for (auto& part : parts_) (*part).*member = Columns();
  }

  template <typename T>
  void Copy(const schema::ColumnInfo& info, const Maps& map, const std::vector<T>& from, T* to) {
    if constexpr (std::is_same_v<T, std::uint32_t>) {
      const std::vector<std::uint32_t>* by = info.role == schema::Role::kText ? &map.strings
                                             : info.name == "thread"          ? &map.threads
                                             : info.name == "shape"           ? &map.shapes
                                                                              : nullptr;
      if (by != nullptr) {
        for (const std::uint32_t id : from) *to++ = Mapped(*by, id);
        return;
      }
    }
    if constexpr (std::is_same_v<T, std::int64_t>) {
      if (base_ns_ != 0 && info.clock == schema::ClockOf::kRank) {
        for (const std::int64_t ns : from) *to++ = Shifted(ns, base_ns_);
        return;
      }
    }
    if (!from.empty()) std::memcpy(to, from.data(), from.size() * sizeof(T));
  }

  // GPU events do not contain the vendor; the runtime's calls and the devices do.
  void Vendor() {
    if (!out_->hip) return;
    schema::RankTables& t = out_->tables;
    for (auto* column : {&t.kernels.vendor, &t.copies.vendor, &t.sync.vendor})
      std::fill(column->begin(), column->end(), std::uint8_t{schema::Vendor::kAmd});
  }

  // Adds facts that only the launching call contains: AMD's launch geometry, and others for all vendors.
  void FromLaunches() {
    schema::RankTables& t = out_->tables;
    std::stable_sort(launch_shapes_.begin(), launch_shapes_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    if (!launch_shapes_.empty()) {
      for (std::size_t i = 0; i < t.kernels.rows(); ++i) {
        if (t.kernels.shape[i] != kNone || t.kernels.correlation[i] == 0) continue;
        const auto at = std::lower_bound(launch_shapes_.begin(), launch_shapes_.end(),
                                         std::pair(t.kernels.correlation[i], std::uint32_t{0}));
        if (at != launch_shapes_.end() && at->first == t.kernels.correlation[i]) t.kernels.shape[i] = at->second;
      }
    }
    TieLaunches(*out_);
  }

  std::vector<std::unique_ptr<Partial>> parts_;
  const std::int64_t base_ns_;
  const unsigned jobs_;
  std::vector<Maps> maps_;
  std::vector<std::uint64_t> cpu_ops_;                                  // Per thread.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> launch_shapes_;  // Correlation, row of kernel_shapes.
  std::unique_ptr<JoinedTrace> out_ = std::make_unique<JoinedTrace>();
};

}  // namespace

std::unique_ptr<JoinedTrace> Join(std::vector<std::unique_ptr<Partial>> partials, std::int64_t base_ns, unsigned jobs) {
  return Joiner(std::move(partials), base_ns, jobs).Run();
}

}  // namespace lockstep::ingest
