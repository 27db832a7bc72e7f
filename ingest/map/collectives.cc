#include "ingest/map/collectives.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/collective.h"
#include "core/comm_kernels.h"
#include "core/operation_name.h"
#include "ingest/map/args.h"
#include "ingest/map/comm_operations.h"
#include "ingest/map/names.h"
#include "trace/file/strings.h"

namespace lockstep::ingest {
namespace {

using schema::kNone;
using schema::kNoTime;

// A kernel that communicates.
struct Carrier {
  std::uint32_t row = 0;
  std::uint32_t op = kNoOp;
  std::uint32_t thread = kNone;
  std::int64_t launch_ns = kNoTime;
  const CommArgs* own = nullptr;        // The kernel's own arguments.
  std::vector<std::uint32_t> together;  // Operations that share this kernel.
  std::uint32_t group = kNone;
  bool told = false;  // The operation itself names the group.
};

struct Launch {
  std::uint32_t op, thread;
  std::int64_t begin_ns;
};

class Finder {
 public:
  Finder(MappedTrace& trace, std::string_view distributed_info, std::int32_t rank, std::int64_t world_size)
      : trace_(trace), t_(trace.tables), groups_(trace, distributed_info, world_size), rank_(rank), ops_(trace) {}

  CommunicationFacts Run() {
    FindLaunches();
    FindCarriers();
    FindTogether();
    NameGroups();
    Emit();
    for (std::uint32_t i = 0; i < groups_.count(); ++i) facts_.groups.push_back(groups_.entry(i));
    return std::move(facts_);
  }

 private:
  std::string_view Text(std::uint32_t id) const { return lockstep::trace::TextOf(t_, id); }

  void FindLaunches() {
    std::unordered_set<std::uint64_t> wanted;
    for (const CommKernel& kernel : trace_.comm_kernels) wanted.insert(t_.kernels.correlation[kernel.row]);
    if (ops_.empty() && wanted.empty()) return;
    for (std::size_t i = 0; i < t_.api.rows(); ++i) {
      if ((t_.api.kind[i] != schema::ApiKind::kLaunch && t_.api.kind[i] != schema::ApiKind::kGraphLaunch) ||
          t_.api.correlation[i] == 0)
        continue;
      const std::uint32_t op = ops_.At(t_.api.thread[i], t_.api.begin_ns[i]);
      if (op == kNoOp && !wanted.contains(t_.api.correlation[i])) continue;
      // A graph's kernels were recorded when it was captured: operations around its launch are not theirs.
      const bool graph = t_.api.kind[i] == schema::ApiKind::kGraphLaunch;
      launches_.try_emplace(t_.api.correlation[i],
                            Launch{graph ? kNoOp : op, t_.api.thread[i], graph ? kNoTime : t_.api.begin_ns[i]});
    }
  }

  // Launched by the operation itself and not by an operator inside it: lists of tensors
  // are packed and unpacked by copies within the same record.
  bool Direct(const Launch& launch) {
    auto [at, fresh] = operators_.try_emplace(launch.thread);
    auto& list = at->second;
    if (fresh) {
      std::unordered_map<std::uint32_t, bool> own;  // Per name.
      for (std::size_t i = 0; i < t_.ranges.rows(); ++i) {
        if (t_.ranges.thread[i] != launch.thread || t_.ranges.source[i] != schema::RangeSource::kCpuOp) continue;
        const auto [known, unseen] = own.try_emplace(t_.ranges.name[i], false);
        if (unseen) {
          const std::string_view name = Text(t_.ranges.name[i]);
          known->second = name == "record_param_comms" || name.starts_with("nccl:") || name.starts_with("c10d::");
        }
        if (!known->second) list.emplace_back(t_.ranges.begin_ns[i], t_.ranges.begin_ns[i] + t_.ranges.duration_ns[i]);
      }
      std::sort(list.begin(), list.end());
    }
    auto inside = std::upper_bound(list.begin(), list.end(), std::pair(launch.begin_ns, INT64_MAX));
    while (inside != list.begin() && (--inside)->first >= ops_[launch.op].begin_ns)
      if (inside->second >= launch.begin_ns) return false;
    return true;
  }

