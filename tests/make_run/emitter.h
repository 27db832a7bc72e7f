#pragma once
// Rows of one synthetic rank. Takes true times, stores the rank's own clock.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/mpi_ops.h"
#include "core/schema.h"
#include "make_run/clock.h"
#include "make_run/groups.h"
#include "make_run/spec.h"
#include "trace/file/strings.h"

namespace lockstep::make_run {

struct CollectiveStart {
  const Op* op;
  std::uint8_t mode = 0;
  std::int64_t begin_ns = 0, post_end_ns = 0;
  std::uint32_t call = schema::kNone, kernel = schema::kNone;
  // GPU: entry of the host's call, and which of the operations in the kernel this is.
  std::int64_t enqueue_ns = schema::kNoTime;
  std::size_t part = 0;
  std::uint32_t thread = 0;
};

// What the tables do not say of a kernel that sends or receives.
struct GpuMessage {
  std::uint64_t correlation;
  bool send;
  std::int32_t peer;  // World rank.
  std::uint64_t bytes;
};

// Thread: one at a time.
class Emitter {
 public:
  Emitter(const Spec& spec, std::int32_t rank);

  std::uint32_t Mpi(std::uint32_t thread, MpiOp op, std::int64_t begin, std::int64_t end,
                    schema::MpiCalls::Row row = {.comm = schema::kNone, .peer = -1, .tag = -1, .count = 1});
  // Gives the operation its number on the communicator and an open row; Complete closes it.
  std::uint32_t Collective(const CollectiveStart& start);
  void Complete(std::uint32_t row, std::int64_t last_incomplete, std::int64_t wait_begin, std::int64_t end);
  void Init(const Op& op, std::int64_t begin, std::int64_t end);  // Persistent: takes a number, makes no row.
  void Ring(const Op& op, std::int64_t begin, std::int64_t end);
  // A receive and a send that are posted from `begin` on, and the calls that wait for each.
  struct Wait {
    std::int64_t begin, end;
  };
  void PostedRing(const Op& op, std::int64_t begin, const Wait& receive, const Wait& send);
  // Two receives and two sends that are posted from `begin` on, and the call that waits for all.
  void Halo(const Op& op, std::int64_t begin, std::int64_t wait, std::int64_t end);
  // One end of a message; `op.peer` is the receiver's rank minus the sender's.
  // `looked`: began the call that completes it.
  void Message(const Op& op, bool send, std::int64_t begin, std::int64_t end, std::int64_t looked);
  // The same by a kernel of NCCL.
  void GpuSendRecv(const Op& op, bool send, std::uint64_t correlation, std::int64_t begin, std::int64_t end);
  // A wait of the training thread; `waker`: the thread that ends it, or kNone.
  void Blocked(const WaitRow& wait, std::int64_t begin, std::int64_t end, std::uint32_t waker);
  void Push(std::string_view name, std::uint8_t category, std::int64_t at);
  void Pop(std::int64_t at);
  void Cpu(std::int64_t at, std::int64_t cpu_ns, std::int64_t run_delay_ns);
  // A mark: step `index` begins, the one before ends. `last`: none begins.
  void Mark(std::int64_t index, bool last, std::int64_t at, std::int64_t cpu_ns);

  std::uint32_t Kernel(std::string_view name, std::uint32_t stream, std::uint64_t correlation, std::uint8_t work,
                       std::int64_t begin, std::int64_t end);
  void Copy(const Op& op, std::uint32_t stream, std::uint64_t correlation, std::int64_t begin, std::int64_t end);
  // `record`, `record_stream`: kind 1 and 2, of the event record that is waited for.
  void Sync(std::uint8_t kind, std::uint32_t stream, std::uint64_t correlation, std::int64_t begin, std::int64_t end,
            std::uint64_t record = 0, std::uint32_t record_stream = schema::kNone);
  void Overhead(std::int64_t begin, std::int64_t end);
  void Api(std::string_view name, std::uint8_t kind, std::uint64_t correlation, std::int64_t begin, std::int64_t end);

  // Closes open ranges and steps, writes meta, clocks and losses, sorts, applies damage. The rank ended at
  // true time `end`; `signal` 0: normally; `cut`: the file says nothing about the end.
  std::vector<GpuMessage> TakeMessages() { return std::move(messages_); }
  schema::RankTables Finish(std::int64_t end, std::int32_t signal, bool cut, std::int64_t cpu_ns);

 private:
  std::uint32_t LocalComm(std::size_t comm);
  void Sign(std::int64_t local) { last_sign_ = last_sign_ < local ? local : last_sign_; }
  void Meta(std::string_view key, std::string_view value);
  void AddComms();
  void AddBursts(std::int64_t end);
  void AddSnapshots(std::int64_t end);
  void AddDevice(std::int64_t end);
  void AddStacks(std::int64_t end);
  // NCCL counts an operation per kind, everybody else per communicator.
  std::uint64_t NextSeq(const Op& op);
  void SortByBegin();
  void ApplyDamage();

  const Spec& spec_;
  std::int32_t rank_;
  TrueClock clock_;
  schema::RankTables tables_;
  trace::StringInterner<schema::Strings, schema::StringBytes> strings_;
  std::vector<std::uint32_t> local_comm_;                                     // Per Spec::comms, kNone: not a member.
  std::map<std::pair<std::size_t, CollectiveKind>, std::uint64_t> next_seq_;  // kNone: all kinds.
  struct PersistentOp {
    std::string name;
    std::uint64_t seq;
    std::uint32_t starts = 0;
  };
  std::vector<PersistentOp> persistent_;
  std::map<std::string, std::uint32_t> callers_;  // Rows of stacks by what `where` says.
  std::vector<std::size_t> open_ranges_;
  std::int64_t last_sign_;
  std::int64_t step_index_ = -1, step_begin_ = 0, step_cpu_ = 0;
  bool step_open_ = false;
  std::uint64_t rings_ = 0;
  std::vector<GpuMessage> messages_;
  std::map<std::pair<bool, std::int32_t>, std::uint64_t> message_seq_;  // Per direction and peer.
  std::uint32_t last_thread_ = 0;
};

}  // namespace lockstep::make_run
