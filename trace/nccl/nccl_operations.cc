// Finds which events and calls are one operation, and which launch carried it.

#include "trace/nccl/nccl_operations.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/collective.h"
#include "trace/nccl/nccl_calls.h"
#include "trace/nccl/nccl_graphs.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::int32_t kSuccess = 0, kInProgress = 7;  // ncclResult_t; the second of non-blocking communicators.

bool IsOperation(NcclEvent kind) {
  return kind == NcclEvent::kCollective || kind == NcclEvent::kP2p || kind == NcclEvent::kCopyEngine;
}
bool IsApi(NcclEvent kind) { return kind == NcclEvent::kCollectiveApi || kind == NcclEvent::kP2pApi; }

class Finder {
 public:
  Finder(const schema::RankTables& tables, std::span<const NcclEventRow> events, std::span<const NcclCallRow> calls,
         std::int64_t whole_until_ns)
      : tables_(tables),
        events_(events),
        call_rows_(calls),
        whole_until_ns_(whole_until_ns),
        launches_(tables),
        calls_(tables, calls) {}

  NcclFound Run() {
    by_id_.reserve(events_.size());
    std::uint32_t threads = 0;
    for (std::uint32_t i = 0; i < events_.size(); ++i) {
      by_id_.emplace(events_[i].id, i);
      threads = std::max(threads, events_[i].thread + 1);
    }
    std::vector<std::vector<std::uint32_t>> of_thread(threads);
    for (std::uint32_t i = 0; i < events_.size(); ++i) of_thread[events_[i].thread].push_back(i);
    told_.assign(tables_.comms.rows(), 0);
    launch_ties_.resize(events_.size());
    for (const std::vector<std::uint32_t>& each : of_thread) WalkThread(each);
    TieByGroup();
    for (const NcclOperation& op : found_.operations)
      if (op.tie.kernel != kNone) taken_.insert_or_assign(op.tie.kernel, true);
    AttachCalls();
    LearnStreams();
    AddFromApi();
    AddFromCalls();
    AddReplays();
    Order();
    return std::move(found_);
  }

 private:
  const NcclEventRow* Event(std::uint64_t id) const {
    if (id == 0) return nullptr;
    const auto at = by_id_.find(id);
    return at == by_id_.end() ? nullptr : &events_[at->second];
  }
  std::uint32_t IndexOf(const NcclEventRow& event) const { return static_cast<std::uint32_t>(&event - events_.data()); }
  // The nearest ancestor of an event, or the event itself, for which `wanted` holds. Damaged parents may form cycles.
  template <typename Wanted>
  const NcclEventRow* Above(const NcclEventRow* event, Wanted&& wanted) const {
    for (int depth = 0; event != nullptr && depth < 6; ++depth, event = Event(event->parent))
      if (wanted(event->kind)) return event;
    return nullptr;
  }
  const NcclEventRow* GroupApiOf(const NcclEventRow& event) const {
    return Above(&event, [](NcclEvent kind) { return kind == NcclEvent::kGroupApi; });
  }
  const NcclEventRow* ApiOf(const NcclEventRow& event) const { return Above(&event, IsApi); }
  bool Captured(const NcclEventRow& event) const {
    const NcclEventRow* at = &event;
    for (int depth = 0; at != nullptr && depth < 6; ++depth, at = Event(at->parent))
      if (at->captured) return true;
    return false;
  }