  void FindCarriers() {
    std::size_t next = 0;
    for (std::uint32_t row = 0; row < t_.kernels.rows(); ++row) {
      const bool listed = next < trace_.comm_kernels.size() && trace_.comm_kernels[next].row == row;
      const CommKernel* kernel = listed ? &trace_.comm_kernels[next++] : nullptr;
      if (!listed && launches_.empty()) continue;
      const auto launch = launches_.find(t_.kernels.correlation[row]);
      const bool known = launch != launches_.end() && t_.kernels.correlation[row] != 0;
      if (!listed && (!known || launch->second.op == kNoOp || !Direct(launch->second))) continue;
      Carrier carrier;
      carrier.row = row;
      if (known) {
        carrier.op = launch->second.op;
        carrier.thread = launch->second.thread;
        carrier.launch_ns = launch->second.begin_ns;
      }
      if (kernel != nullptr) {
        if (kernel->args.any()) carrier.own = &kernel->args;
        // Newer versions give the kernel its operation's number; older ones its own correlation.
        const bool named =
            kernel->external_id >= 0 && static_cast<std::uint64_t>(kernel->external_id) != t_.kernels.correlation[row];
        if (carrier.op == kNoOp && named) carrier.op = ops_.OfExternal(kernel->external_id);
      }
      if (carrier.op != kNoOp) ++ops_[carrier.op].kernels;
      t_.kernels.work[row] = schema::Work::kCommunication;
      t_.kernels.work_rule[row] = carrier.op != kNoOp || carrier.own != nullptr ? 1 : 2;
      carriers_.push_back(std::move(carrier));
    }
    std::stable_sort(carriers_.begin(), carriers_.end(), [&](const Carrier& a, const Carrier& b) {
      return t_.kernels.begin_ns[a.row] < t_.kernels.begin_ns[b.row];
    });
  }

  bool Fits(const CommOperation& op, CollectiveKind kernel) const {
    if (kernel == CollectiveKind::kNone) return true;
    if (kernel != CollectiveKind::kSendRecv) return op.kind == kernel || op.kind == CollectiveKind::kBarrier;
    return op.direction >= 0 || op.kind == CollectiveKind::kAllToAll || op.kind == CollectiveKind::kGather ||
           op.kind == CollectiveKind::kScatter || op.kind == CollectiveKind::kAllGather;
  }

  // Grouped operations (batch_isend_irecv, coalescing): recorded one by one, but launched as one kernel when the group
  // ends, outside all of them.
  void FindTogether() {
    std::map<std::uint32_t, std::vector<Carrier*>> by_thread;
    for (Carrier& carrier : carriers_)
      if (carrier.launch_ns != kNoTime) by_thread[carrier.thread].push_back(&carrier);
    for (auto& [thread, list] : by_thread) {
      const std::vector<std::uint32_t>& ops = ops_.OfThread(thread);
      std::stable_sort(list.begin(), list.end(),
                       [](const Carrier* a, const Carrier* b) { return a->launch_ns < b->launch_ns; });
      std::size_t at = 0;
      for (Carrier* carrier : list) {
        std::vector<std::uint32_t> waiting;
        for (; at < ops.size() && ops_[ops[at]].begin_ns <= carrier->launch_ns; ++at) {
          const CommOperation& op = ops_[ops[at]];
          if (op.usable() && op.kernels == 0 && op.end_ns <= carrier->launch_ns) waiting.push_back(ops[at]);
        }
        const bool alone = (carrier->op != kNoOp && ops_[carrier->op].usable()) ||
                           (carrier->own != nullptr && KindOfArgs(*carrier->own) != CollectiveKind::kNone);
        if (alone || waiting.empty()) continue;
        const CollectiveKind kind = CommKernelKind(Text(t_.kernels.name[carrier->row]));
        std::erase_if(waiting, [&](std::uint32_t op) { return !Fits(ops_[op], kind); });
        if (waiting.empty()) continue;
        for (const std::uint32_t op : waiting) ++ops_[op].kernels;
        if (waiting.size() > 1) facts_.grouped += waiting.size();
        t_.kernels.work_rule[carrier->row] = schema::WorkRule::kLaunched;
        carrier->together = std::move(waiting);
      }
    }
  }

