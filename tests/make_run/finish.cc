// What the file says about the rank itself, its clocks, and what is damaged in it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/loss.h"
#include "make_run/emitter.h"

namespace lockstep::make_run {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kBurstLead = 5'000'000;  // Bursts and snapshots begin this long before the epoch.

// Nanoseconds, exponential with the given mean.
std::int64_t Exponential(std::uint64_t random, std::int64_t mean_ns) {
  const double u = (static_cast<double>(random >> 11) + 0.5) / 9007199254740992.0;  // 2^53
  return static_cast<std::int64_t>(-std::log(u) * static_cast<double>(mean_ns));
}

template <typename Table>
void Permute(Table& table, const std::vector<std::uint32_t>& order) {
  table.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
    auto moved = values;
    for (std::size_t i = 0; i < order.size(); ++i) moved[i] = values[order[i]];
    values = std::move(moved);
  });
}

template <typename Table>
std::vector<std::uint32_t> OrderByBegin(const Table& table) {
  std::vector<std::uint32_t> order(table.rows());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return table.begin_ns[a] < table.begin_ns[b]; });
  return order;
}

}  // namespace

void Emitter::Meta(std::string_view key, std::string_view value) {
  tables_.meta.Append({.key = strings_.Intern(key), .value = strings_.Intern(value)});
}

schema::RankTables Emitter::Finish(std::int64_t end, std::int32_t signal, bool cut, std::int64_t cpu_ns) {
  while (!open_ranges_.empty()) {
    const std::size_t row = open_ranges_.back();
    open_ranges_.pop_back();
    tables_.ranges.duration_ns[row] = std::max<std::int64_t>(0, last_sign_ - tables_.ranges.begin_ns[row]);
    tables_.ranges.open[row] = 1;
  }
  if (step_open_)
    tables_.steps.Append({.index = step_index_,
                          .begin_ns = step_begin_,
                          .end_ns = last_sign_,
                          .warmup = static_cast<std::uint8_t>(step_index_ < spec_.warmup),
                          .thread = 0,
                          .cpu_ns = -1});
  const std::int32_t node = spec_.NodeOf(rank_), domain = spec_.DomainOf(rank_);
  Meta("schema_version", "1");
  Meta("rank", std::to_string(rank_));
  Meta("world_size", std::to_string(spec_.ranks));
  Meta("rank_source", spec_.gpu ? "env" : "mpi");
  Meta("host", fmt::format("node{}", node));
  Meta("node", fmt::format("node{}", node));
  Meta("clock_domain", fmt::format("{:016x}", Random(0xd0, static_cast<std::uint64_t>(domain), 0, 0)));
  Meta("clock_mode", "raw");
  Meta("pid", std::to_string(1000 + rank_));
  Meta("agent_pid", std::to_string(100000 + rank_));
  Meta("command", "synthetic");
  Meta("run_id", "make_run");
  Meta("app_cpu_ns", std::to_string(cpu_ns));
  Meta("agent_cpu_ns", std::to_string(cpu_ns / 1000));
  Meta("allowed_cores", "1");
  std::int32_t core = 0;  // Each rank has one of its own.
  while (core < rank_ && spec_.NodeOf(rank_ - core - 1) == spec_.NodeOf(rank_)) ++core;
  Meta("allowed_cpus", std::to_string(core));
  Meta("recording", "all");
  Meta("blocked", "on");
  Meta("sources", spec_.gpu ? "cupti,nccl" : "pmpi");
  if (spec_.gpu) {
    Meta("cuda_driver_version", "13000");
    Meta("cupti_version", "130001");
    Meta("fact.nccl_plugin", "version=5");
  }
  if (!cut) {
    Meta("exit_code", signal == 0 ? "0" : "-1");
    Meta("exit_signal", signal == 0 ? "" : std::to_string(signal));
  }
  const std::int64_t begin = clock_.Show(spec_.epoch_ns);
  tables_.processes.Append({.process = 0,
                            .pid = 1000 + rank_,
                            .parent_pid = 100000 + rank_,
                            .exe = strings_.Intern("synthetic"),
                            .begin_ns = begin,
                            .end_ns = last_sign_,
                            .world_rank = rank_,
                            .rank_source = static_cast<std::uint8_t>(spec_.gpu ? 2 : 1),
                            .ended = static_cast<std::uint8_t>(cut           ? 0
                                                               : signal == 0 ? 1
                                                                             : 2),
                            .end_code = cut ? 0 : signal,
                            .mpi_thread_level = static_cast<std::uint8_t>(last_thread_ > 0 ? 3 : 0)});
  for (std::uint32_t thread = 0; thread <= last_thread_; ++thread)
    tables_.threads.Append({.thread = thread,
                            .process = 0,
                            .tid = 1000 + rank_ + static_cast<std::int64_t>(thread) * 1'000'000,
                            .name = strings_.Intern(thread == 0 ? "main" : "progress"),
                            .begin_ns = begin,
                            .end_ns = last_sign_,
                            .records = 0,
                            .training = static_cast<std::uint8_t>(thread == 0)});
  SortByBegin();
  if (spec_.gpu) AddDevice(end);
  AddStacks(end);
  AddSnapshots(end);
  AddBursts(end);
  ApplyDamage();
  return std::move(tables_);
}

