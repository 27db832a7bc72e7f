#include "make_run/emitter.h"

#include <algorithm>

#include "core/hash.h"
#include "core/uneven.h"

namespace lockstep::make_run {

Emitter::Emitter(const Spec& spec, std::int32_t rank)
    : spec_(spec),
      rank_(rank),
      clock_(spec, rank),
      strings_(tables_.strings, tables_.string_bytes),
      local_comm_(spec.comms.size(), schema::kNone),
      last_sign_(clock_.Show(spec.epoch_ns)) {
  AddComms();
}

void Emitter::AddComms() {
  const std::int64_t begin = clock_.Show(spec_.epoch_ns);
  std::uint64_t world_id = 0;
  for (std::size_t i = 0; i < spec_.comms.size(); ++i) {
    const std::int32_t group = GroupOf(spec_, i, rank_);
    if (group < 0) continue;
    const std::int32_t size = MemberCount(spec_, i, group), first = Member(spec_, i, group, 0);
    Hash64 hash;
    hash.Add(spec_.comms[i].name);
    hash.Add(static_cast<std::uint64_t>(first));
    hash.Add(static_cast<std::uint64_t>(size));
    if (i == 0) world_id = hash.value();
    const std::int32_t stride = size > 1 ? Member(spec_, i, group, 1) - first : 1;
    bool regular = stride != 0;
    for (std::int32_t m = 0; m < size; ++m) regular &= Member(spec_, i, group, m) == first + m * stride;
    // NCCL tells a rank its own number and how many there are, and a name only where the program gave one.
    const bool nccl = spec_.gpu && !spec_.kineto.on;
    local_comm_[i] = static_cast<std::uint32_t>(tables_.comms.rows());
    tables_.comms.Append({.comm = local_comm_[i],
                          .global_id = hash.value(),
                          .parent_id = i == 0 ? 0 : world_id,
                          .size = static_cast<std::uint32_t>(size),
                          .rank = CommRank(spec_, i, rank_),
                          .kind = static_cast<std::uint8_t>(spec_.gpu    ? 3
                                                            : spec_.gloo ? 4
                                                                         : 0),
                          .first_world_rank = nccl ? -1 : first,
                          .stride = regular && !nccl ? stride : 0,
                          .name = i != 0 ? strings_.Intern(spec_.comms[i].name)
                                  : nccl ? schema::kNone
                                         : strings_.Intern("MPI_COMM_WORLD"),
                          .begin_ns = begin,
                          .end_ns = schema::kNoTime});
    if (!regular && !nccl)
      for (std::int32_t m = 0; m < size; ++m)
        tables_.comm_members.Append({.comm = local_comm_[i],
                                     .comm_rank = static_cast<std::uint32_t>(m),
                                     .world_rank = Member(spec_, i, group, m)});
  }
}

std::uint32_t Emitter::Mpi(std::uint32_t thread, MpiOp op, std::int64_t begin, std::int64_t end,
                           schema::MpiCalls::Row row) {
  row.begin_ns = clock_.Show(begin);
  row.duration_ns = clock_.Show(end) - row.begin_ns;
  row.thread = thread;
  row.op = static_cast<std::uint16_t>(op);
  if (row.comm != schema::kNone) row.comm = local_comm_[row.comm];
  last_thread_ = std::max(last_thread_, thread);
  Sign(row.begin_ns + row.duration_ns);
  tables_.mpi_calls.Append(row);
  return static_cast<std::uint32_t>(tables_.mpi_calls.rows() - 1);
}

std::uint64_t Emitter::NextSeq(const Op& op) {
  const bool nccl = spec_.gpu && !spec_.kineto.on;
  return next_seq_[{op.comm, nccl ? op.collective : CollectiveKind::kNone}]++;
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
    seq = NextSeq(op);
  }
  const bool gpu = start.kernel != schema::kNone;
  const std::uint64_t bytes = op.grouped.empty() ? op.bytes : op.grouped[start.part];
  const bool reduces = op.collective == CollectiveKind::kAllReduce || op.collective == CollectiveKind::kReduce ||
                       op.collective == CollectiveKind::kReduceScatter;
  const bool rooted = RootSends(op.collective) || RootReceives(op.collective);
  const bool empty = IsEmpty(op.collective);
  last_thread_ = std::max(last_thread_, start.thread);
  tables_.collectives.Append(
      {.comm = local_comm_[op.comm],
       .seq = seq,
       .start = nth,
       .kind = static_cast<std::uint8_t>(op.collective),
       .mode = start.mode,
       .uneven = UnevenBits(!op.empty.empty(), op.IsEmpty(rank_), false),
       .thread = start.thread,
       .begin_ns = clock_.Show(start.begin_ns),
       .post_end_ns = clock_.Show(start.post_end_ns),
       .last_incomplete_ns = schema::kNoTime,
       .wait_begin_ns = schema::kNoTime,
       .end_ns = schema::kNoTime,
       .bytes = bytes,
       .count = bytes / 4,
       .dtype = static_cast<std::uint16_t>(empty ? DataType::kUnknown : DataType::kFloat32),
       .root = rooted ? op.root : -1,
       .call = start.call,
       .kernel = start.kernel,
       .kernel_operations = gpu ? static_cast<std::uint32_t>(std::max<std::size_t>(1, op.grouped.size())) : 0,
       .enqueue_begin_ns = start.enqueue_ns == schema::kNoTime ? schema::kNoTime : clock_.Show(start.enqueue_ns),
       .reduction = static_cast<std::uint8_t>(gpu && reduces ? 1 : 0),
       .algorithm = gpu ? strings_.Intern("RING") : schema::kNone,
       .protocol = gpu ? strings_.Intern(bytes < 65536 ? "LL" : "SIMPLE") : schema::kNone,
       .channels = static_cast<std::uint16_t>(gpu ? bytes < 65536 ? 2 : 16 : 0),
       .buffer = gpu ? 0x7f00'0000'0000 + 0x1000'0000 * (op.stream + start.part) : 0});
  return static_cast<std::uint32_t>(tables_.collectives.rows() - 1);
}

void Emitter::Complete(std::uint32_t row, std::int64_t last_incomplete, std::int64_t wait_begin, std::int64_t end) {
  schema::Collectives& c = tables_.collectives;
  if (last_incomplete != schema::kNoTime) c.last_incomplete_ns[row] = clock_.Show(last_incomplete);
  c.wait_begin_ns[row] = clock_.Show(wait_begin);
  c.end_ns[row] = clock_.Show(end);
}

void Emitter::Init(const Op& op, std::int64_t, std::int64_t) { persistent_.push_back({op.name, NextSeq(op)}); }

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
                        .thread = 0,
                        .begin_ns = clock_.Show(begin),
                        .post_end_ns = clock_.Show(end),
                        .last_incomplete_ns = schema::kNoTime,
                        .wait_begin_ns = clock_.Show(begin),
                        .end_ns = clock_.Show(end),
                        .bytes = op.bytes,
                        .call = call,
                        .kernel = schema::kNone});
  }
}