  // Outside graphs NCCL announces a kernel's launch before what it carries, on one thread.
  void WalkThread(const std::vector<std::uint32_t>& indices) {
    std::unordered_map<std::uint32_t, std::uint32_t> current;  // Communicator -> its last kernel launch.
    std::int64_t last_group_ns = kNoTime;
    for (std::size_t at = 0; at < indices.size(); ++at) {
      const std::uint32_t index = indices[at];
      const NcclEventRow& event = events_[index];
      if (event.kind == NcclEvent::kKernelLaunch) {
        if (Captured(event)) {
          captured_.AddLaunch(KeyOf(event), event.thread, event.begin_ns);
          current.erase(event.comm);
          continue;
        }
        // If its end was lost, it ended before the thread's next event.
        std::int64_t end = event.end_ns;
        if (end == kNoTime) end = at + 1 < indices.size() ? events_[indices[at + 1]].begin_ns : INT64_MAX;
        launch_ties_[index] = launches_.TieOf(launches_.Within(event.thread, event.begin_ns, end));
        current[event.comm] = index;
        if (const NcclEventRow* group = GroupApiOf(event)) launches_of_[{group->id, event.comm}].push_back(index);
        continue;
      }
      if (event.kind == NcclEvent::kGroup) {
        group_ties_[event.id] = TieBefore(event, last_group_ns);
        last_group_ns = event.begin_ns;
        continue;
      }
      if (!IsOperation(event.kind)) continue;
      if (event.comm < told_.size()) told_[event.comm] |= Bit(KindOf(event));
      NcclOperation op;
      op.event = index;
      const NcclEventRow* api = ApiOf(event);
      if (api != nullptr) {
        op.api = IndexOf(*api);
        has_operation_.insert_or_assign(op.api, true);
      }
      // No run: it was captured now, or a replay is told by a proxy's callback, whose kernel says more (nccl_graphs.h).
      if (Captured(event)) {
        if (event.kind == NcclEvent::kCopyEngine)
          copies_.insert(op.api);
        else if (api != nullptr)
          captured_.AddEvent(KeyOf(*api), event.thread, op.api, index);
        continue;
      }
      if (event.kind == NcclEvent::kCopyEngine) {
        std::int64_t end = event.end_ns;
        if (end == kNoTime) end = at + 1 < indices.size() ? events_[indices[at + 1]].begin_ns : INT64_MAX;
        op.tie = launches_.WholeOf(launches_.Within(event.thread, event.begin_ns, end));
      } else if (const auto launch = current.find(event.comm); launch != current.end()) {
        const NcclEventRow *mine = GroupApiOf(event), *its = GroupApiOf(events_[launch->second]);
        if (mine == nullptr || its == nullptr || mine == its) {
          op.tie = launch_ties_[launch->second];
          found_.operations.push_back(op);
          continue;
        }
      }
      if (!op.tie.tied()) open_.push_back(found_.operations.size());
      found_.operations.push_back(op);
    }
  }

  static constexpr auto kMessages = static_cast<std::uint8_t>(CollectiveKind::kSendRecv);
  static std::uint8_t KindOf(const NcclEventRow& event) {
    return event.kind == NcclEvent::kP2p || event.kind == NcclEvent::kP2pApi ? kMessages : event.function;
  }
  static std::uint32_t Bit(std::uint8_t kind) { return kind < 32 ? 1u << kind : 0; }
  // NCCL tells of all operations of a kind on a communicator, or of none.
  bool Told(std::uint32_t comm, std::uint32_t kinds) const {
    return !Alone(comm) && comm < told_.size() && (told_[comm] & kinds) != 0;
  }

  NcclCaptured::Key KeyOf(const NcclEventRow& event) const {
    const NcclEventRow* group = GroupApiOf(event);
    return {group != nullptr ? group->id : event.id, event.comm};
  }
  void AddCaptured(std::uint32_t index, std::uint32_t call) {
    const NcclEventRow& event = events_[index];
    if (Alone(event.comm) || copies_.contains(index)) return;
    NcclOperation op;
    op.api = index;
    op.call = call;
    captured_.AddOperation(KeyOf(event), op, KindOf(event), event.begin_ns);
  }

  static std::int64_t EndOr(const NcclEventRow& event, std::int64_t otherwise) {
    return event.end_ns == kNoTime ? otherwise : event.end_ns;
  }

