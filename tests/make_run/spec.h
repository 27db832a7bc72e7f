#pragma once
// The text description of a synthetic run, parsed. The language is README.md's;
// everything is an integer, so that an independent reader of the same text gets
// the same nanoseconds.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective.h"
#include "core/mpi_ops.h"
#include "core/result.h"
#include "make_run/resample.h"

namespace lockstep::make_run {

inline constexpr std::int64_t kMillion = 1'000'000;

enum class Progress : std::uint8_t { kNone, kTest, kThread, kHelper };

enum class OpKind : std::uint8_t {
  kCompute,  // duration on the training thread, in a range of `category` if it has a name
  kOther,    // an MPI call that is no communication
  kPush,
  kPop,       // range
  kBlocking,  // blocking collective
  kPost,      // non-blocking collective
  kInit,      // persistent collective's initialisation
  kStart,     // its start
  kWait,      // completes the operations named `name`, all if empty
  kTest,      // one unsuccessful-or-not test of everything outstanding
  kRing,      // send right, receive from the left
  kSend,      // an eager message to rank + peer
  kRecv,
  kHost,  // GPU runs: host work
  kKernel,
  kNccl,
  kNcclSend,
  kNcclRecv,
  kCopy,
  kJoin,
  kSync,
  kOverhead,  // GPU runs: the profiling library takes the host's time
};

struct Op {
  OpKind kind;
  std::int64_t duration_ns = 0;
  std::int64_t jitter_ppm = 0;
  std::string name;           // Range, kernel or request name.
  std::uint8_t category = 0;  // As ranges.category.
  CollectiveKind collective = CollectiveKind::kNone;
  std::uint64_t bytes = 0;
  std::size_t comm = 0;  // Index into Spec::comms.
  std::int32_t root = 0;
  std::vector<std::int32_t> empty;  // kBlocking: world ranks that give the others nothing; nobody waits for them.
  std::int32_t shift = 1;
  bool both_ways = false;  // kRing: posted, with the left and the right neighbour, and one wait for all.
  bool handshake = false;  // kRing: nothing moves before both are there, and who sends waits until it has.
  // kRing: one call for both halves; or both are posted, and each is waited for by itself, in this order.
  enum class Waits : std::uint8_t { kTogether, kReceiveFirst, kSendFirst } waits = Waits::kTogether;
  std::uint32_t count = 1;
  std::int64_t launch_ns = 0;  // Duration of the host's launch call.
  std::uint8_t copy_kind = 0;
  std::int64_t bandwidth = 0;  // Bytes per second, copies.
  bool asynchronous = true;
  std::string at;                           // What `late` and `slow` call it.
  std::int32_t on_block = 0, on_index = 0;  // Only ranks r with r / on_block == on_index; 0: all.
  std::int32_t peer = 0;                    // Messages: the receiver's rank minus the sender's.
  bool posted = false;                      // kRecv: MPI_Irecv, and at once MPI_Wait.
  std::uint32_t send_back = 0;              // kRecv, kNcclRecv: its send stands so many operations before.
  std::uint32_t stream = 20;                // NCCL operations.
  std::vector<std::uint64_t> grouped;       // kNccl: sizes of the operations that share its kernel; none: alone.
  bool after_compute = true;                // kNccl: waits for what the compute stream holds.
  bool IsEmpty(std::int32_t rank) const { return std::find(empty.begin(), empty.end(), rank) != empty.end(); }
  bool Concerns(std::int32_t rank) const { return on_block == 0 || rank / on_block == on_index; }
  MpiOp mpi = MpiOp::kOther;  // Of kOther.
};

struct CommSpec {
  std::string name;
  std::int32_t block = 0, stride = 0;  // Or `ranks`; nothing: everyone.
  std::vector<std::int32_t> ranks;
};

struct StepRange {
  std::int64_t first = 0, last = INT64_MAX, every = 1;
  bool Contains(std::int64_t step) const { return step >= first && step <= last && (step - first) % every == 0; }
};
// What a wait leaves in the table `blocked`.
struct WaitRow {
  std::uint8_t kind = 0;  // schema::BlockedKind
  std::string function, detail;
  std::string where;  // "function@file:line" of Python.
  std::int64_t others_cpu_ns = -1;
};
struct Disturbance {       // late, slow, starve, stall
  std::int32_t rank = -1;  // -1: every rank.
  std::int64_t by_ns = 0;
  std::int64_t factor_ppm = kMillion;
  StepRange steps;
  std::string at;               // Empty: `late`: the first compute op of the step; `slow`: every compute op.
  std::optional<WaitRow> wait;  // Of `stall`; none: no row.
};
// The way from one rank to another; of a node: all ways that cross its border.
struct LinkSpec {
  std::int32_t from = 0, to = 0, node = -1;
  bool only_out = false;       // Of a node: what leaves it, and not what comes to it.
  std::int64_t by_ns = 0;      // Messages arrive that much later.
  std::int64_t bandwidth = 0;  // Bytes per second of messages and of collectives' rings; 0: the network's.
};
struct ClockSpec {
  std::int64_t offset_ns = 0, drift_ppb = 0;
  std::int64_t wander_ns = 0, wander_period_ns = 0, wander2_ns = 0, wander2_period_ns = 0;
  std::int64_t step_ns = 0, step_at_ns = -1;
  bool own_domain = false;
};
// What a GPU's own sensors say.
struct SensorSpec {
  std::int64_t period_ns = 0;  // 0: nobody asks them.
  std::int32_t clock_mhz = 1980;
};
struct ThrottleSpec {
  std::int32_t rank = 0, clock_mhz = 1200;
  std::uint64_t reasons = 64;  // As gpu_samples.throttle_reasons.
};
// Samples of a rank's stack.
struct StackSpec {
  std::int32_t rank = 0, compared = -1;  // Which other rank it is compared with; -1 none.
  std::int64_t period_ns = 1'000'000;
};
struct BurstSpec {
  std::int64_t period_ns = 1'000'000'000, rtt_ns = 40'000, noise_ns = 8'000, asymmetry_ns = 0;
  std::int32_t count = 20;
};
struct Damage {  // delete, drop
  std::int32_t rank = 0;
  std::string table;
  std::uint64_t row = 0, count = 1;
  bool counted = false;  // `drop`: the loss is in the losses table.
};
struct EndSpec {  // died, cut
  std::int32_t rank = 0;
  std::int64_t step = 0;
  std::int32_t signal = 9;
  bool cut = false;  // Only the file ends; the rank lives on.
};

// How torch.profiler's files look; README.md, "Kineto".
struct KinetoSpec {
  enum class Nccl : std::uint8_t { kNone, kArguments, kSequence };  // What collectives tell of themselves.
  enum class Names : std::uint8_t { kOld, kDevice, kRccl };         // Of NCCL's kernels.
  enum class Layout : std::uint8_t { kFlat, kFolders };
  bool on = false;
  bool whole_microseconds = false, minified = false, gzip = false;
  bool distributed_info = true, flows = true, sync = true, amd = false;
  Nccl nccl = Nccl::kArguments;
  Names names = Names::kDevice;
  Layout layout = Layout::kFlat;
  // Per launch: operators around it, Python functions around these, further runtime calls.
  std::int32_t operators = 3, python = 0, runtime = 1;
  std::int32_t memory = 4;  // An allocation and a free every so many launches, 0 none.
  std::int64_t base_ns = 1'700'000'000'000'000'000;
};

// How the data of collectives move: around a ring; between pairs of members, round by round; up and down a tree.
enum class Moves : std::uint8_t { kRing, kPairs, kTree };

struct Spec {
  std::int32_t ranks = 2;
  std::int64_t steps = 10, warmup = 0;
  std::uint64_t seed = 1;
  std::int32_t nodes = 1;
  std::int64_t epoch_ns = 1'000'000'000'000;
  std::int64_t alpha_ns = 10'000, bandwidth = 5'000'000'000, skew_ns = 0, call_ns = 500;
  std::int64_t jitter_ppm = 0, poll_ns = 100'000, noise_ppm = 0;  // Of compute; tests; of messages.
  Progress progress = Progress::kNone;
  Moves moves = Moves::kRing;
  bool gpu = false, gloo = false, marks = true, clocks_separate = false, bursts_given = true;
  std::int64_t dispatch_ns = 0;  // Host time before each launch call.
  BurstSpec bursts;
  KinetoSpec kineto;
  std::vector<CommSpec> comms;                            // [0] is the world.
  std::map<std::int32_t, ClockSpec> clocks, node_clocks;  // Of ranks; of nodes whose ranks have none.
  std::vector<Disturbance> late, slow, starve, stall;
  std::vector<LinkSpec> links;
  std::shared_ptr<const Resample> resample;  // Null: none.
  std::vector<std::int32_t> missing;
  std::vector<EndSpec> ends;
  std::vector<Damage> damage;
  SensorSpec sensors;
  std::vector<ThrottleSpec> throttled;
  std::vector<StackSpec> stacks;
  std::vector<Op> setup, step, teardown;

