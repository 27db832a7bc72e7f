#include "analysis/tables/kinds/comm_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/gpu/launch_index.h"
#include "core/comm_calls.h"
#include "core/mpi_ops.h"
#include "core/operation_name.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/blocked_time.h"
#include "merge/timeline/rank_pass.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::tables {
namespace {
namespace comm_ops {

using schema::kNone;
using schema::kNoTime;

constexpr auto kGpu = static_cast<std::uint8_t>(CollectiveMode::kGpu);

// Its kernel was not found: only the time at which it was enqueued is known.
bool OnGpuAtUnknownTime(std::uint8_t mode, std::int64_t end_ns) { return mode == kGpu && end_ns == kNoTime; }

class Collector {
 public:
  explicit Collector(const gpu::RankView& rank) : rank_(rank), t_(rank.tables) {}

  RankComm Run() {
    out_.gpu = t_.kernels.rows() > 0;
    Members();
    Names();
    HostSide();
    if (out_.gpu) Kernels();
    Collectives();
    if (out_.gpu && rank_.hta) return std::move(out_);
    P2p();
    Unrecorded();
    return std::move(out_);
  }

 private:
  // Row of the rank's collectives -> its row in the timeline.
  void Members() {
    member_of_.assign(t_.collectives.rows(), kNone);
    if (rank_.timeline == nullptr) return;
    const auto& rows = rank_.timeline->tables.collective_ranks.row;
    for (const std::uint32_t member : rank_.members)
      if (rows[member] < member_of_.size()) member_of_[rows[member]] = member;
  }

  // The name that the application or the framework gave it; else the pattern of its ranks. Traces of PyTorch name a
  // group "description (number)", and numbers differ between sibling groups.
  void Names() {
    for (std::uint32_t comm = 0; comm < t_.comms.rows(); ++comm) {
      const std::string_view full = rank_.Text(t_.comms.name[comm]);
      std::string_view name = full;
      if (const std::size_t number = name.rfind(" ("); number != std::string_view::npos && name.ends_with(')'))
        name = name.substr(0, number);
      // "undefined" is what torch.distributed writes if the program gave no description.
      if (name == "undefined" || name.find_first_not_of("0123456789") == std::string_view::npos) name = {};
      names_.push_back(name.empty() ? Pattern(comm, full) : std::string(name));
    }
  }
  std::string Pattern(std::uint32_t comm, std::string_view full) const {
    if (t_.comms.kind[comm] == schema::CommKind::kSelf || t_.comms.size[comm] == 1) return "self";
    const std::int32_t stride = t_.comms.stride[comm] != 0 ? t_.comms.stride[comm] : StrideOfMembers(comm);
    if (stride > 1) return fmt::format("ranks {} apart", stride);
    if (stride == 1) {
      const std::string world = rank_.timeline == nullptr ? "" : std::string(rank_.timeline->Meta("world_size"));
      return world == std::to_string(t_.comms.size[comm]) ? "all ranks" : "adjacent ranks";
    }
    return full.empty() ? "unnamed" : std::string(full);
  }

  // NCCL does not report the other members to a rank; the timeline contains them where they met. 0: not known.
  std::int32_t StrideOfMembers(std::uint32_t comm) const {
    if (rank_.timeline == nullptr) return 0;
    const auto& members = rank_.timeline->tables.collective_ranks;
    for (std::uint32_t row = 0; row < t_.collectives.rows(); ++row) {
      if (t_.collectives.comm[row] != comm || member_of_[row] == kNone) continue;
      const std::uint32_t instance = members.collective[member_of_[row]];
      const std::size_t first = rank_.timeline->FirstMember(instance), end = rank_.timeline->FirstMember(instance + 1);
      if (end - first < 2 || end - first != t_.comms.size[comm]) continue;
      const std::int32_t stride = members.rank[first + 1] - members.rank[first];
      for (std::size_t m = first + 1; m < end; ++m)
        if (members.rank[m] - members.rank[m - 1] != stride) return 0;
      return stride;
    }
    return 0;
  }

  std::uint32_t Group(std::uint32_t comm, CollectiveKind kind, std::uint64_t user_tag = 0) {
    GroupOfOps group;
    group.kind = kind;
    if (comm < names_.size()) {
      group.name = names_[comm];
      group.size = t_.comms.size[comm];
    } else {
      group.name = "unknown";
    }
    if (user_tag != 0) group.name += fmt::format(" tag {}", user_tag);
    return Number(std::move(group));
  }
  std::uint32_t Number(GroupOfOps group) {
    const auto [at, fresh] = group_of_.try_emplace(group, static_cast<std::uint32_t>(out_.groups.size()));
    if (fresh) out_.groups.push_back(std::move(group));
    return at->second;
  }

