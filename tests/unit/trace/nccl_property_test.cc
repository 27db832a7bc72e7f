// Random NCCL jobs in every order of events that NCCL's versions are known to give: each operation
// has the kernel that carried it.

#include <map>
#include <random>
#include <tuple>

#include "decode_fixture.h"
#include "gpu_thread_records.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using Begin = NcclThread::Begin;
using Call = NcclThread::Call;

struct Options {
  int version;          // Of the plugin's interface; 0: none.
  bool calls;           // Interposition.
  bool callbacks;       // Operations are announced by a callback's thread (version 5 and later).
  bool async;           // Launched by a thread of NCCL's own.
  bool grouping;        // Group events are seen (version 5 and later).
  bool silent = false;  // Broadcasts are told by their API events only (NCCL 2.29.2 and later).
};

class Job {
 public:
  Job(const Options& options, std::uint64_t seed) : o_(options), random_(seed) {
    for (std::uint32_t comm = 0; comm < kComms; ++comm)
      User(comm / 2).Add(NcclThread::Comm{.id = 0x1000 + comm,
                                          .ticks = ++now_,
                                          .size = kSize,
                                          .rank = 0,
                                          .comm = Number(comm),
                                          .source = o_.version != 0 ? NcclSource::kPlugin : NcclSource::kInterposed});
  }

  void Run(int groups) {
    for (int i = 0; i < groups; ++i) Group(Pick(kThreads));
  }

  SpoolBuilder Spool() {
    SpoolBuilder spool = GpuProcess(gpu_);
    for (auto& [tid, thread] : threads_) spool.Thread(tid, tid).Records(thread.records, tid);
    return spool;
  }

  // Communicator's id, function (or 100 + direction), its number, partner -> begin of its kernel.
  using Key = std::tuple<std::uint64_t, int, std::uint64_t, int>;
  struct Carried {
    std::int64_t begin_ns;
    std::uint32_t operations;
  };
  std::map<Key, Carried> truth;
  std::uint64_t kernels = 0;

 private:
  static constexpr std::uint32_t kThreads = 3, kComms = 6, kSize = 4;
  struct Op {
    std::uint32_t comm;
    bool message, receive;
    CollectiveKind kind;
    std::int32_t peer;
    std::uint64_t count, buffer, api = 0, seq = 0;
  };

  std::uint32_t Pick(std::uint32_t n) { return std::uniform_int_distribution<std::uint32_t>(0, n - 1)(random_); }
  static std::uint32_t Number(std::uint32_t comm) { return kNcclCommBit | (comm + 1); }
  NcclThread& User(std::uint32_t thread) { return threads_[10 + thread]; }
  std::uint64_t Tick() { return now_ += 1 + Pick(20); }

  Op RandomOp(std::uint32_t thread) {
    Op op{};
    op.comm = 2 * thread + Pick(2);
    op.message = Pick(3) == 0;
    op.receive = op.message && Pick(2) == 0;
    static constexpr CollectiveKind kKinds[] = {CollectiveKind::kAllReduce, CollectiveKind::kAllGather,
                                                CollectiveKind::kReduceScatter};
    op.kind = op.message ? CollectiveKind::kSendRecv : kKinds[Pick(3)];
    if (o_.silent && !op.message && Pick(3) == 0) op.kind = CollectiveKind::kBroadcast;
    op.peer = op.message ? static_cast<std::int32_t>(1 + Pick(kSize - 1)) : -1;
    op.count = 16 * (1 + Pick(50));
    op.buffer = 0x1000 * ++buffers_;
    return op;
  }

  void Launch(std::uint32_t tid, std::string_view name, std::uint64_t begin) {
    const std::uint32_t correlation = ++correlation_;
    const std::uint64_t at = Tick();
    gpu_.Add(
        GpuThread::Api{.name = "cuLaunchKernelEx", .begin = at, .end = Tick(), .correlation = correlation, .tid = tid});
    gpu_.Add(GpuThread::Kernel{.name = name, .begin = begin, .end = begin + 10, .correlation = correlation});
  }

  void Decoy(std::uint32_t tid) {
    for (std::uint32_t i = Pick(3); i > 0; --i) Launch(tid, "gemm", 5'000'000 + 20 * ++gpu_slot_);
  }