void Emitter::SortByBegin() {
  const std::vector<std::uint32_t> order = OrderByBegin(tables_.mpi_calls);
  std::vector<std::uint32_t> now(order.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) now[order[i]] = i;
  Permute(tables_.mpi_calls, order);
  for (std::uint32_t& call : tables_.collectives.call)
    if (call != schema::kNone) call = now[call];
  for (std::uint32_t& call : tables_.p2p.call)
    if (call != schema::kNone) call = now[call];
  Permute(tables_.ranges, OrderByBegin(tables_.ranges));
  // Kernels of two streams: keep the collectives' references.
  const std::vector<std::uint32_t> kernels = OrderByBegin(tables_.kernels);
  now.resize(kernels.size());
  for (std::uint32_t i = 0; i < kernels.size(); ++i) now[kernels[i]] = i;
  Permute(tables_.kernels, kernels);
  for (auto* column : {&tables_.collectives.kernel, &tables_.p2p.kernel})
    for (std::uint32_t& kernel : *column)
      if (kernel != schema::kNone) kernel = now[kernel];
}

void Emitter::AddDevice(std::int64_t end) {
  tables_.devices.Append({.device = 0,
                          .name = strings_.Intern("NVIDIA H200"),
                          .memory_bytes = 150'754'820'096,
                          .sm_count = 132,
                          .max_threads_per_sm = 2048,
                          .compute_major = 9,
                          .compute_minor = 0,
                          .vendor = 1});
  if (spec_.sensors.period_ns <= 0) return;
  const ThrottleSpec* throttle = nullptr;
  for (const ThrottleSpec& each : spec_.throttled)
    if (each.rank == rank_) throttle = &each;
  for (std::int64_t at = spec_.epoch_ns; at <= end; at += spec_.sensors.period_ns)
    tables_.gpu_samples.Append({.time_ns = clock_.Show(at),
                                .device = 0,
                                .sm_clock_mhz = static_cast<std::uint32_t>(
                                    throttle != nullptr ? throttle->clock_mhz : spec_.sensors.clock_mhz),
                                .memory_clock_mhz = 3201,
                                .power_mw = throttle != nullptr ? 700'000u : 520'000u,
                                .temperature_c = throttle != nullptr ? 88u : 61u,
                                .utilization_percent = 97,
                                .throttle_reasons = throttle != nullptr ? throttle->reasons : 0,
                                .vendor = 1});
}