  CollectiveKind KindOfArgs(const CommArgs& args) const {
    return args.name == kNone ? CollectiveKind::kNone : KindOfOperation(Text(args.name));
  }

  std::tuple<std::uint16_t, std::uint32_t, std::uint32_t> StreamOf(const Carrier& carrier) const {
    return {t_.kernels.device[carrier.row], t_.kernels.context[carrier.row], t_.kernels.stream[carrier.row]};
  }

  void NameGroups() {
    // A group of NCCL has a stream of its own, so operations without a group on that stream belong to the group of the
    // others.
    std::map<std::tuple<std::uint16_t, std::uint32_t, std::uint32_t>, std::uint32_t> of_stream;
    constexpr std::uint32_t kSeveral = kNone - 1;
    for (Carrier& carrier : carriers_) {
      if (carrier.own != nullptr) carrier.group = groups_.Named(*carrier.own);
      if (carrier.group == kNone && carrier.op != kNoOp) carrier.group = groups_.Named(ops_[carrier.op].args);
      for (const std::uint32_t op : carrier.together)
        if (carrier.group == kNone) carrier.group = groups_.Named(ops_[op].args);
      carrier.told = carrier.group != kNone;
      if (!carrier.told) continue;
      const auto [at, fresh] = of_stream.try_emplace(StreamOf(carrier), carrier.group);
      if (!fresh && at->second != carrier.group) at->second = kSeveral;
    }
    // Numbered by their ids, which grow as groups are made, so the order is the same on all ranks.
    std::map<std::tuple<std::uint16_t, std::uint32_t, std::uint32_t>, std::uint32_t> unnamed;
    for (const Carrier& carrier : carriers_) {
      if (carrier.told || !IsLibraryKernel(carrier)) continue;
      const auto at = of_stream.find(StreamOf(carrier));
      if (at == of_stream.end() || at->second == kSeveral) unnamed.emplace(StreamOf(carrier), 0);
    }
    std::uint32_t number = 0;
    for (auto& [stream, n] : unnamed) n = number++;
    for (Carrier& carrier : carriers_) {
      if (carrier.told || !IsLibraryKernel(carrier)) continue;
      ++facts_.without_group;
      if (const auto at = unnamed.find(StreamOf(carrier)); at != unnamed.end())
        carrier.group = groups_.Guessed(at->second, GroupSize(carrier));
      else
        carrier.group = of_stream.at(StreamOf(carrier));
    }
  }

  std::int64_t GroupSize(const Carrier& carrier) const {
    if (carrier.own != nullptr && carrier.own->group_size > 0) return carrier.own->group_size;
    if (carrier.op != kNoOp && ops_[carrier.op].args.group_size > 0) return ops_[carrier.op].args.group_size;
    return 0;
  }

  // Whether its library launches one kernel per operation of one group. Kernels of others (DeepEP, custom all-reduces)
  // communicate, but which operation a kernel carries is not known.
  bool IsLibraryKernel(const Carrier& carrier) const {
    if (carrier.op != kNoOp || carrier.own != nullptr || !carrier.together.empty()) return true;
    const std::string_view name = Text(t_.kernels.name[carrier.row]);
    return (name.find("ccl") != std::string_view::npos && name.find("msccl") == std::string_view::npos);
  }