  // The last NCCL kernel that the event's thread launched before it: within the call around it, else after `since_ns`,
  // the previous group. NCCL gives plugins of version 4 no more information than this.
  NcclTie TieBefore(const NcclEventRow& event, std::int64_t since_ns) const {
    std::int64_t from = since_ns;
    std::uint32_t call = calls_.GroupEndAround(event.thread, event.begin_ns);
    if (call == kNone) call = calls_.Around(event.thread, event.begin_ns);
    if (call != kNone) from = std::max(from, call_rows_[call].begin_ns);
    const std::span<const NcclLaunchIndex::Launch> before = launches_.Within(event.thread, from, event.begin_ns);
    for (std::size_t i = before.size(); i-- > 0;) {
      const NcclTie tie = launches_.TieOf(before.subspan(i, 1));
      if (tie.kernel != kNone && launches_.IsNccl(tie.kernel)) return tie;
    }
    return {};
  }

  // Operations that came on another thread than their kernel's launch (CUDA_LAUNCH_BLOCKING with
  // proxies), or from a plugin interface without launches.
  void TieByGroup() {
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<std::size_t>> by_group;
    for (const std::size_t i : open_) {
      NcclOperation& op = found_.operations[i];
      const NcclEventRow& event = events_[op.event];
      if (const NcclEventRow* group = GroupApiOf(event)) {
        if (launches_of_.contains({group->id, event.comm})) {
          by_group[{group->id, event.comm}].push_back(i);
          continue;
        }
      }
      for (const std::uint64_t id : {event.parent, event.group})
        if (const auto at = group_ties_.find(id); at != group_ties_.end() && !op.tie.tied()) op.tie = at->second;
      // Without a group, only the call around it prevents the search from finding another operation's kernel.
      const bool grouped = group_ties_.contains(event.parent) || group_ties_.contains(event.group);
      if (!grouped && (calls_.Around(event.thread, event.begin_ns) != kNone ||
                       calls_.GroupEndAround(event.thread, event.begin_ns) != kNone))
        op.tie = TieBefore(event, kNoTime);
    }
    for (auto& [key, ops] : by_group) {
      std::vector<std::uint32_t> launches = launches_of_.at(key);
      const auto begin = [&](std::uint32_t i) { return events_[i].begin_ns; };
      std::stable_sort(launches.begin(), launches.end(),
                       [&](std::uint32_t a, std::uint32_t b) { return begin(a) < begin(b); });
      // One plan, one kernel, one group event above what it carries.
      std::vector<std::uint64_t> plans;
      std::stable_sort(ops.begin(), ops.end(), [&](std::size_t a, std::size_t b) {
        return begin(found_.operations[a].event) < begin(found_.operations[b].event);
      });
      const auto plan_of = [&](std::size_t i) {
        const std::uint64_t group = events_[found_.operations[i].event].group;
        return static_cast<std::size_t>(std::find(plans.begin(), plans.end(), group) - plans.begin());
      };
      for (const std::size_t i : ops)
        if (plan_of(i) == plans.size()) plans.push_back(events_[found_.operations[i].event].group);
      if (launches.size() != 1 && plans.size() != launches.size()) continue;
      for (const std::size_t i : ops)
        found_.operations[i].tie = launch_ties_[launches.size() == 1 ? launches[0] : launches[plan_of(i)]];
    }
  }

  bool SameComm(std::uint32_t call, const NcclEventRow& event) const {
    return call_rows_[call].comm == event.comm || call_rows_[call].comm == kNone || event.comm == kNone;
  }

  // Whether an event is one of the messages that NCCL makes of a collective.
  bool IsPart(std::uint32_t event, std::uint32_t call) const {
    return call != kNone && events_[event].kind == NcclEvent::kP2p &&
           call_rows_[call].function != static_cast<std::uint8_t>(CollectiveKind::kSendRecv);
  }

