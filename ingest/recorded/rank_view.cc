#include "ingest/recorded/rank_view.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "core/comm_calls.h"
#include "core/data_type_name.h"
#include "core/loss.h"
#include "core/mpi_ops.h"
#include "ingest/recorded/call_sites.h"
#include "ingest/recorded/cpu_words.h"
#include "ingest/recorded/mpi_words.h"
#include "ingest/recorded/process_gone.h"
#include "ingest/recorded/stacks.h"
#include "trace/decode/open_call.h"
#include "trace/file/strings.h"

namespace lockstep::recorded {
namespace {

using hang::kNotKnown;
using hang::Operation;
using hang::OperationState;
using ingest::RowCursor;
using schema::kNone;
using schema::kNoTime;

constexpr std::int64_t kSecond = 1'000'000'000;
// The latest calls are compared with other ranks'; who runs further ahead in non-blocking ones is not compared.
constexpr std::size_t kCallsKept = 64;
// A rank that asked again so shortly before its end was asking all the time.
constexpr std::int64_t kAskingNs = 2 * kSecond;
// As agents write it (runtime/agent/sample/blocked_in.h).
constexpr std::string_view kFutex = "futex";

constexpr schema::Columns<schema::Collectives> kOfCollectives = {&schema::Collectives::comm,
                                                                 &schema::Collectives::seq,
                                                                 &schema::Collectives::kind,
                                                                 &schema::Collectives::mode,
                                                                 &schema::Collectives::uneven,
                                                                 &schema::Collectives::begin_ns,
                                                                 &schema::Collectives::last_incomplete_ns,
                                                                 &schema::Collectives::end_ns,
                                                                 &schema::Collectives::bytes,
                                                                 &schema::Collectives::count,
                                                                 &schema::Collectives::dtype,
                                                                 &schema::Collectives::root,
                                                                 &schema::Collectives::caller};
constexpr schema::Columns<schema::P2p> kOfMessages = {
    &schema::P2p::comm,  &schema::P2p::direction,       &schema::P2p::mode,
    &schema::P2p::peer,  &schema::P2p::peer_world_rank, &schema::P2p::tag,
    &schema::P2p::seq,   &schema::P2p::begin_ns,        &schema::P2p::last_incomplete_ns,
    &schema::P2p::bytes, &schema::P2p::outcome,         &schema::P2p::caller};
constexpr schema::Columns<schema::MpiCalls> kOfCalls = {&schema::MpiCalls::begin_ns, &schema::MpiCalls::duration_ns,
                                                        &schema::MpiCalls::op, &schema::MpiCalls::comm,
                                                        &schema::MpiCalls::outcome};
constexpr schema::Columns<schema::Ranges> kOfRanges = {&schema::Ranges::thread, &schema::Ranges::name,
                                                       &schema::Ranges::depth, &schema::Ranges::open};

class Viewer {
 public:
  Viewer(const RecordedRank& rank, const ingest::HostNames& hosts)
      : rank_(rank), head_(*rank.head), hosts_(hosts), sites_(head_) {}

  RankView View() {
    reader_ = rank_.source->OpenEvents();
    FindClock();
    DescribeProcess();
    FindComms();
    TakeRanges();
    TakeCalls();
    TakeCollectives();
    TakeMessages();
    for (const trace::OpenCallFact& call : trace::OpenCallsOf(head_)) TakeOpenCall(call);
    TakePolls();
    Finish();
    for (std::string& line : reader_->Damaged()) view_.damaged.push_back(std::move(line));
    view_.whole &= view_.damaged.empty();
    return std::move(view_);
  }

 private:
  std::int64_t Epoch(std::int64_t ns) const { return ns == kNoTime ? kNotKnown : ns + offset_ns_; }

  void FindClock() {
    const schema::ClockSnapshots& clock = head_.clock_snapshots;
    if (clock.rows() != 0) offset_ns_ = clock.realtime_ns.back() - clock.raw_ns.back();
  }

  // An operation that came to its end.
  void Moved(std::int64_t begin_ns, std::int64_t end_ns) {
    hang::RankFacts& facts = view_.facts;
    facts.moved_ns = std::max(facts.moved_ns, Epoch(end_ns));
    facts.longest_wait_ns = std::max(facts.longest_wait_ns, end_ns - begin_ns);
  }