  void Group(std::uint32_t user) {
    const std::uint32_t tid = 10 + user;
    NcclThread& thread = threads_[tid];
    Decoy(tid);
    // A call that stands alone, or a group.
    const bool group = Pick(2) == 0;
    std::vector<Op> ops;
    for (std::uint32_t n = group ? 1 + Pick(5) : 1; n > 0; --n) ops.push_back(RandomOp(user));
    // Without a plugin nothing tells the kernels of one group's communicators apart.
    if (o_.version == 0)
      for (Op& op : ops) op.comm = ops[0].comm;
    // Nor those of broadcasts on one stream.
    if (o_.silent)
      for (Op& op : ops)
        if (op.kind == CollectiveKind::kBroadcast)
          for (Op& other : ops) other.comm = op.comm;
    const std::uint64_t group_id = ++id_;
    const bool api = o_.version >= 5;
    if (group && o_.calls) {
      const std::uint64_t at = Tick();
      thread.Add(Call{.name = "ncclGroupStart", .begin = at, .end = Tick()});
    }
    if (api) thread.Add(Begin{NcclEvent::kGroupApi, group_id, Tick()});
    std::uint64_t call_begin = 0;
    for (Op& op : ops) {
      call_begin = Tick();
      if (api) {
        op.api = ++id_;
        thread.Add(Begin{.event = op.message ? NcclEvent::kP2pApi : NcclEvent::kCollectiveApi,
                         .id = op.api,
                         .ticks = Tick(),
                         .parent = group_id,
                         .kind = op.kind,
                         .count = op.count,
                         .receive = op.receive,
                         .comm = Number(op.comm)});
        thread.End(op.message ? NcclEvent::kP2pApi : NcclEvent::kCollectiveApi, op.api, Tick());
      }
      // Numbers of the caller's: messages by partner, collectives by function.
      op.seq = op.message ? messages_[{op.comm, op.peer, op.receive}]++
                          : collectives_[{op.comm, static_cast<int>(op.kind)}]++;
      if (group && o_.calls) WriteCall(thread, op, call_begin, Tick());
    }
    const std::uint64_t end_begin = group ? Tick() : call_begin;
    Launches(tid, group_id, ops);
    if (o_.calls) {
      if (group)
        thread.Add(Call{.name = "ncclGroupEnd", .begin = end_begin, .end = Tick()});
      else
        WriteCall(thread, ops[0], call_begin, Tick());
    }
    if (api) thread.End(NcclEvent::kGroupApi, group_id, Tick());
    Decoy(tid);
  }

  void WriteCall(NcclThread& thread, const Op& op, std::uint64_t begin, std::uint64_t end) {
    thread.Add(Call{.name = op.message ? "ncclSend" : "ncclAllReduce",
                    .begin = begin,
                    .end = end,
                    .kind = op.kind,
                    .count = op.count,
                    .seq = op.seq,
                    .buffer = op.buffer,
                    .peer = op.peer,
                    .receive = op.receive,
                    .comm = Number(op.comm)});
  }

  // Per communicator one or two kernels; NCCL sorts what is in a group by size.
  void Launches(std::uint32_t user_tid, std::uint64_t group_id, std::vector<Op>& ops) {
    std::map<std::uint32_t, std::vector<Op*>> by_comm;
    for (Op& op : ops) by_comm[op.comm].push_back(&op);
    std::vector<std::uint64_t> late_ends;
    for (auto& [comm, mine] : by_comm) {
      // Messages to one partner stay in order, and NCCL's numbers follow its own order.
      std::stable_sort(mine.begin(), mine.end(), [](const Op* a, const Op* b) {
        return a->message != b->message ? !a->message : !a->message && a->count > b->count;
      });
      if (o_.version != 0) Renumber(mine);
      const std::uint32_t launcher = o_.async ? 50 + comm : user_tid;
      // If they are split, nothing tells which kernel a broadcast that shares one is in.
      const auto silent = [&](const Op* op) { return o_.silent && op->kind == CollectiveKind::kBroadcast; };
      const bool any_silent = std::any_of(mine.begin(), mine.end(), silent);
      const std::size_t plans = o_.version == 0 || mine.size() < 2 || any_silent ? 1 : 1 + Pick(2);
      for (std::size_t plan = 0; plan < plans; ++plan) {
        const std::size_t first = plan * mine.size() / plans, last = (plan + 1) * mine.size() / plans;
        const std::uint64_t kernel = 2'000'000 + 20 * ++gpu_slot_, plan_group = ++id_;
        const auto announce = [&](std::uint32_t tid) {
          for (std::size_t i = first; i < last; ++i)
            if (!silent(mine[i])) Announce(threads_[tid], *mine[i], plan_group, late_ends);
        };
        // A host callback may run before the launch that it belongs to.
        const bool before = o_.callbacks && Pick(2) == 0;
        if (before) announce(70);
        const bool told_kernel = !std::all_of(mine.begin(), mine.end(), silent);
        if (o_.version >= 5 && told_kernel) {
          const std::uint64_t id = ++id_;
          threads_[launcher].Add(Begin{
              .event = NcclEvent::kKernelLaunch, .id = id, .ticks = Tick(), .parent = group_id, .comm = Number(comm)});
          Launch(launcher, "ncclDevKernel_Generic", kernel);
          threads_[launcher].End(NcclEvent::kKernelLaunch, id, Tick());
        } else {
          Launch(launcher, "ncclDevKernel_Generic", kernel);
        }
        if (o_.version != 0 && !before) {
          NcclThread& thread = threads_[o_.callbacks ? 70 : launcher];
          const bool told = o_.version == 4 || o_.grouping;
          if (told)
            thread.Add(Begin{.event = NcclEvent::kGroup, .id = plan_group, .ticks = Tick(), .comm = Number(comm)});
          announce(o_.callbacks ? 70 : launcher);
          if (told) thread.End(NcclEvent::kGroup, plan_group, Tick());
        }
        ++kernels;
        for (std::size_t i = first; i < last; ++i) {
          const Op& op = *mine[i];
          const int function = op.message ? 100 + op.receive : static_cast<int>(op.kind);
          truth[{0x1000 + comm, function, op.seq, op.peer}] = {static_cast<std::int64_t>(kernel),
                                                               static_cast<std::uint32_t>(last - first)};
        }
      }
    }
    // Children after their parents.
    for (const std::uint64_t id : late_ends) threads_[user_tid].End(NcclEvent::kCollective, id, Tick());
  }