void Emitter::PostedRing(const Op& op, std::int64_t begin, const Wait& receive, const Wait& send) {
  const auto n = static_cast<std::int64_t>(spec_.ranks);
  const std::uint64_t seq = rings_++;
  std::int64_t at = begin;
  for (const std::uint8_t direction : {std::uint8_t{1}, std::uint8_t{0}}) {
    const std::int64_t shift = direction == 0 ? op.shift : -op.shift;
    const auto partner = static_cast<std::int32_t>(((rank_ + shift) % n + n) % n);
    const Wait& wait = direction == 0 ? send : receive;
    const std::int64_t posted = at + spec_.call_ns;
    const std::uint32_t call = Mpi(0, direction == 0 ? MpiOp::kIsend : MpiOp::kIrecv, at, posted,
                                   {.comm = 0, .bytes = op.bytes, .peer = partner, .tag = op.shift, .count = 1});
    tables_.p2p.Append({.comm = local_comm_[0],
                        .direction = direction,
                        .mode = schema::Code(CollectiveMode::kNonBlocking),
                        .peer = partner,
                        .peer_world_rank = partner,
                        .tag = op.shift,
                        .seq = seq,
                        .thread = 0,
                        .begin_ns = clock_.Show(at),
                        .post_end_ns = clock_.Show(posted),
                        .last_incomplete_ns = schema::kNoTime,
                        .wait_begin_ns = clock_.Show(wait.begin),
                        .end_ns = clock_.Show(wait.end),
                        .bytes = op.bytes,
                        .call = call,
                        .kernel = schema::kNone});
    at = posted;
  }
  const bool send_first = op.waits == Op::Waits::kSendFirst;
  for (const Wait& wait : {send_first ? send : receive, send_first ? receive : send})
    Mpi(0, MpiOp::kWait, wait.begin, wait.end, {.comm = schema::kNone, .bytes = 1, .peer = -1, .tag = -1, .count = 1});
}