  bool HasLoss(Loss loss) const {
    return std::any_of(head_.losses.name.begin(), head_.losses.name.end(),
                       [&](std::uint32_t name) { return trace::TextOf(head_, name) == Info(loss).name; });
  }

  void DescribeProcess() {
    hang::RankFacts& facts = view_.facts;
    facts.rank = rank_.rank;
    facts.host = hosts_.Of(head_);
    facts.state = rank_.running ? hang::RankState::kAlive : hang::RankState::kUnknown;
    const schema::Processes& processes = head_.processes;
    if (processes.rows() != 0) {
      end_ns_ = processes.end_ns[0];
      view_.end_code = processes.end_code[0];
      view_.ended_by_signal = processes.ended[0] == schema::ProcessEnd::kSignal;
      if (view_.ended_by_signal || processes.ended[0] == schema::ProcessEnd::kExit) view_.ended_ns = Epoch(end_ns_);
      facts.without_finalize = processes.ended[0] == schema::ProcessEnd::kExit && view_.end_code == 0 &&
                               !trace::MetaValue(head_, "inside_mpi").empty();
      // Its agent ended with it, and saw nothing.
      if (view_.ended_ns == kNotKnown && !rank_.running && ProcessIsGone(head_, processes.pid[0])) {
        view_.ended_ns = Epoch(end_ns_);
        view_.ended_by_signal = true;
      }
      const std::string pid = std::to_string(processes.pid[0]), key = "stopped." + pid;
      facts.pid = processes.pid[0];
      TakeBlocked(trace::MetaValue(head_, "blocked." + pid));
      TakeStacks(trace::MetaValue(head_, "stack." + pid), facts);
      if (!trace::MetaValue(head_, key).empty()) facts.state = hang::RankState::kStopped;
    }
    facts.seen_ns = Epoch(end_ns_);
    const schema::Windows& windows = head_.windows;
    const bool all_windows =
        windows.rows() == 1 && windows.begin_cause[0] == static_cast<std::uint8_t>(WindowCause::kRunBegin);
    view_.recorded_to_the_end = windows.rows() != 0 && end_ns_ != kNoTime && windows.end_ns.back() >= end_ns_ - kSecond;
    view_.whole = all_windows && view_.recorded_to_the_end;
    for (const Loss loss : {Loss::kRingFull, Loss::kNoRing, Loss::kSpoolWrite, Loss::kSpoolBlock, Loss::kSpoolTail,
                            Loss::kUnknownRecord, Loss::kBytesLimit})
      view_.whole &= !HasLoss(loss);
  }

  // "read of /data/shard-17": the system call that the main thread sleeps in, and its file.
  void TakeBlocked(std::string_view text) {
    constexpr std::string_view kOf = " of ";
    const std::size_t end = text.find(kOf);
    view_.facts.asleep_in = text.substr(0, end);
    if (end != std::string_view::npos) view_.facts.asleep_on = text.substr(end + kOf.size());
  }

  void FindComms() {
    const schema::Comms& comms = head_.comms;
    of_row_.assign(comms.rows(), nullptr);
    for (std::size_t row = 0; row < comms.rows(); ++row) {
      const bool torch = comms.kind[row] == schema::CommKind::kTorchGroup;
      if (comms.kind[row] != schema::CommKind::kIntra && !torch) continue;
      if (comms.unidentified[row] != 0 || comms.global_id[row] == 0) continue;
      CommView& comm = view_.comms[comms.global_id[row]];
      comm.global_id = comms.global_id[row];
      comm.made = comms.parent_id[row] != 0;
      comm.is_mpi = !torch;
      comm.name = trace::TextOf(head_, comms.name[row]);
      of_row_[row] = &comm;
      if (comms.stride[row] == 0 || comms.first_world_rank[row] < 0) continue;
      comm.members.clear();
      for (std::uint32_t i = 0; i < std::min<std::uint32_t>(comms.size[row], ingest::kMostRanks); ++i)
        comm.members.push_back(
            static_cast<std::int32_t>(comms.first_world_rank[row] + std::int64_t{i} * comms.stride[row]));
    }
    for (std::size_t i = 0; i < head_.comm_members.rows(); ++i) {
      const std::uint32_t row = head_.comm_members.comm[i];
      if (row < of_row_.size() && of_row_[row] != nullptr && comms.stride[row] == 0)
        of_row_[row]->members.push_back(head_.comm_members.world_rank[i]);
    }
    for (auto& [id, comm] : view_.comms)
      if (std::any_of(comm.members.begin(), comm.members.end(), [](std::int32_t rank) { return rank < 0; }))
        comm.members.clear();
  }

