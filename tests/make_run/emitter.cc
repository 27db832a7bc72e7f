#include "make_run/emitter.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/hash.h"
#include "core/loss.h"

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

std::uint64_t Random(std::uint64_t a, std::uint64_t b, std::uint64_t c, std::uint64_t d) {
  const auto mix = [](std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  };
  std::uint64_t h = 0x6c6f636b;
  for (const std::uint64_t word : {a, b, c, d}) h = mix(h ^ mix(word + 0x9e3779b97f4a7c15u));
  return h;
}

TrueClock::TrueClock(const Spec& spec, std::int32_t rank) : epoch_ns_(spec.epoch_ns) {
  const auto at = spec.clocks.find(rank);
  const auto node = spec.node_clocks.find(spec.NodeOf(rank));
  if (at != spec.clocks.end())
    clock_ = at->second;
  else if (node != spec.node_clocks.end())
    clock_ = node->second;
}

std::int64_t TrueClock::Show(std::int64_t true_ns) const {
  const std::int64_t x = true_ns - epoch_ns_;
  double shift = static_cast<double>(x) * 1e-9 * static_cast<double>(clock_.drift_ppb);
  const auto wander = [&](std::int64_t amplitude, std::int64_t period) {
    if (amplitude != 0 && period != 0)
      shift += static_cast<double>(amplitude) *
               std::sin(2 * std::numbers::pi * static_cast<double>(x) / static_cast<double>(period));
  };
  wander(clock_.wander_ns, clock_.wander_period_ns);
  wander(clock_.wander2_ns, clock_.wander2_period_ns);
  std::int64_t shown = true_ns + clock_.offset_ns + std::llround(shift);
  if (clock_.step_at_ns >= 0 && x >= clock_.step_at_ns) shown += clock_.step_ns;
  return shown;
}

std::int32_t GroupOf(const Spec& spec, std::size_t comm, std::int32_t rank) {
  const CommSpec& c = spec.comms[comm];
  if (c.block > 0) return rank / c.block;
  if (c.stride > 0) return rank % c.stride;
  if (!c.ranks.empty()) return std::find(c.ranks.begin(), c.ranks.end(), rank) == c.ranks.end() ? -1 : 0;
  return 0;
}
std::int32_t GroupCount(const Spec& spec, std::size_t comm) {
  const CommSpec& c = spec.comms[comm];
  if (c.block > 0) return (spec.ranks + c.block - 1) / c.block;
  if (c.stride > 0) return std::min(c.stride, spec.ranks);
  return 1;
}
std::int32_t MemberCount(const Spec& spec, std::size_t comm, std::int32_t group) {
  const CommSpec& c = spec.comms[comm];
  if (c.block > 0) return std::min(c.block, spec.ranks - group * c.block);
  if (c.stride > 0) return (spec.ranks - group + c.stride - 1) / c.stride;
  return c.ranks.empty() ? spec.ranks : static_cast<std::int32_t>(c.ranks.size());
}
std::vector<std::int32_t> Members(const Spec& spec, std::size_t comm, std::int32_t group) {
  const CommSpec& c = spec.comms[comm];
  if (!c.ranks.empty()) return c.ranks;
  std::vector<std::int32_t> members(static_cast<std::size_t>(MemberCount(spec, comm, group)));
  for (std::size_t i = 0; i < members.size(); ++i) {
    const auto n = static_cast<std::int32_t>(i);
    members[i] = c.block > 0 ? group * c.block + n : c.stride > 0 ? group + n * c.stride : n;
  }
  return members;
}

Emitter::Emitter(const Spec& spec, std::int32_t rank)
    : spec_(spec),
      rank_(rank),
      clock_(spec, rank),
      strings_(tables_.strings, tables_.string_bytes),
      local_comm_(spec.comms.size(), schema::kNone),
      next_seq_(spec.comms.size(), 0),
      last_sign_(clock_.Show(spec.epoch_ns)) {
  AddComms();
}