  // Adds the caller's facts about each operation: from the call of its API event, or else from the group that launched
  // it.
  void AttachCalls() {
    std::unordered_map<std::uint32_t, std::size_t> whole;  // Call that NCCL makes of sends and receives -> operation.
    std::vector<NcclOperation> kept;
    claimed_.assign(call_rows_.size(), 0);
    for (NcclOperation& op : found_.operations) {
      const NcclEventRow& event = events_[op.api != kNone ? op.api : op.event];
      std::uint32_t call = calls_.Around(event.thread, event.begin_ns);
      if (call != kNone && !SameComm(call, event)) call = kNone;
      if (call == kNone && op.api == kNone)
        if (const std::uint32_t end = calls_.GroupEndAround(event.thread, event.begin_ns); end != kNone)
          call = MatchInGroup(end, event);
      if (call == kNone) {
        kept.push_back(op);
        continue;
      }
      claimed_[call] = 1;
      op.call = call;
      if (!IsPart(op.event, call)) {
        kept.push_back(op);
        continue;
      }
      // ncclAlltoAll, ncclGather, ncclScatter (2.28): one collective for the caller.
      const auto [at, fresh] = whole.try_emplace(call, kept.size());
      if (fresh) {
        op.event = kNone;
        kept.push_back(op);
      } else if (!kept[at->second].tie.tied()) {
        kept[at->second].tie = op.tie;
      }
    }
    found_.operations = std::move(kept);
  }

  // Version 4 names no calls: takes the call in the group with the same arguments.
  std::uint32_t MatchInGroup(std::uint32_t group_end, const NcclEventRow& event) {
    std::uint32_t best = kNone;
    int best_score = 0;
    for (const std::uint32_t i : calls_.GroupOf(group_end)) {
      const NcclCallRow& call = call_rows_[i];
      if (claimed_[i] || !SameComm(i, event)) continue;
      const bool p2p = call.function == static_cast<std::uint8_t>(CollectiveKind::kSendRecv);
      if (p2p != (event.kind == NcclEvent::kP2p)) continue;
      if (p2p ? call.direction != event.function || call.peer != event.peer : call.function != event.function) continue;
      const int score = 1 + (call.buffer != 0 && call.buffer == event.buffer ? 2 : 0) + (call.count == event.count);
      if (score > best_score) best = i, best_score = score;
    }
    return best;
  }

  bool Alone(std::uint32_t comm) const { return comm < tables_.comms.rows() && tables_.comms.size[comm] == 1; }

  // Which stream the caller's handles are, as far as an operation shows it.
  void LearnStreams() {
    const auto learn = [&](std::uint32_t comm, std::uint64_t stream, std::uint32_t kernel) {
      streams_[{comm, stream}] = {tables_.kernels.context[kernel], tables_.kernels.stream[kernel]};
    };
    for (const std::uint32_t i : calls_.operations()) {
      const NcclCallRow& row = call_rows_[i];
      const std::vector<std::uint32_t> kernels =
          launches_.KernelsOf(launches_.Within(row.thread, row.begin_ns, row.end_ns));
      if (kernels.size() == 1) learn(row.comm, row.stream, kernels[0]);
    }
    for (std::uint32_t i = 0; i < events_.size(); ++i)
      if (launch_ties_[i].kernel != kNone) learn(events_[i].comm, events_[i].stream, launch_ties_[i].kernel);
  }
  // The only one of `kernels` on a caller's stream.
  NcclTie OnStream(const std::vector<std::uint32_t>& kernels, std::uint32_t comm, std::uint64_t handle) const {
    NcclTie tie;
    const auto stream = streams_.find({comm, handle});
    if (stream == streams_.end()) return tie;
    for (const std::uint32_t kernel : kernels) {
      if (std::pair(tables_.kernels.context[kernel], tables_.kernels.stream[kernel]) != stream->second) continue;
      if (tie.kernel != kNone) return {};
      tie.kernel = kernel;
    }
    return tie;
  }