  CommView* CommOf(std::uint32_t row) { return row < of_row_.size() ? of_row_[row] : nullptr; }
  static std::int32_t WorldRank(const CommView& comm, std::int32_t rank) {
    return rank >= 0 && static_cast<std::size_t>(rank) < comm.members.size() ? comm.members[rank] : -1;
  }

  // Ranges that were open at the end: what the program was doing, by its own words.
  void TakeRanges() {
    RowCursor<schema::Ranges, kOfRanges> cursor(*reader_);
    int deepest = -1;
    while (const auto* piece = cursor.Next()) {
      for (std::size_t i = 0; i < piece->rows(); ++i) {
        const std::string_view name = trace::TextOf(head_, piece->name[i]);
        if (IsDistributedCall(name)) {
          shows_torch_calls_ = true;
          inside_torch_call_ |= piece->open[i] != 0;
        }
        const bool training = piece->thread[i] < head_.threads.rows() && head_.threads.training[piece->thread[i]] != 0;
        if (piece->open[i] == 0 || !training || int{piece->depth[i]} <= deepest) continue;
        deepest = piece->depth[i];
        range_ = name;
      }
    }
  }

  void TakeCalls() {
    RowCursor<schema::MpiCalls, kOfCalls> cursor(*reader_);
    int sessions = 0;
    while (const auto* piece = cursor.Next()) {
      for (std::size_t i = 0; i < piece->rows(); ++i) {
        const std::uint16_t op = piece->op[i];
        const bool open = piece->outcome[i] == schema::CallOutcome::kNotReturned;
        const bool asks = piece->outcome[i] == schema::CallOutcome::kNothingCompleted &&
                          piece->begin_ns[i] + piece->duration_ns[i] >= end_ns_ - kAskingNs;
        const MpiOpInfo* info = FindMpiOp(op);
        if (!open && info != nullptr && !IsSetup(info->cls) &&
            piece->outcome[i] != schema::CallOutcome::kNothingCompleted)
          Moved(piece->begin_ns[i], piece->begin_ns[i] + piece->duration_ns[i]);
        polled_ = asks ? op : std::uint16_t{0};
        polled_since_ns_ = piece->begin_ns[i];
        sessions += static_cast<MpiOp>(op) == MpiOp::kSession_init;
        const bool last = static_cast<MpiOp>(op) == MpiOp::kSession_finalize && --sessions <= 0;
        if (static_cast<MpiOp>(op) == MpiOp::kFinalize || last) {
          view_.inside_finalize = open;
          view_.left_mpi = true;
          view_.finalize_ns = Epoch(piece->begin_ns[i]);
        } else if (!open && IsCreation(op)) {
          if (CommView* comm = CommOf(piece->comm[i])) ++comm->creations;
        }
      }
    }
  }

  Operation CallOf(const CommView& comm, std::uint8_t kind, std::uint64_t seq, std::int64_t begin_ns,
                   std::uint64_t bytes, std::uint64_t count, std::uint16_t dtype, bool uneven,
                   std::int32_t root) const {
    Operation call;
    call.sequence = static_cast<std::int64_t>(std::min<std::uint64_t>(seq, INT64_MAX - 1)) + 1;
    call.kind = KindText(static_cast<CollectiveKind>(kind));
    call.created_ns = Epoch(begin_ns);
    call.peer = WorldRank(comm, root);
    // Members may describe the same data by other types, of which only their sizes are known.
    const bool plain = dtype != 0 && dtype != schema::Code(DataType::kDerived);
    if (plain) call.type = TextOfDataType(dtype).name;
    if (plain && !uneven)
      call.elements_in = call.elements_out = static_cast<std::int64_t>(std::min<std::uint64_t>(count, INT64_MAX));
    // In PyTorch, 0 is not known.
    if (comm.is_mpi || bytes != 0) call.bytes = static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX));
    if (!comm.is_mpi && count == 0) call.elements_in = call.elements_out = kNotKnown;
    return call;
  }