void Emitter::Halo(const Op& op, std::int64_t begin, std::int64_t wait, std::int64_t end) {
  const auto n = static_cast<std::int64_t>(spec_.ranks);
  const std::uint64_t seq = rings_++;
  std::int64_t at = begin;
  for (const std::uint8_t direction : {std::uint8_t{1}, std::uint8_t{0}})
    for (const std::int32_t way : {op.shift, -op.shift}) {
      // What goes to the right comes from the left.
      const std::int64_t shift = direction == 0 ? way : -way;
      const auto partner = static_cast<std::int32_t>(((rank_ + shift) % n + n) % n);
      const std::int32_t tag = way > 0 ? way : 1000 - way;
      const std::int64_t posted = at + spec_.call_ns;
      const std::uint32_t call = Mpi(0, direction == 0 ? MpiOp::kIsend : MpiOp::kIrecv, at, posted,
                                     {.comm = 0, .bytes = op.bytes, .peer = partner, .tag = tag, .count = 1});
      tables_.p2p.Append({.comm = local_comm_[0],
                          .direction = direction,
                          .mode = schema::Code(CollectiveMode::kNonBlocking),
                          .peer = partner,
                          .peer_world_rank = partner,
                          .tag = tag,
                          .seq = seq,
                          .thread = 0,
                          .begin_ns = clock_.Show(at),
                          .post_end_ns = clock_.Show(posted),
                          .last_incomplete_ns = schema::kNoTime,
                          .wait_begin_ns = clock_.Show(wait),
                          .end_ns = clock_.Show(end),
                          .bytes = op.bytes,
                          .call = call,
                          .kernel = schema::kNone});
      at = posted;
    }
  Mpi(0, MpiOp::kWaitall, wait, end, {.comm = schema::kNone, .bytes = 4, .peer = -1, .tag = -1, .count = 1});
}

void Emitter::Message(const Op& op, bool send, std::int64_t begin, std::int64_t end, std::int64_t looked) {
  const std::int32_t peer = send ? rank_ + op.peer : rank_ - op.peer;
  constexpr std::int32_t kTag = 77;  // No ring's.
  const std::int64_t returned = op.posted && !send ? looked : end;
  const MpiOp function = send ? MpiOp::kSend : op.posted ? MpiOp::kIrecv : MpiOp::kRecv;
  const std::uint32_t call =
      Mpi(0, function, begin, returned, {.comm = 0, .bytes = op.bytes, .peer = peer, .tag = kTag, .count = 1});
  if (returned < end)
    Mpi(0, MpiOp::kWait, returned, end, {.comm = schema::kNone, .bytes = 1, .peer = -1, .tag = -1, .count = 1});
  tables_.p2p.Append({.comm = local_comm_[0],
                      .direction = static_cast<std::uint8_t>(send ? 0 : 1),
                      .peer = peer,
                      .peer_world_rank = peer,
                      .tag = kTag,
                      .seq = message_seq_[{send, peer}]++,
                      .thread = 0,
                      .begin_ns = clock_.Show(begin),
                      .post_end_ns = clock_.Show(returned),
                      .last_incomplete_ns = schema::kNoTime,
                      .wait_begin_ns = clock_.Show(looked),
                      .end_ns = clock_.Show(end),
                      .bytes = op.bytes,
                      .call = call,
                      .kernel = schema::kNone});
}