  // Communicators of one rank announce no operation, only their calls. Nor does NCCL 2.29.2 and later of ncclBroadcast,
  // and no kernel that carries nothing else: its src/enqueue.cc gives such tasks no event mask (NVIDIA/nccl issue
  // 2278).
  void AddFromApi() {
    std::vector<Silent> silent;
    for (std::uint32_t i = 0; i < events_.size(); ++i) {
      const NcclEventRow& event = events_[i];
      if (!IsApi(event.kind)) continue;
      std::uint32_t call = calls_.Around(event.thread, event.begin_ns);
      if (call != kNone && !SameComm(call, event)) call = kNone;
      if (call != kNone) {
        if (claimed_[call] != 0) continue;
        claimed_[call] = 1;
      }
      if (event.count == 0) continue;
      if (Captured(event)) {
        AddCaptured(i, call);
        continue;
      }
      if (has_operation_.contains(i)) continue;
      if (Told(event.comm, Bit(KindOf(event))))
        ++found_.orphans;
      else if (Alone(event.comm))
        AddAlone(i, call);
      else
        silent.push_back({i, call});
    }
    AddSilent(silent);
  }
  void AddAlone(std::uint32_t index, std::uint32_t call) {
    const NcclEventRow& event = events_[index];
    NcclOperation op;
    op.api = index;
    op.call = call;
    if (call != kNone) op.tie = TieOfCall(call);
    if (!op.tie.tied())
      op.tie = launches_.TieOf(launches_.Within(event.thread, event.begin_ns, EndOr(event, event.begin_ns)));
    if (op.tie.kernel != kNone) taken_.insert_or_assign(op.tie.kernel, true);
    found_.operations.push_back(op);
  }

  struct Silent {
    std::uint32_t api, call;
  };
  // What the thread launched for an API event: by the end of its group, else within it.
  std::span<const NcclLaunchIndex::Launch> LaunchedFor(const Silent& one) const {
    if (one.call != kNone) {
      const std::uint32_t end = calls_.GroupEndOf(one.call);
      const NcclCallRow& call = call_rows_[end != kNone ? end : one.call];
      return launches_.Within(call.thread, call.begin_ns, call.end_ns);
    }
    const NcclEventRow* around = GroupApiOf(events_[one.api]);
    if (around == nullptr) around = &events_[one.api];
    return launches_.Within(around->thread, around->begin_ns, EndOr(*around, around->begin_ns));
  }
  // Ties operations of which only the API event came. Those of one communicator in a group share a kernel: the one
  // that was announced for others of them, or one that was announced for nobody.
  void AddSilent(const std::vector<Silent>& silent) {
    std::map<std::uint64_t, std::set<std::uint32_t>> comms_of, unannounced_of;  // By group.
    for (const Silent& one : silent) {
      const auto [group, comm] = KeyOf(events_[one.api]);
      comms_of[group].insert(comm);
      if (!launches_of_.contains({group, comm})) unannounced_of[group].insert(comm);
    }
    std::set<std::uint32_t> used;
    for (const Silent& one : silent) {
      const NcclEventRow& event = events_[one.api];
      const auto [group, comm] = KeyOf(event);
      std::vector<std::uint32_t> kernels = launches_.KernelsOf(LaunchedFor(one));
      std::erase_if(kernels,
                    [&](std::uint32_t kernel) { return !launches_.IsNccl(kernel) || taken_.contains(kernel); });
      const auto announced = launches_of_.find({group, comm});
      NcclOperation op;
      op.api = one.api;
      op.call = one.call;
      if (announced != launches_of_.end() && kernels.size() <= unannounced_of[group].size()) {
        if (announced->second.size() == 1) op.tie = launch_ties_[announced->second[0]];
      } else if (kernels.size() == 1 && comms_of[group].size() == 1) {
        op.tie.kernel = kernels[0];
      } else {
        op.tie = OnStream(kernels, comm, event.stream);
      }
      if (op.tie.kernel != kNone) used.insert(op.tie.kernel);
      found_.operations.push_back(op);
    }
    for (const std::uint32_t kernel : used) taken_.insert_or_assign(kernel, true);
  }

  void AddReplays() {
    // Others may have been captured while recording was off.
    if (captured_.last_ns() > whole_until_ns_) return;
    const std::vector<NcclOperation> runs = captured_.Runs(tables_);
    for (NcclOperation op : runs) {
      if (op.event != kNone && IsPart(op.event, op.call)) op.event = kNone;
      found_.operations.push_back(op);
    }
    if (runs.empty()) found_.replays_untied = captured_.told_replays();
  }