  // Arguments of a kernel, completed by its operation's.
  CommArgs ArgsOf(const Carrier& carrier, std::uint32_t op) const {
    CommArgs args;
    if (carrier.own != nullptr && carrier.together.empty()) args = *carrier.own;
    if (op == kNoOp) return args;
    const CommArgs& more = ops_[op].args;
    const auto text = [](std::uint32_t& to, std::uint32_t from) { to = to == kNone ? from : to; };
    const auto number = [](std::int64_t& to, std::int64_t from) { to = to < 0 ? from : to; };
    text(args.name, more.name), text(args.dtype, more.dtype);
    text(args.in_split, more.in_split), text(args.out_split, more.out_split);
    number(args.in_elements, more.in_elements), number(args.out_elements, more.out_elements);
    number(args.group_size, more.group_size), number(args.rank, more.rank), number(args.seq, more.seq);
    number(args.source, more.source), number(args.destination, more.destination);
    if (args.name == kNone) args.name = ops_[op].annotation;
    if (args.dtype == kNone) args.dtype = ops_[op].input_type;
    if (args.in_elements < 0 && args.out_elements < 0) args.in_elements = ops_[op].input_elements;
    return args;
  }

  // Elements of the whole array, definitions.md's S; -1 unknown.
  static std::int64_t Elements(CollectiveKind kind, const CommArgs& args, std::uint32_t members) {
    const auto times = [&](std::int64_t elements) {
      std::int64_t all = -1;
      return elements < 0 || __builtin_mul_overflow(elements, static_cast<std::int64_t>(members), &all) ? -1 : all;
    };
    switch (kind) {
      case CollectiveKind::kBarrier:
        return 0;
      case CollectiveKind::kAllGather:
        return args.out_elements > 0 ? args.out_elements : times(args.in_elements);
      case CollectiveKind::kReduceScatter:
        return args.in_elements > 0 ? args.in_elements : times(args.out_elements);
      case CollectiveKind::kGather:
        return times(args.in_elements);
      case CollectiveKind::kScatter:
        return times(args.out_elements);
      default:
        return args.in_elements > 0 ? args.in_elements : args.out_elements;
    }
  }

  static std::uint64_t Bytes(std::int64_t elements, std::uint32_t element_bytes) {
    std::uint64_t bytes = 0;
    if (elements <= 0 || __builtin_mul_overflow(static_cast<std::uint64_t>(elements), element_bytes, &bytes)) return 0;
    return bytes;
  }

  // Sizes that are given one by one may differ between members; they may also differ if nothing is known.
  bool Uneven(const CommArgs& args) const {
    if (args.in_split == kNone && args.out_split == kNone) return true;
    for (const std::uint32_t split : {args.in_split, args.out_split})
      if (split != kNone && !IntsOf(Text(split)).empty()) return true;
    return false;
  }

  struct Row {
    schema::Collectives::Row values;
    std::int64_t seq = -1;
  };

  void Emit() {
    std::unordered_map<std::uint32_t, std::size_t> row_of_op;
    std::vector<Row> rows;
    for (const Carrier& carrier : carriers_) {
      if (carrier.group == kNone) continue;
      const std::int64_t begin = t_.kernels.begin_ns[carrier.row];
      const std::int64_t end = begin + t_.kernels.duration_ns[carrier.row];
      const CommOperation* op = carrier.op == kNoOp ? nullptr : &ops_[carrier.op];
      // One operation in several kernels lasts from the first one's start to the last one's end.
      if (op != nullptr && op->usable() && op->kernels > 1) {
        const auto [at, fresh] = row_of_op.try_emplace(carrier.op, rows.size());
        if (!fresh) {
          if (at->second < rows.size()) rows[at->second].values.end_ns = std::max(rows[at->second].values.end_ns, end);
          continue;
        }
        ++facts_.in_several_kernels;
      }
      if (PointToPoint(carrier, begin, end)) {
        if (op != nullptr && op->kernels > 1) row_of_op[carrier.op] = SIZE_MAX;
        continue;
      }
      rows.push_back(CollectiveRow(carrier, begin, end));
    }
    Number(rows);
  }