  std::int32_t NodeOf(std::int32_t rank) const {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(rank) * nodes / ranks);
  }
  bool IsOn(const LinkSpec& link, std::int32_t from, std::int32_t to) const {
    const bool leaves = NodeOf(from) == link.node, comes = NodeOf(to) == link.node;
    if (link.node >= 0) return leaves != comes && (leaves || !link.only_out);
    return link.from == from && link.to == to;
  }
  // Number of the domain: equal numbers share a clock. A clock line makes a rank its own domain.
  std::int32_t DomainOf(std::int32_t rank) const;
};

// `sets` are "key=value": a variable of the text, or a one-value directive.
// kMalformed with the line as `where`.
Result<Spec> ParseSpec(std::string_view text, std::string_view file_name, const std::vector<std::string>& sets);

// "12ms", "1.5us", "3" (ns); "4MiB", "10kB"; "1.5%", "50ppm", "1.3" (as millionths). Exact decimal arithmetic.
bool ParseDuration(std::string_view text, std::int64_t* ns);
bool ParseBytes(std::string_view text, std::uint64_t* bytes);
bool ParsePpm(std::string_view text, std::int64_t* ppm);
bool ParseRate(std::string_view text, std::int64_t* rate);  // "5GB/s": bytes per second
bool ParseDrift(std::string_view text, std::int64_t* ppb);  // "50ppm", "20ppb": billionths

}  // namespace lockstep::make_run