  static void Keep(CommView& comm, Operation call) {
    comm.entered = std::max(comm.entered, call.sequence);
    comm.calls.push_back(std::move(call));
    if (comm.calls.size() < 4 * kCallsKept) return;
    Thin(comm);
  }
  static void Thin(CommView& comm) {
    std::stable_sort(comm.calls.begin(), comm.calls.end(),
                     [](const Operation& a, const Operation& b) { return a.sequence < b.sequence; });
    if (comm.calls.size() <= kCallsKept) return;
    std::size_t left = comm.calls.size() - kCallsKept;
    std::erase_if(comm.calls, [&](const Operation& call) {
      return call.state == OperationState::kCompleted && left != 0 && left-- != 0;
    });
  }

  // Whether what PyTorch's backend carries is waited for by the rank's own threads, as far as that is known: in a call
  // of Python's, or by C++ within a backward pass (the reducers of DDP), where a wait for another thread is a futex.
  bool WaitedInTorch() const { return !shows_torch_calls_ || inside_torch_call_ || view_.facts.asleep_in == kFutex; }

  void TakeCollectives() {
    RowCursor<schema::Collectives, kOfCollectives> cursor(*reader_);
    while (const auto* piece = cursor.Next()) {
      for (std::size_t i = 0; i < piece->rows(); ++i) {
        CommView* comm = CommOf(piece->comm[i]);
        const auto mode = static_cast<CollectiveMode>(piece->mode[i]);
        if (comm == nullptr || mode == CollectiveMode::kGpu) continue;
        if (mode == CollectiveMode::kPersistent) {
          persistent_.insert({piece->comm[i], piece->seq[i]});
          comm->entered = std::max(comm->entered, static_cast<std::int64_t>(piece->seq[i]) + 1);
          continue;
        }
        Operation call = CallOf(*comm, piece->kind[i], piece->seq[i], piece->begin_ns[i], piece->bytes[i],
                                piece->count[i], piece->dtype[i], (piece->uneven[i] & 1) != 0, piece->root[i]);
        call.site = sites_.Of(piece->caller[i]);
        if (piece->end_ns[i] != kNoTime) {
          call.state = OperationState::kCompleted;
          // Of MPI's, its calls say it: an operation that was posted long before is no long wait.
          if (!comm->is_mpi) Moved(piece->begin_ns[i], piece->end_ns[i]);
        } else {
          call.waited = comm->is_mpi ? AskedFor(piece->last_incomplete_ns[i]) : WaitedInTorch();
          // A completion that was lost looks like an operation that goes on.
          if (comm->is_mpi && !call.waited && !view_.whole) call.state = OperationState::kCompleted;
        }
        Keep(*comm, std::move(call));
      }
    }
  }

  bool AskedFor(std::int64_t last_incomplete_ns) const {
    return last_incomplete_ns != kNoTime && last_incomplete_ns >= end_ns_ - kAskingNs;
  }

  MessageKey KeyOf(const CommView& comm, bool sends, std::int32_t peer_world_rank, std::int32_t tag) const {
    const std::int32_t self = rank_.rank;
    return {comm.global_id, sends ? self : peer_world_rank, sends ? peer_world_rank : self, tag < 0 ? -1 : tag};
  }