  // Adds rows of p2p for a kernel that carries nothing else; returns false if it carries a collective.
  bool PointToPoint(const Carrier& carrier, std::int64_t begin, std::int64_t end) {
    std::vector<std::uint32_t> ops = carrier.together;
    if (ops.empty()) ops.push_back(carrier.op);
    for (const std::uint32_t op : ops) {
      const CommArgs args = ArgsOf(carrier, op);
      if ((args.name == kNone || DirectionOfOperation(Text(args.name)) < 0) && (op == kNoOp || ops_[op].direction < 0))
        return false;
    }
    const Group& group = groups_.group(carrier.group);
    for (const std::uint32_t op : ops) {
      const CommArgs args = ArgsOf(carrier, op);
      int direction = args.name == kNone ? -1 : DirectionOfOperation(Text(args.name));
      if (direction < 0) direction = ops_[op].direction;
      std::int64_t world = direction == 0 ? args.destination : args.source;
      std::int64_t peer = world >= 0 ? group.RankOf(world) : args.rank;
      if (peer < 0 && op != kNoOp && ops_[op].annotation != kNone) peer = PeerOf(Text(ops_[op].annotation));
      if (world < 0) world = group.WorldRank(peer);
      const ElementType type = args.dtype == kNone ? ElementType() : ElementTypeOf(Text(args.dtype));
      const std::uint64_t bytes = Bytes(std::max(args.in_elements, args.out_elements), type.bytes);
      t_.p2p.Append({.comm = carrier.group,
                     .direction = static_cast<std::uint8_t>(direction),
                     .mode = schema::Code(CollectiveMode::kBlocking),
                     .peer = static_cast<std::int32_t>(std::clamp<std::int64_t>(peer, -1, INT32_MAX)),
                     .peer_world_rank = static_cast<std::int32_t>(std::clamp<std::int64_t>(world, -1, INT32_MAX)),
                     .tag = 0,
                     .seq = p2p_seq_[{carrier.group, direction, peer}]++,
                     .thread = carrier.thread,
                     .begin_ns = begin,
                     .post_end_ns = end,
                     .last_incomplete_ns = kNoTime,
                     .wait_begin_ns = begin,
                     .end_ns = end,
                     .bytes = bytes,
                     .outcome = schema::RequestOutcome::kCompleted,
                     .call = kNone,
                     .kernel = kNone});
    }
    return true;
  }

  Row CollectiveRow(const Carrier& carrier, std::int64_t begin, std::int64_t end) {
    const Group& group = groups_.group(carrier.group);
    const std::uint32_t first_op = carrier.together.empty() ? carrier.op : carrier.together.front();
    const CommArgs args = ArgsOf(carrier, first_op);
    Row row;
    schema::Collectives::Row& v = row.values;
    v.enqueue_begin_ns = kNoTime;
    v.algorithm = v.protocol = kNone;
    CollectiveKind kind = args.name == kNone ? CollectiveKind::kNone : KindOfOperation(Text(args.name));
    if (kind == CollectiveKind::kNone && first_op != kNoOp) kind = ops_[first_op].kind;
    if (kind == CollectiveKind::kNone) kind = CommKernelKind(Text(t_.kernels.name[carrier.row]));
    const ElementType type = args.dtype == kNone ? ElementType() : ElementTypeOf(Text(args.dtype));
    std::int64_t elements = Elements(kind, args, group.size);
    for (std::size_t i = 1; i < carrier.together.size(); ++i) {
      const std::int64_t more = Elements(kind, ArgsOf(carrier, carrier.together[i]), group.size);
      if (more > 0 && __builtin_add_overflow(elements, more, &elements)) elements = -1;
    }
    v.comm = carrier.group;
    v.kind = static_cast<std::uint8_t>(kind);
    v.mode = static_cast<std::uint8_t>(CollectiveMode::kGpu);
    v.uneven = kind == CollectiveKind::kAllToAll && Uneven(args);
    v.thread = carrier.thread;
    v.begin_ns = begin;
    v.post_end_ns = end;
    v.last_incomplete_ns = kNoTime;
    v.wait_begin_ns = begin;
    v.end_ns = end;
    v.bytes = Bytes(elements, type.bytes);
    v.count = elements > 0 ? static_cast<std::uint64_t>(elements) : 0;
    v.dtype = static_cast<std::uint16_t>(type.type);
    v.root = -1;
    const bool rooted =
        kind == CollectiveKind::kBroadcast || RootReceives(kind) || RootSends(kind) || kind == CollectiveKind::kReduce;
    if (rooted && args.rank >= 0 && args.rank < group.size) v.root = static_cast<std::int32_t>(args.rank);
    v.call = kNone;
    v.kernel = carrier.row;
    row.seq = carrier.together.empty() ? args.seq : -1;
    return row;
  }