void Emitter::AddComms() {
  const std::int64_t begin = clock_.Show(spec_.epoch_ns);
  std::uint64_t world_id = 0;
  for (std::size_t i = 0; i < spec_.comms.size(); ++i) {
    const std::int32_t group = GroupOf(spec_, i, rank_);
    if (group < 0) continue;
    const std::vector<std::int32_t> members = Members(spec_, i, group);
    Hash64 hash;
    hash.Add(spec_.comms[i].name);
    hash.Add(static_cast<std::uint64_t>(members.front()));
    hash.Add(static_cast<std::uint64_t>(members.size()));
    if (i == 0) world_id = hash.value();
    const std::int32_t stride = members.size() > 1 ? members[1] - members[0] : 1;
    bool regular = stride != 0;
    for (std::size_t m = 0; m < members.size(); ++m)
      regular &= members[m] == members[0] + static_cast<std::int32_t>(m) * stride;
    local_comm_[i] = static_cast<std::uint32_t>(tables_.comms.rows());
    tables_.comms.Append({.comm = local_comm_[i],
                          .global_id = hash.value(),
                          .parent_id = i == 0 ? 0 : world_id,
                          .size = static_cast<std::uint32_t>(members.size()),
                          .rank = CommRank(i, rank_),
                          .kind = static_cast<std::uint8_t>(spec_.gpu ? 3 : 0),
                          .first_world_rank = members.front(),
                          .stride = regular ? stride : 0,
                          .name = strings_.Intern(i == 0 ? "MPI_COMM_WORLD" : spec_.comms[i].name),
                          .begin_ns = begin,
                          .end_ns = schema::kNoTime});
    if (!regular)
      for (std::size_t m = 0; m < members.size(); ++m)
        tables_.comm_members.Append(
            {.comm = local_comm_[i], .comm_rank = static_cast<std::uint32_t>(m), .world_rank = members[m]});
  }
}

std::int32_t Emitter::CommRank(std::size_t comm, std::int32_t world_rank) const {
  const std::vector<std::int32_t> members = Members(spec_, comm, GroupOf(spec_, comm, world_rank));
  return static_cast<std::int32_t>(std::find(members.begin(), members.end(), world_rank) - members.begin());
}

std::uint32_t Emitter::Mpi(std::uint32_t thread, MpiOp op, std::int64_t begin, std::int64_t end,
                           schema::MpiCalls::Row row) {
  row.begin_ns = clock_.Show(begin);
  row.duration_ns = clock_.Show(end) - row.begin_ns;
  row.thread = thread;
  row.op = static_cast<std::uint16_t>(op);
  if (row.comm != schema::kNone) row.comm = local_comm_[row.comm];
  progress_thread_ |= thread != 0;
  Sign(row.begin_ns + row.duration_ns);
  tables_.mpi_calls.Append(row);
  return static_cast<std::uint32_t>(tables_.mpi_calls.rows() - 1);
}

std::uint32_t Emitter::Collective(const CollectiveStart& start) {
  const Op& op = *start.op;
  std::uint64_t seq = 0;
  std::uint32_t nth = 0;
  if (start.mode == 2) {
    for (PersistentOp& init : persistent_)
      if (init.name == op.name) {
        seq = init.seq;
        nth = ++init.starts;
      }
  } else {
    seq = next_seq_[op.comm]++;
  }
  const bool rooted = RootSends(op.collective) || RootReceives(op.collective);
  const bool barrier = op.collective == CollectiveKind::kBarrier;
  tables_.collectives.Append({.comm = local_comm_[op.comm],
                              .seq = seq,
                              .start = nth,
                              .kind = static_cast<std::uint8_t>(op.collective),
                              .mode = start.mode,
                              .begin_ns = clock_.Show(start.begin_ns),
                              .post_end_ns = clock_.Show(start.post_end_ns),
                              .last_incomplete_ns = schema::kNoTime,
                              .wait_begin_ns = schema::kNoTime,
                              .end_ns = schema::kNoTime,
                              .bytes = op.bytes,
                              .count = op.bytes / 4,
                              .dtype = static_cast<std::uint16_t>(barrier ? DataType::kUnknown : DataType::kFloat32),
                              .root = rooted ? op.root : -1,
                              .call = start.call,
                              .kernel = start.kernel});
  return static_cast<std::uint32_t>(tables_.collectives.rows() - 1);
}