  void HostSide() {
    bool posted = std::any_of(t_.collectives.mode.begin(), t_.collectives.mode.end(), merge::IsPosted);
    posted |= std::any_of(t_.p2p.mode.begin(), t_.p2p.mode.end(), merge::IsPosted);
    const std::uint32_t training = merge::TrainingThread(t_);
    std::vector<Interval> busy, inside;
    for (std::size_t i = 0; i < t_.mpi_calls.rows(); ++i) {
      const Interval call{t_.mpi_calls.begin_ns[i], t_.mpi_calls.begin_ns[i] + t_.mpi_calls.duration_ns[i]};
      if (posted) inside.push_back(call);
      if (!out_.gpu && t_.mpi_calls.thread[i] == training) busy.push_back(call);
    }
    out_.inside_mpi = Normalize(std::move(inside));
    unrecorded_ = merge::FindUnrecordedComm(t_, training, out_.gpu);
    if (out_.gpu) return;
    awaited_ = merge::FindBlockedTime(t_, training).awaited;
    constexpr std::uint8_t kInput = schema::Category::kInput;
    for (std::size_t i = 0; i < t_.ranges.rows(); ++i)
      if (t_.ranges.category[i] == kInput && t_.ranges.thread[i] == training)
        busy.push_back({t_.ranges.begin_ns[i], t_.ranges.begin_ns[i] + t_.ranges.duration_ns[i]});
    // As merge counts them: communication that other threads carry out, and that no source records.
    out_.busy = Unite(Normalize(std::move(busy)), Unite(unrecorded_.waiting, awaited_));
  }

  void Kernels() {
    launches_ = gpu::FindLaunches(t_);
    std::vector<bool> carried(t_.kernels.rows(), false);
    for (const auto* column : {&t_.collectives.kernel, &t_.p2p.kernel})
      for (const std::uint32_t row : *column)
        if (row < carried.size()) carried[row] = true;
    std::vector<Interval> compute;
    for (std::uint32_t i = 0; i < t_.kernels.rows(); ++i) {
      const std::int64_t begin = t_.kernels.begin_ns[i], end = begin + t_.kernels.duration_ns[i];
      if (rank_.classes[i] == merge::KernelClass::kCompute) compute.push_back({begin, end});
      if (rank_.classes[i] != merge::KernelClass::kComm || carried[i]) continue;
      CommOperation op{begin, begin, end, end, true, Group(kNone, CollectiveKind::kNone), kNone, kNone, kNoTime};
      LaunchedBy(i, op);
      out_.ops.push_back(op);
    }
    out_.busy = Normalize(std::move(compute));
  }

  void LaunchedBy(std::uint32_t kernel, CommOperation& op) const {
    const std::uint32_t call = kernel < launches_.of_kernel.size() ? launches_.of_kernel[kernel] : kNone;
    if (call == kNone) return;
    op.thread = t_.api.thread[call];
    op.launch_ns = t_.api.begin_ns[call];
  }

  bool Counts(std::uint32_t row) const {
    if (!out_.gpu || !rank_.hta) return true;
    const std::uint32_t kernel = t_.collectives.kernel[row];
    return kernel < rank_.classes.size() && rank_.classes[kernel] == merge::KernelClass::kComm;
  }

  void Collectives() {
    const schema::Collectives& c = t_.collectives;
    const Interval span = merge::CapturedSpan(t_);
    const merge::ClockMap clock = Clock();
    for (std::uint32_t row = 0; row < c.rows(); ++row) {
      if (!Counts(row) || OnGpuAtUnknownTime(c.mode[row], c.end_ns[row])) continue;
      const std::int64_t begin = c.begin_ns[row];
      // Never completed: still in flight when the rank was last heard of.
      const std::int64_t end = std::max(begin, c.end_ns[row] == kNoTime ? span.end : c.end_ns[row]);
      CommOperation op{begin, begin, end, end, !merge::IsPosted(c.mode[row]), 0, row, c.thread[row], begin};
      if (const std::uint32_t member = member_of_[row]; member != kNone) {
        const auto& m = rank_.timeline->tables.collective_ranks;
        if (const std::int64_t wait = m.wait_ns[member]; wait >= 0) {
          const std::int64_t until = m.arrival_ns[member] + wait;
          // Wait and transfer were cut to the operation in cluster time; its ends are known here.
          op.wait_end_ns = wait == 0                        ? begin
                           : until >= m.end_high_ns[member] ? end
                                                            : std::clamp(clock.ToLocal(until), begin, end);
          if (m.transfer_ns[member] >= 0) op.transfer_begin_ns = op.wait_end_ns;
        }
      }
      op.group = Group(c.comm[row], static_cast<CollectiveKind>(c.kind[row]), c.user_tag[row]);
      if (c.kernel[row] != kNone) {
        op.thread = kNone;
        op.launch_ns = kNoTime;
        LaunchedBy(c.kernel[row], op);
      }
      out_.ops.push_back(op);
    }
  }