  // Uses the operations' own sequence numbers if all of a group have them and they grow; else their order on the GPU,
  // which is the order in which a group's members issued them.
  void Number(std::vector<Row>& rows) {
    std::vector<bool> counted(groups_.count(), true), any(groups_.count(), false);
    std::vector<std::int64_t> last(groups_.count(), -1);
    for (const Row& row : rows) {
      const std::uint32_t group = row.values.comm;
      any[group] = true;
      if (row.seq < 0 || row.seq < last[group] || groups_.guessed(group)) counted[group] = false;
      last[group] = row.seq;
    }
    std::vector<std::uint64_t> next(groups_.count(), 0);
    std::vector<std::uint32_t> same(groups_.count(), 0);
    std::fill(last.begin(), last.end(), -1);
    for (std::uint32_t i = 0; i < groups_.count(); ++i) counted[i] = counted[i] && any[i];
    for (Row& row : rows) {
      const std::uint32_t group = row.values.comm;
      if (counted[group]) {
        same[group] = row.seq == last[group] ? same[group] + 1 : 0;
        last[group] = row.seq;
        row.values.seq = static_cast<std::uint64_t>(row.seq);
        row.values.start = same[group];
      } else {
        row.values.seq = next[group]++;
      }
      t_.collectives.Append(row.values);
    }
    groups_.Emit(trace_, rank_, counted);
  }

  MappedTrace& trace_;
  schema::RankTables& t_;
  Groups groups_;
  const std::int32_t rank_;
  CommOperations ops_;
  std::unordered_map<std::uint64_t, Launch> launches_;
  std::map<std::uint32_t, std::vector<std::pair<std::int64_t, std::int64_t>>> operators_;
  std::vector<Carrier> carriers_;  // By begin.
  std::map<std::tuple<std::uint32_t, int, std::int64_t>, std::uint64_t> p2p_seq_;
  CommunicationFacts facts_;
};

}  // namespace

CommunicationFacts FindCollectives(MappedTrace& trace, std::string_view distributed_info, std::int32_t rank,
                                   std::int64_t world_size) {
  return Finder(trace, distributed_info, rank, world_size).Run();
}

std::int32_t RankFromOperations(const MappedTrace& trace, std::int64_t world_size) {
  for (const CommEvent& event : trace.comm_events) {
    const CommArgs& args = event.args;
    if (args.name == kNone || args.rank < 0 || args.rank >= args.group_size) continue;
    const std::string_view name = lockstep::trace::TextOf(trace.tables, args.name);
    const CollectiveKind kind = KindOfOperation(name);
    // For rooted operations this is the root.
    if (!Splits(kind) || DirectionOfOperation(name) >= 0) continue;
    const bool all = args.rank_start == 0 && args.rank_stride == 1 && world_size <= args.group_size;
    if (lockstep::trace::TextOf(trace.tables, args.description) == "default_pg" || all)
      return static_cast<std::int32_t>(std::min<std::int64_t>(args.rank, INT32_MAX));
  }
  return -1;
}

}  // namespace lockstep::ingest