// Where the rank is: in an MPI call, or in the ranges that are open, as functions of train.py with one line each.
void Emitter::AddStacks(std::int64_t end) {
  for (const StackSpec& spec : spec_.stacks) {
    if (spec.rank != rank_) continue;
    if (spec.compared >= 0) Meta("stacks_compared_with", std::to_string(spec.compared));
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> rows;  // Of the caller and the name.
    const auto frame = [&](std::uint32_t caller, std::uint32_t name, bool library) {
      const auto [at, fresh] =
          rows.try_emplace({caller, name}, static_cast<std::uint32_t>(tables_.stacks.function.size()));
      if (fresh)
        tables_.stacks.Append({.parent = caller,
                               .function = name,
                               .file = strings_.Intern(library ? "libc.so.6" : "train.py"),
                               .line = library ? 0 : 10 + name % 90,
                               .python = static_cast<std::uint8_t>(!library),
                               .library = static_cast<std::uint8_t>(library)});
      return at->second;
    };
    for (std::int64_t at = spec_.epoch_ns; at < end; at += spec.period_ns) {
      const std::int64_t now = clock_.Show(at);
      bool inside = false;
      for (std::size_t i = 0; i < tables_.mpi_calls.rows() && !inside; ++i)
        inside = tables_.mpi_calls.begin_ns[i] <= now &&
                 now < tables_.mpi_calls.begin_ns[i] + tables_.mpi_calls.duration_ns[i];
      std::uint32_t stack = schema::kNone;
      if (!inside) {
        stack = frame(frame(schema::kNone, strings_.Intern("__libc_start_main"), true), strings_.Intern("main"), false);
        for (std::size_t i = 0; i < tables_.ranges.rows(); ++i)
          if (tables_.ranges.begin_ns[i] <= now && now < tables_.ranges.begin_ns[i] + tables_.ranges.duration_ns[i])
            stack = frame(stack, tables_.ranges.name[i], false);
      }
      tables_.samples.Append({.time_ns = now, .thread = 0, .stack = stack, .stopped_ns = 20'000});
    }
  }
}

void Emitter::AddSnapshots(std::int64_t end) {
  constexpr std::int64_t kBoot = 100 * kSecond, kRealtime = 1'700'000'000 * kSecond;
  for (std::int64_t at = spec_.epoch_ns - kBurstLead;; at = std::min(at + kSecond, end + kBurstLead)) {
    const std::int64_t raw = clock_.Show(at);
    tables_.clock_snapshots.Append({.ticks = static_cast<std::uint64_t>(raw),
                                    .raw_ns = raw,
                                    .monotonic_ns = at + kBoot,
                                    .realtime_ns = at + kRealtime,
                                    .width_ns = 100});
    if (at == end + kBurstLead) break;
  }
}

void Emitter::AddBursts(std::int64_t end) {
  const std::int32_t domain = spec_.DomainOf(rank_);
  if (!spec_.bursts_given || domain == spec_.DomainOf(0)) return;
  // A domain is one rank, or (a part of) a node: ranks of another node need not be asked.
  for (std::int32_t other = rank_ - 1; other >= 0 && spec_.NodeOf(other) == spec_.NodeOf(rank_); --other)
    if (spec_.DomainOf(other) == domain) return;  // Another rank leads this domain.
  const TrueClock peer(spec_, 0);
  const BurstSpec& b = spec_.bursts;
  std::uint32_t burst = 0;
  for (std::int64_t at = spec_.epoch_ns - kBurstLead;; at = std::min(at + b.period_ns, end + kBurstLead)) {
    std::int64_t t = at;
    for (std::int32_t i = 0; i < b.count; ++i) {
      const auto noise = [&](std::uint64_t direction) {
        return Exponential(Random(spec_.seed ^ 2, static_cast<std::uint64_t>(rank_), burst,
                                  static_cast<std::uint64_t>(i) * 2 + direction),
                           b.noise_ns);
      };
      const std::int64_t there = b.rtt_ns / 2 + b.asymmetry_ns / 2 + noise(0);
      const std::int64_t back = b.rtt_ns / 2 - b.asymmetry_ns / 2 + noise(1);
      constexpr std::int64_t kTurn = 300;
      tables_.clock_bursts.Append({.burst = burst,
                                   .peer_rank = 0,
                                   .transport = static_cast<std::uint8_t>(at < spec_.epoch_ns || at > end ? 1 : 2),
                                   .send_ns = clock_.Show(t),
                                   .peer_receive_ns = peer.Show(t + there),
                                   .peer_send_ns = peer.Show(t + there + kTurn),
                                   .receive_ns = clock_.Show(t + there + kTurn + back)});
      t += there + kTurn + back + 1000;
    }
    ++burst;
    if (at == end + kBurstLead) break;
  }
}

void Emitter::ApplyDamage() {
  std::uint64_t dropped = 0;
  for (const Damage& damage : spec_.damage) {
    if (damage.rank != rank_) continue;
    tables_.ForEachTable([&](auto& table) {
      if (std::decay_t<decltype(table)>::kInfo.name != damage.table || damage.row >= table.rows()) return;
      const std::uint64_t count = std::min<std::uint64_t>(damage.count, table.rows() - damage.row);
      table.ForEachColumn([&](const schema::ColumnInfo&, auto& values) {
        const auto first = values.begin() + static_cast<std::ptrdiff_t>(damage.row);
        values.erase(first, first + static_cast<std::ptrdiff_t>(count));
      });
      if (damage.counted) dropped += count;
    });
  }
  if (dropped == 0) return;
  tables_.threads.dropped[0] += dropped;
  tables_.losses.Append({.name = strings_.Intern(Info(Loss::kRingFull).name),
                         .count = dropped,
                         .first_ns = clock_.Show(spec_.epoch_ns),
                         .last_ns = last_sign_,
                         .thread = 0,
                         .detail = schema::kNone});
}

}  // namespace lockstep::make_run