  void TakeMessages() {
    RowCursor<schema::P2p, kOfMessages> cursor(*reader_);
    while (const auto* piece = cursor.Next()) {
      for (std::size_t i = 0; i < piece->rows(); ++i) {
        const CommView* comm = CommOf(piece->comm[i]);
        if (comm == nullptr || piece->mode[i] == schema::Code(CollectiveMode::kGpu)) continue;
        const bool sends = piece->direction[i] == schema::Direction::kSend;
        MessageKey key = KeyOf(*comm, sends, piece->peer_world_rank[i], piece->tag[i]);
        const bool numbered = piece->seq[i] != UINT64_MAX && piece->peer_world_rank[i] >= 0;
        if (numbered) key.partitioned = static_cast<std::int64_t>(piece->seq[i] / schema::kPartitionedSeq);
        const std::int64_t number =
            numbered ? static_cast<std::int64_t>(piece->seq[i] % schema::kPartitionedSeq) + 1 : 0;
        if (numbered) {
          RankView::Sent& sent = view_.messages[key];
          (sends ? sent.sends : sent.receives) = std::max(sends ? sent.sends : sent.receives, number);
        }
        if (piece->outcome[i] != schema::RequestOutcome::kNeverCompleted) continue;
        const bool waited = comm->is_mpi ? AskedFor(piece->last_incomplete_ns[i]) : WaitedInTorch();
        if (!waited && !view_.whole) continue;
        AddMessage(key, sends, number, piece->begin_ns[i], piece->bytes[i], waited).call.site =
            sites_.Of(piece->caller[i]);
        posted_[{piece->begin_ns[i], sends}] = view_.open.size() - 1;
      }
    }
  }