  merge::ClockMap Clock() const {
    return rank_.timeline == nullptr ? merge::ClockMap({}, 0)
                                     : merge::ClockMap(rank_.timeline->tables.clock, rank_.rank);
  }

  void P2p() {
    const schema::P2p& p = t_.p2p;
    const merge::ClockMap clock = Clock();
    const Interval span = merge::CapturedSpan(t_);
    for (std::uint32_t row = 0; row < p.rows(); ++row) {
      if (p.outcome[row] == schema::RequestOutcome::kCancelled || OnGpuAtUnknownTime(p.mode[row], p.end_ns[row]))
        continue;
      const bool posted = merge::IsPosted(p.mode[row]), receive = p.direction[row] == schema::Direction::kReceive;
      if (posted && receive && p.end_ns[row] == kNoTime) continue;
      std::int64_t begin = p.begin_ns[row], end = p.end_ns[row];
      if (end == kNoTime) end = posted ? std::max(begin, p.post_end_ns[row]) : span.end;
      // Before its send was posted a receive has nothing to move.
      if (p.mode[row] == kGpu) {
        // Its kernel keeps the GPU busy from its start on.
      } else if (receive && rank_.partners != nullptr && row < rank_.partners->begin_ns.size()) {
        if (const std::int64_t sent = rank_.partners->begin_ns[row]; sent != kNoTime)
          begin = std::max(begin, clock.ToLocal(sent));
      } else {
        out_.receives_alone += receive;
      }
      if (end <= begin) continue;
      CommOperation op{begin, begin,         end,
                       end,   !posted,       Group(p.comm[row], CollectiveKind::kSendRecv, p.user_tag[row]),
                       kNone, p.thread[row], begin};
      if (p.kernel[row] != kNone) {
        op.thread = kNone;
        op.launch_ns = kNoTime;
        LaunchedBy(p.kernel[row], op);
      }
      out_.ops.push_back(op);
    }
    if (rank_.partners == nullptr) return;
    for (const merge::MessageWait& wait :
         merge::MessageWaits(rank_.partners->waits, p, merge::TrainingThread(t_), awaited_))
      out_.message_waits.push_back(
          {wait.at, Group(p.comm[wait.row], CollectiveKind::kSendRecv, p.user_tag[wait.row]), wait.row});
  }

  // Operations that are known from ranges, as far as the identity counts them: beside operators within the rank's own
  // work only.
  void Unrecorded() {
    if (unrecorded_.operations.empty()) return;
    const IntervalSet beside = Subtract(unrecorded_.operations, unrecorded_.waiting);
    const IntervalSet counted =
        Subtract(unrecorded_.operations, out_.gpu ? Subtract(beside, out_.busy) : Intersect(beside, out_.busy));
    for (std::uint32_t row = 0; row < t_.ranges.rows(); ++row) {
      const std::string_view name = rank_.Text(t_.ranges.name[row]), backend = HostBackend(name);
      if (backend.empty() || t_.ranges.duration_ns[row] <= 0) continue;
      const Interval at{t_.ranges.begin_ns[row], t_.ranges.begin_ns[row] + t_.ranges.duration_ns[row]};
      const std::uint32_t group =
          Number({.name = std::string(backend),
                  .kind = DirectionOfOperation(name) >= 0 ? CollectiveKind::kSendRecv : KindOfOperation(name)});
      bool goes_on = false;
      for (const Interval& part : Clip(counted, at)) {
        out_.ops.push_back(
            {part.begin, part.begin, part.end, part.end, true, group, kNone, t_.ranges.thread[row], at.begin, goes_on});
        goes_on = true;
      }
    }
  }

  const gpu::RankView& rank_;
  const schema::RankTables& t_;
  RankComm out_;
  merge::UnrecordedComm unrecorded_;
  gpu::LaunchIndex launches_;
  IntervalSet awaited_;  // In which the training thread waits for other threads' communication.
  std::vector<std::uint32_t> member_of_;
  std::vector<std::string> names_;
  std::map<GroupOfOps, std::uint32_t> group_of_;
};

}  // namespace comm_ops
}  // namespace

double BusFactorOf(std::string_view kind, std::int64_t members) {
  for (int code = 1; code <= static_cast<int>(CollectiveKind::kSendRecv); ++code)
    if (const auto named = static_cast<CollectiveKind>(code); Name(named) == kind)
      return BusFactor(named, static_cast<std::uint32_t>(members));
  return BusFactor(CollectiveKind::kNone, static_cast<std::uint32_t>(members));
}

RankComm CommOf(const gpu::RankView& rank) { return comm_ops::Collector(rank).Run(); }

}  // namespace lockstep::tables