  // The kernel launched inside a call, or by its group if that has only one candidate.
  NcclTie TieOfCall(std::uint32_t call) const {
    const NcclCallRow& row = call_rows_[call];
    const NcclTie inside = launches_.TieOf(launches_.Within(row.thread, row.begin_ns, row.end_ns));
    const std::uint32_t end = calls_.GroupEndOf(call);
    if (inside.tied() || end == kNone) return inside;
    const auto launched = launches_.Within(row.thread, call_rows_[end].begin_ns, call_rows_[end].end_ns);
    const std::vector<std::uint32_t> kernels = launches_.KernelsOf(launched);
    if (kernels.size() == 1) return {.kernel = kernels[0]};
    // One kernel per stream: the caller's handles are known from calls outside of groups.
    return OnStream(kernels, row.comm, row.stream);
  }

  // Without plugin events: each call that did not fail, with what its thread launched in it.
  void AddFromCalls() {
    for (const std::uint32_t i : calls_.operations()) {
      const NcclCallRow& row = call_rows_[i];
      if (claimed_[i] || row.count == 0 || (row.result != kSuccess && row.result != kInProgress)) continue;
      NcclOperation op;
      op.call = i;
      op.tie = TieOfCall(i);
      // A plugin that hears of such operations would have recorded this one if it had launched a kernel. NCCL builds
      // some of messages.
      const bool cast = row.function == static_cast<std::uint8_t>(CollectiveKind::kBroadcast);
      const std::uint32_t kinds = Bit(row.function) | (cast ? 0 : Bit(kMessages));
      if (Told(row.comm, kinds) && (!op.tie.tied() || taken_.contains(op.tie.kernel))) {
        ++found_.orphans;
        continue;
      }
      found_.operations.push_back(op);
    }
  }

  void Order() {
    std::vector<std::pair<std::int64_t, std::size_t>> order;
    for (std::size_t i = 0; i < found_.operations.size(); ++i) {
      const NcclOperation& op = found_.operations[i];
      order.emplace_back(op.replay != 0     ? op.launched_ns
                         : op.call != kNone ? call_rows_[op.call].begin_ns
                         : op.api != kNone  ? events_[op.api].begin_ns
                                            : events_[op.event].begin_ns,
                         i);
    }
    std::sort(order.begin(), order.end());
    std::vector<NcclOperation> ordered;
    for (const auto& [ns, i] : order) ordered.push_back(found_.operations[i]);
    found_.operations = std::move(ordered);
  }

  const schema::RankTables& tables_;
  std::span<const NcclEventRow> events_;
  std::span<const NcclCallRow> call_rows_;
  const std::int64_t whole_until_ns_;
  NcclLaunchIndex launches_;
  NcclCalls calls_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_id_;
  std::vector<std::uint32_t> told_;  // By communicator: bits of the kinds of which NCCL told operations.
  std::vector<std::uint8_t> claimed_;
  std::vector<NcclTie> launch_ties_;  // Per event: of kernel launches.
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<std::uint32_t>> launches_of_;  // GroupApi, comm.
  std::unordered_map<std::uint64_t, NcclTie> group_ties_;                                      // By id of a kGroup.
  NcclCaptured captured_;
  std::set<std::uint32_t> copies_;  // API events of captured collectives of copy engines, which make no kernels.
  std::unordered_map<std::uint32_t, bool> has_operation_, taken_;  // API events; rows of kernels.
  std::map<std::pair<std::uint32_t, std::uint64_t>, std::pair<std::uint32_t, std::uint32_t>> streams_;
  std::vector<std::size_t> open_;
  NcclFound found_;
};

}  // namespace

NcclFound FindNcclOperations(const schema::RankTables& tables, std::span<const NcclEventRow> events,
                             std::span<const NcclCallRow> calls, std::int64_t whole_until_ns) {
  return Finder(tables, events, calls, whole_until_ns).Run();
}

}  // namespace lockstep::trace