  // Of one group's collectives of a function, the numbers in NCCL's order.
  void Renumber(std::vector<Op*>& ops) {
    std::map<int, std::vector<std::uint64_t>> numbers;
    const auto numbered = [&](const Op* op) {
      return !op->message && !(o_.silent && op->kind == CollectiveKind::kBroadcast);
    };
    for (const Op* op : ops)
      if (numbered(op)) numbers[static_cast<int>(op->kind)].push_back(op->seq);
    std::map<int, std::size_t> next;
    for (auto& [kind, all] : numbers) std::sort(all.begin(), all.end());
    for (Op* op : ops)
      if (numbered(op)) op->seq = numbers[static_cast<int>(op->kind)][next[static_cast<int>(op->kind)]++];
  }

  void Announce(NcclThread& thread, const Op& op, std::uint64_t plan_group, std::vector<std::uint64_t>& late_ends) {
    const std::uint64_t id = ++id_;
    thread.Add(Begin{.event = op.message ? NcclEvent::kP2p : NcclEvent::kCollective,
                     .id = id,
                     .ticks = Tick(),
                     .parent = o_.version == 4 ? plan_group : op.api,
                     .group = o_.version == 4 ? 0 : plan_group,
                     .kind = op.kind,
                     .count = op.count,
                     .seq = op.message ? 0 : op.seq,
                     .peer = op.peer,
                     .receive = op.receive,
                     .comm = Number(op.comm),
                     .buffer = op.buffer});
    if (Pick(3) == 0)
      late_ends.push_back(id);
    else
      thread.End(NcclEvent::kCollective, id, Tick());
  }

  const Options o_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 100, id_ = 0, buffers_ = 0, gpu_slot_ = 0;
  std::uint32_t correlation_ = 0;
  std::map<std::tuple<std::uint32_t, std::int32_t, bool>, std::uint64_t> messages_;
  std::map<std::tuple<std::uint32_t, int>, std::uint64_t> collectives_;
  GpuThread gpu_;
  std::map<std::uint32_t, NcclThread> threads_;  // By tid, ring of the same number.
};

class NcclProperty : public DecodeTest {};

TEST_F(NcclProperty, EveryOperationHasItsKernel) {
  std::size_t operations = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Options all[] = {
        {4, false, false, false, true},      {4, true, false, false, true},        {4, false, false, true, true},
        {5, false, false, false, true},      {5, true, false, false, false},       {5, true, false, true, true},
        {6, false, true, false, true},       {6, true, true, true, false},         {0, true, false, false, false},
        {6, true, false, false, true, true}, {6, false, false, false, true, true},
    };
    for (const Options& options : all) {
      Job job(options, seed);
      job.Run(12);
      const schema::RankTables t = Tables(job.Spool());
      SCOPED_TRACE("version " + std::to_string(options.version) + " calls " + std::to_string(options.calls) +
                   " callbacks " + std::to_string(options.callbacks) + " async " + std::to_string(options.async) +
                   " seed " + std::to_string(seed));
      ASSERT_EQ(t.collectives.rows() + t.p2p.rows(), job.truth.size());
      operations += job.truth.size();
      for (std::size_t i = 0; i < t.collectives.rows(); ++i) {
        const auto row = t.collectives.Get(i);
        const auto at = job.truth.find({t.comms.global_id[row.comm], row.kind, row.seq, -1});
        ASSERT_NE(at, job.truth.end()) << i;
        ASSERT_LT(row.kernel, t.kernels.rows()) << i;
        ASSERT_EQ(t.kernels.begin_ns[row.kernel], at->second.begin_ns) << i;
        ASSERT_EQ(row.kernel_operations, at->second.operations) << i;
      }
      for (std::size_t i = 0; i < t.p2p.rows(); ++i) {
        const auto row = t.p2p.Get(i);
        const auto at = job.truth.find({t.comms.global_id[row.comm], 100 + row.direction, row.seq, row.peer});
        ASSERT_NE(at, job.truth.end()) << i;
        ASSERT_LT(row.kernel, t.kernels.rows()) << i;
        ASSERT_EQ(t.kernels.begin_ns[row.kernel], at->second.begin_ns) << i;
      }
      for (const char* loss : {"NcclUntied", "NcclKernelUntied", "NcclEventOrphan", "UnknownRecord"})
        ASSERT_EQ(LossCount(t, loss), 0u) << loss;
      std::uint64_t tied = 0;
      for (const std::uint8_t rule : t.kernels.work_rule) tied += rule == 1;
      ASSERT_EQ(tied, job.kernels);
    }
  }
  EXPECT_GT(operations, 5'000u);
}

}  // namespace
}  // namespace lockstep::trace