void Emitter::GpuSendRecv(const Op& op, bool send, std::uint64_t correlation, std::int64_t begin, std::int64_t end) {
  Kernel("ncclDevKernel_SendRecv", op.stream, correlation, 1, begin, end);
  const std::int32_t peer = send ? rank_ + op.peer : rank_ - op.peer;
  messages_.push_back({correlation, send, peer, op.bytes});
  if (spec_.kineto.on) {  // There the import says whose the kernel is.
    tables_.kernels.work_rule.back() = 2;
    return;
  }
  const std::int64_t from = clock_.Show(begin), to = clock_.Show(end);
  tables_.p2p.Append({.comm = local_comm_[0],
                      .direction = static_cast<std::uint8_t>(send ? 0 : 1),
                      .mode = 3,
                      .peer = peer,
                      .peer_world_rank = -1,
                      .seq = message_seq_[{send, peer}]++,
                      .thread = 0,
                      .begin_ns = from,
                      .post_end_ns = to,
                      .last_incomplete_ns = schema::kNoTime,
                      .wait_begin_ns = from,
                      .end_ns = to,
                      .bytes = op.bytes,
                      .call = schema::kNone,
                      .kernel = static_cast<std::uint32_t>(tables_.kernels.rows() - 1)});
}

void Emitter::Blocked(const WaitRow& wait, std::int64_t begin, std::int64_t end, std::uint32_t waker) {
  std::uint32_t caller = schema::kNone;
  if (const std::size_t at = wait.where.find('@'), colon = wait.where.rfind(':'); at != std::string::npos) {
    const auto [row, fresh] = callers_.try_emplace(wait.where, static_cast<std::uint32_t>(tables_.stacks.rows()));
    caller = row->second;
    if (fresh)
      tables_.stacks.Append({.parent = schema::kNone,
                             .function = strings_.Intern(wait.where.substr(0, at)),
                             .file = strings_.Intern(wait.where.substr(at + 1, colon - at - 1)),
                             .line = static_cast<std::uint32_t>(std::stoul(wait.where.substr(colon + 1))),
                             .python = 1});
  }
  const std::int64_t from = clock_.Show(begin), to = clock_.Show(end);
  tables_.blocked.Append({.begin_ns = from,
                          .duration_ns = to - from,
                          .thread = 0,
                          .kind = wait.kind,
                          .function = strings_.Intern(wait.function),
                          .waker = waker,
                          .woken_ns = waker == schema::kNone ? schema::kNoTime : to,
                          .others_cpu_ns = wait.others_cpu_ns,
                          .module = schema::kNone,
                          .detail = wait.detail.empty() ? schema::kNone : strings_.Intern(wait.detail),
                          .caller = caller});
  Sign(to);
}
void Emitter::Push(std::string_view name, std::uint8_t category, std::int64_t at) {
  open_ranges_.push_back(tables_.ranges.rows());
  tables_.ranges.Append({.begin_ns = clock_.Show(at),
                         .thread = 0,
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
                          .thread = 0,
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
                          .shape = 0,
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
                   std::int64_t end, std::uint64_t record, std::uint32_t record_stream) {
  const std::int64_t from = clock_.Show(begin);
  tables_.sync.Append({.begin_ns = from,
                       .duration_ns = clock_.Show(end) - from,
                       .kind = kind,
                       .context = 1,
                       .stream = stream,
                       .event = kind == 5 ? correlation : record,
                       .correlation = correlation,
                       .vendor = 1,
                       .record_correlation = record,
                       .record_stream = record_stream});
}
void Emitter::Overhead(std::int64_t begin, std::int64_t end) {
  constexpr std::uint8_t kBufferFlush = 2;
  const std::int64_t from = clock_.Show(begin);
  tables_.overheads.Append(
      {.begin_ns = from, .duration_ns = clock_.Show(end) - from, .thread = 0, .kind = kBufferFlush, .vendor = 1});
  Sign(clock_.Show(end));
}
void Emitter::Api(std::string_view name, std::uint8_t kind, std::uint64_t correlation, std::int64_t begin,
                  std::int64_t end) {
  const std::int64_t from = clock_.Show(begin);
  tables_.api.Append({.begin_ns = from,
                      .duration_ns = clock_.Show(end) - from,
                      .thread = 0,
                      .name = strings_.Intern(name),
                      .kind = kind,
                      .correlation = correlation,
                      .vendor = 1});
  Sign(clock_.Show(end));
}

}  // namespace lockstep::make_run