void Emitter::Complete(std::uint32_t row, std::int64_t last_incomplete, std::int64_t wait_begin, std::int64_t end) {
  schema::Collectives& c = tables_.collectives;
  if (last_incomplete != schema::kNoTime) c.last_incomplete_ns[row] = clock_.Show(last_incomplete);
  c.wait_begin_ns[row] = clock_.Show(wait_begin);
  c.end_ns[row] = clock_.Show(end);
}

void Emitter::Init(const Op& op, std::int64_t, std::int64_t) { persistent_.push_back({op.name, next_seq_[op.comm]++}); }

void Emitter::Ring(const Op& op, std::int64_t begin, std::int64_t end) {
  const auto n = static_cast<std::int64_t>(spec_.ranks);
  const auto peer = [&](std::int64_t shift) { return static_cast<std::int32_t>(((rank_ + shift) % n + n) % n); };
  const std::uint32_t call = Mpi(0, MpiOp::kSendrecv, begin, end,
                                 {.comm = 0, .bytes = op.bytes, .peer = peer(op.shift), .tag = op.shift, .count = 1});
  const std::uint64_t seq = rings_++;
  for (const std::uint8_t direction : {std::uint8_t{0}, std::uint8_t{1}}) {
    const std::int32_t partner = peer(direction == 0 ? op.shift : -op.shift);
    tables_.p2p.Append({.comm = local_comm_[0],
                        .direction = direction,
                        .peer = partner,
                        .peer_world_rank = partner,
                        .tag = op.shift,
                        .seq = seq,
                        .begin_ns = clock_.Show(begin),
                        .post_end_ns = clock_.Show(end),
                        .last_incomplete_ns = schema::kNoTime,
                        .wait_begin_ns = clock_.Show(begin),
                        .end_ns = clock_.Show(end),
                        .bytes = op.bytes,
                        .call = call});
  }
}

void Emitter::Push(std::string_view name, std::uint8_t category, std::int64_t at) {
  open_ranges_.push_back(tables_.ranges.rows());
  tables_.ranges.Append({.begin_ns = clock_.Show(at),
                         .name = strings_.Intern(name),
                         .domain = schema::kNone,
                         .category = category,
                         .depth = static_cast<std::uint16_t>(open_ranges_.size() - 1)});
  Sign(clock_.Show(at));
}
void Emitter::Pop(std::int64_t at) {
  if (open_ranges_.empty()) return;
  const std::size_t row = open_ranges_.back();
  open_ranges_.pop_back();
  tables_.ranges.duration_ns[row] = clock_.Show(at) - tables_.ranges.begin_ns[row];
  Sign(clock_.Show(at));
}

void Emitter::Cpu(std::int64_t at, std::int64_t cpu_ns, std::int64_t run_delay_ns) {
  tables_.cpu_samples.Append({.time_ns = clock_.Show(at), .thread = 0, .cpu_ns = cpu_ns, .run_delay_ns = run_delay_ns});
  Sign(clock_.Show(at));
}

void Emitter::Mark(std::int64_t index, bool last, std::int64_t at, std::int64_t cpu_ns) {
  const std::int64_t now = clock_.Show(at);
  Sign(now);
  if (step_open_)
    tables_.steps.Append({.index = step_index_,
                          .begin_ns = step_begin_,
                          .end_ns = now,
                          .complete = 1,
                          .warmup = static_cast<std::uint8_t>(step_index_ < spec_.warmup),
                          .cpu_ns = cpu_ns - step_cpu_});
  step_open_ = !last;
  step_index_ = index;
  step_begin_ = now;
  step_cpu_ = cpu_ns;
}