  OpenMessage& AddMessage(const MessageKey& key, bool sends, std::int64_t number, std::int64_t begin_ns,
                          std::uint64_t bytes, bool waited) {
    OpenMessage& message = view_.open.emplace_back();
    message.key = key;
    message.sends = sends;
    message.number = number;
    message.call.kind = sends ? "send" : "recv";
    message.call.peer = sends ? key.to : key.from;
    message.call.created_ns = Epoch(begin_ns);
    message.call.waited = waited;
    if (bytes != 0) message.call.bytes = static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX));
    return message;
  }

  void AddElsewhere(std::string kind, std::int64_t begin_ns) {
    Operation call;
    call.kind = std::move(kind);
    call.created_ns = Epoch(begin_ns);
    view_.elsewhere.push_back(std::move(call));
  }

  void TakeOpenCall(const trace::OpenCallFact& row) {
    using trace::Awaits;
    const auto op = static_cast<MpiOp>(row.op);
    if (op == MpiOp::kFinalize || op == MpiOp::kSession_finalize || op == MpiOp::kAbort) return;
    inside_ = true;
    view_.moves_messages |= MovesMessages(row.op);
    const bool own = row.posted_ns == kNoTime, many = row.requests > 1;
    if (many && WaitsForAny(row.op)) {
      // Each fact of the call says the same.
      if (std::exchange(any_wait_, row.begin_ns) != row.begin_ns) AddElsewhere("wait", row.begin_ns);
      return;
    }
    // Operations that the fact does not name may be among those that are waited for.
    if (row.requests > kMostRows) waits_for_all_ = true;
    CommView* comm = CommOf(row.comm);
    if (comm != nullptr && comm->members.size() < 2) comm = nullptr;
    if (row.awaits == Awaits::kCollective && comm != nullptr && !persistent_.contains({row.comm, row.seq})) {
      const MpiOpInfo* info = FindMpiOp(row.op);
      Operation* posted = own ? nullptr : Find(*comm, row.seq);
      if (posted != nullptr) {
        posted->waited = true;
      } else if (own && info != nullptr) {
        Operation call = CallOf(*comm, schema::Code(info->kind), row.seq, row.begin_ns, row.bytes, row.count, row.dtype,
                                row.uneven, row.peer);
        call.site = sites_.Of(row.caller);
        Keep(*comm, std::move(call));
      }
      return;
    }
    if (row.awaits == Awaits::kCreation && comm != nullptr && IsCreation(row.op)) {
      comm->creation.kind = CallText(row.op);
      comm->creation.sequence = static_cast<std::int64_t>(row.seq) + 1;
      comm->creation.created_ns = Epoch(row.begin_ns);
      return;
    }
    if ((row.awaits == Awaits::kSend || row.awaits == Awaits::kReceive) && comm != nullptr && row.peer != -1) {
      const bool sends = row.awaits == Awaits::kSend;
      if (!own) {
        if (const auto at = posted_.find({row.posted_ns, sends}); at != posted_.end()) {
          view_.open[at->second].call.waited = true;
          view_.open[at->second].one_of_many = many;
        }
        return;
      }
      AddOwnMessage(row, *comm, sends);
      return;
    }
    // MPI_PROC_NULL holds nobody up.
    if (row.peer == -1 && (row.awaits == Awaits::kSend || row.awaits == Awaits::kReceive) && comm != nullptr) return;
    AddElsewhere(CallText(row.op), row.begin_ns);
  }

  void AddOwnMessage(const trace::OpenCallFact& row, const CommView& comm, bool sends) {
    const std::int32_t peer = WorldRank(comm, row.peer);
    const MessageKey key = KeyOf(comm, sends, peer, row.tag);
    std::int64_t number = 0;
    if (peer >= 0 && row.tag >= 0) {
      RankView::Sent& sent = view_.messages[key];
      number = ++(sends ? sent.sends : sent.receives);
    }
    const MpiOpInfo* info = FindMpiOp(row.op);
    OpenMessage& message = AddMessage(key, sends, number, row.begin_ns, row.bytes, true);
    message.one_of_many = info != nullptr && info->cls == MpiClass::kSendRecv;
    message.call.site = sites_.Of(row.caller);
  }

  static Operation* Find(CommView& comm, std::uint64_t seq) {
    for (Operation& call : comm.calls)
      if (call.sequence == static_cast<std::int64_t>(seq) + 1) return &call;
    return nullptr;
  }

  // A thread that asks again and again is inside what it asks for.
  void TakePolls() {
    if (polled_ == 0) return;
    inside_ = true;
    view_.moves_messages |= MovesMessages(polled_);
    const MpiOpInfo* info = FindMpiOp(polled_);
    if (info != nullptr && info->cls == MpiClass::kTest) {
      std::size_t asked = 0;
      for (OpenMessage& message : view_.open) asked += message.call.waited;
      for (OpenMessage& message : view_.open) message.one_of_many |= message.call.waited && asked > 1;
      if (asked == 0) waits_for_all_ = true;
    } else {
      AddElsewhere(CallText(polled_), polled_since_ns_);
    }
  }

  void Finish() {
    if (waits_for_all_) {
      for (OpenMessage& message : view_.open) message.call.waited = message.one_of_many = true;
      for (auto& [id, comm] : view_.comms)
        for (Operation& call : comm.calls) call.waited = true;
    }
    for (auto& [id, comm] : view_.comms) {
      Thin(comm);
      // Inside any call, MPI may move what was begun before.
      comm.moves_in_calls = comm.is_mpi && !inside_ && view_.whole;
    }
    Doing();
  }

  // "in range load_batch, computing (CPU 98 %)".
  void Doing() {
    if (inside_ || view_.left_mpi) return;
    std::string text = range_.empty() ? "" : "in range " + range_;
    if (const std::string cpu = CpuWords(*reader_, head_, end_ns_, view_.facts); !cpu.empty())
      text += (text.empty() ? "" : ", ") + cpu;
    view_.facts.doing = std::move(text);
  }

  static constexpr std::uint32_t kMostRows = 16;  // Of a completion call (trace/decode/open_call.h).

  const RecordedRank& rank_;
  const schema::RankTables& head_;
  const ingest::HostNames& hosts_;
  std::unique_ptr<ingest::EventReader> reader_;
  RankView view_;
  std::vector<CommView*> of_row_;
  std::set<std::pair<std::uint32_t, std::uint64_t>> persistent_;
  std::map<std::pair<std::int64_t, bool>, std::size_t> posted_;  // When, sends -> place in view_.open.
  CallSites sites_;
  std::int64_t offset_ns_ = 0, end_ns_ = kNoTime, any_wait_ = kNoTime, polled_since_ns_ = kNoTime;
  std::string range_;
  std::uint16_t polled_ = 0;
  bool shows_torch_calls_ = false, inside_torch_call_ = false, inside_ = false, waits_for_all_ = false;
};

}  // namespace

RankView ViewOf(const RecordedRank& rank, const ingest::HostNames& hosts) { return Viewer(rank, hosts).View(); }

}  // namespace lockstep::recorded