std::uint32_t Emitter::Kernel(std::string_view name, std::uint32_t stream, std::uint64_t correlation, std::uint8_t work,
                              std::int64_t begin, std::int64_t end) {
  if (tables_.kernel_shapes.rows() == 0)
    tables_.kernel_shapes.Append({.grid_x = 108,
                                  .grid_y = 1,
                                  .grid_z = 1,
                                  .block_x = 256,
                                  .block_y = 1,
                                  .block_z = 1,
                                  .registers_per_thread = 64});
  const std::int64_t from = clock_.Show(begin);
  tables_.kernels.Append({.begin_ns = from,
                          .duration_ns = clock_.Show(end) - from,
                          .context = 1,
                          .stream = stream,
                          .correlation = correlation,
                          .name = strings_.Intern(name),
                          .work = work,
                          .work_rule = static_cast<std::uint8_t>(work == 1 ? 1 : 0),
                          .vendor = 1});
  Sign(clock_.Show(end));
  return static_cast<std::uint32_t>(tables_.kernels.rows() - 1);
}
void Emitter::Copy(const Op& op, std::uint32_t stream, std::uint64_t correlation, std::int64_t begin,
                   std::int64_t end) {
  const std::int64_t from = clock_.Show(begin);
  tables_.copies.Append({.begin_ns = from,
                         .duration_ns = clock_.Show(end) - from,
                         .context = 1,
                         .stream = stream,
                         .correlation = correlation,
                         .kind = op.copy_kind,
                         .bytes = op.bytes,
                         .source_device = op.copy_kind == 1 ? -1 : 0,
                         .destination_device = op.copy_kind == 2 ? -1 : 0,
                         .asynchronous = op.asynchronous,
                         .vendor = 1});
  Sign(clock_.Show(end));
}
void Emitter::Sync(std::uint8_t kind, std::uint32_t stream, std::uint64_t correlation, std::int64_t begin,
                   std::int64_t end) {
  const std::int64_t from = clock_.Show(begin);
  tables_.sync.Append({.begin_ns = from,
                       .duration_ns = clock_.Show(end) - from,
                       .kind = kind,
                       .context = 1,
                       .stream = stream,
                       .event = kind == 2 ? correlation : 0,
                       .correlation = correlation,
                       .vendor = 1});
}
void Emitter::Api(std::string_view name, std::uint8_t kind, std::uint64_t correlation, std::int64_t begin,
                  std::int64_t end) {
  const std::int64_t from = clock_.Show(begin);
  tables_.api.Append({.begin_ns = from,
                      .duration_ns = clock_.Show(end) - from,
                      .name = strings_.Intern(name),
                      .kind = kind,
                      .correlation = correlation,
                      .vendor = 1});
  Sign(clock_.Show(end));
}

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
  Meta("recording", "all");
  Meta("sources", spec_.gpu ? "cupti,nccl" : "pmpi");
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
                            .mpi_thread_level = static_cast<std::uint8_t>(progress_thread_ ? 3 : 0)});
  for (std::uint32_t thread = 0; thread < (progress_thread_ ? 2u : 1u); ++thread)
    tables_.threads.Append({.thread = thread,
                            .tid = 1000 + rank_ + static_cast<std::int64_t>(thread) * 1'000'000,
                            .name = strings_.Intern(thread == 0 ? "main" : "progress"),
                            .begin_ns = begin,
                            .end_ns = last_sign_,
                            .records = 0,
                            .training = static_cast<std::uint8_t>(thread == 0)});
  SortByBegin();
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
  for (std::uint32_t& kernel : tables_.collectives.kernel)
    if (kernel != schema::kNone) kernel = now[kernel];
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
  for (std::int32_t other = 0; other < rank_; ++other)
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
