#include "export/common/describe.h"

#include <array>
#include <bit>

#include "core/collective.h"
#include "core/data_type_name.h"
#include "core/hex.h"
#include "core/mpi_ops.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;
using schema::kNoTime;

// Ranges on the stepping thread that name a part of the step: they get a track of their own.
bool IsPhase(const schema::Ranges::Row& range, std::uint32_t training) {
  return range.category != schema::Category::kNone && range.kind == schema::RangeKind::kPushPop &&
         range.source <= schema::RangeSource::kTorch && range.thread == training;
}

// Of a counter track: which device in bits 16 to 31, sensors 0x200 or memory 0x100, which value.
constexpr std::string_view kCounterNames[] = {"memory allocated", "memory reserved", "peak memory", "SM clock", "power",
                                              "temperature",      "utilisation"};
std::string CounterName(std::uint64_t of) {
  if (of == kInFlight) return "collectives in flight";
  if (of == kBytesInFlight) return "bytes in flight";
  const bool sensor = (of & 0x200) != 0;
  const auto device = static_cast<std::uint16_t>(of >> 16);
  const std::string where = device != 65535 ? "GPU " + std::to_string(device) : sensor ? "GPU" : "host";
  return where + " \xc2\xb7 " + std::string(kCounterNames[(sensor ? 3 : 0) + (of & 3)]);
}

constexpr std::string_view kSyncNames[] = {"synchronise",        "event synchronise",   "stream waits for event",
                                           "stream synchronise", "context synchronise", "event record"};
constexpr std::string_view kOverheadNames[] = {
    "overhead",  "compiler",     "buffer flush",        "instrumentation",
    "resources", "lazy loading", "command buffer full", "activity buffer request"};

template <std::size_t N>
std::string_view At(const std::string_view (&names)[N], std::size_t i) {
  return names[i < N ? i : 0];
}

// The track that shows an event, by the table that its row is of.
struct TrackOfRow {
  const Event& event;
  const ExportRun& run;
  const ExportRank& rank;

  TrackKey operator()(std::monostate) const { return {Section::kCounters, 0}; }
  TrackKey operator()(const schema::TlStepRanks::Row*) const { return {Section::kSteps, 0}; }
  TrackKey operator()(const schema::Steps::Row*) const { return {Section::kHostSteps, 0}; }
  TrackKey operator()(const schema::Ranges::Row* row) const {
    if (IsPhase(*row, rank.training_thread)) return {Section::kPhases, 0};
    return {row->kind == schema::RangeKind::kStartEnd ? Section::kStartEndRanges : Section::kRanges, row->thread};
  }
  TrackKey operator()(const schema::MpiCalls::Row* row) const { return {Section::kMpi, row->thread}; }
  TrackKey operator()(const schema::MpiRequests::Row*) const { return {Section::kRequests, 0}; }
  TrackKey operator()(const schema::Collectives::Row* row) const { return {Section::kCollectives, row->comm}; }
  TrackKey operator()(const schema::P2p::Row* row) const { return {Section::kMessages, row->direction}; }
  TrackKey operator()(const schema::Kernels::Row* row) const { return Stream(*row); }
  TrackKey operator()(const schema::Copies::Row* row) const { return Stream(*row); }
  TrackKey operator()(const schema::Sync::Row* row) const { return {Section::kSync, row->device}; }
  TrackKey operator()(const schema::Api::Row* row) const { return {Section::kApi, row->thread}; }
  TrackKey operator()(const schema::Blocked::Row* row) const { return {Section::kBlocked, row->thread}; }
  TrackKey operator()(const schema::Overheads::Row* row) const { return {Section::kOverheads, row->thread}; }
  TrackKey operator()(const schema::GpuMemory::Row*) const { return {Section::kCounters, 0}; }
  TrackKey operator()(const schema::GpuSamples::Row*) const { return {Section::kCounters, 0}; }
  TrackKey operator()(const schema::TlSteps::Row*) const { return {Section::kJobSteps, 0}; }
  TrackKey operator()(const schema::TlCollectives::Row*) const {
    return {Section::kInstances, run.timeline->tables.collectives.comm_id[event.instance.instance]};
  }
  TrackKey operator()(const Counter*) const { return {Section::kCounters, 0}; }
  TrackKey operator()(const Finding*) const { return {Section::kFindings, 0}; }

 private:
  template <typename Row>
  static TrackKey Stream(const Row& row) {
    return {Section::kStream, static_cast<std::uint64_t>(row.device) << 48 |
                                  static_cast<std::uint64_t>(row.context & 0xffff) << 32 | row.stream};
  }
};

// The number from which the name of an event is made: a step's index, a text, an operation's code.
struct NameNumber {
  const Event& event;

  std::uint64_t operator()(const schema::TlStepRanks::Row* row) const { return static_cast<std::uint64_t>(row->index); }
  std::uint64_t operator()(const schema::Steps::Row* row) const { return static_cast<std::uint64_t>(row->index); }
  std::uint64_t operator()(const schema::Ranges::Row* row) const { return row->name; }
  std::uint64_t operator()(const schema::MpiCalls::Row* row) const { return row->op; }
  std::uint64_t operator()(const schema::MpiRequests::Row* row) const { return row->op; }
  std::uint64_t operator()(const schema::Collectives::Row* row) const { return row->kind; }
  std::uint64_t operator()(const schema::P2p::Row* row) const { return row->direction; }
  std::uint64_t operator()(const schema::Kernels::Row* row) const { return row->name; }
  std::uint64_t operator()(const schema::Copies::Row* row) const { return row->kind; }
  std::uint64_t operator()(const schema::Sync::Row* row) const { return row->kind; }
  std::uint64_t operator()(const schema::Api::Row* row) const { return row->name; }
  std::uint64_t operator()(const schema::Blocked::Row* row) const { return row->function; }
  std::uint64_t operator()(const schema::Overheads::Row* row) const { return row->kind; }
  std::uint64_t operator()(const schema::TlSteps::Row* row) const { return static_cast<std::uint64_t>(row->index); }
  std::uint64_t operator()(const schema::TlCollectives::Row* row) const {
    return event.kind == EventKind::kInstance ? row->kind : 0;  // Its parts have fixed names.
  }
  std::uint64_t operator()(const Finding*) const { return event.number; }
  std::uint64_t operator()(const auto&) const { return 0; }  // Values and readings have no name.
};

// The details of an event besides its name and times, by the table of its row.
class Arguments {
 public:
  Arguments(const Event& event, const ExportRun& run, const ExportRank& rank, std::string& comm_name,
            std::vector<Argument>& out)
      : event_(event), run_(run), rank_(rank), comm_name_(comm_name), out_(out) {}

  void operator()(const schema::TlStepRanks::Row* row) {
#define LS_TERM_(name) Put(#name, row->name);
    LS_IDENTITY(LS_TERM_)
#undef LS_TERM_
    Put("comm_ns", row->comm_ns);
    Put("overlap_ns", row->overlap_ns);
    PutKnown("cpu_ns", row->cpu_ns);
    PutKnown("offcpu_ns", row->offcpu_ns);
    if (!row->complete) Put("complete", 0);
  }
  void operator()(const schema::Steps::Row* row) {
    if (row->warmup) Put("warmup", 1);
    if (!row->complete) Put("complete", 0);
  }
  void operator()(const schema::Ranges::Row* row) {
    PutText("domain", row->domain);
    if (row->payload_kind == schema::PayloadKind::kInteger) Put("payload", row->payload);
    if (row->payload_kind == schema::PayloadKind::kSequence) Put("sequence_number", row->payload);
    if (row->open) Put("closed", 0);
  }
  void operator()(const schema::MpiCalls::Row* row) {
    PutComm(row->comm);
    PutCount("bytes", row->bytes);
    PutKnown("peer", row->peer);
    PutKnown("tag", row->tag);
    if (row->count > 1) PutCount("calls", row->count);
    if (row->outcome != schema::CallOutcome::kCompleted) Put("outcome", row->outcome);
  }
  void operator()(const schema::MpiRequests::Row* row) {
    PutComm(row->comm);
    PutCount("bytes", row->bytes);
    PutKnown("peer", row->peer);
    if (row->outcome != schema::RequestOutcome::kCompleted) Put("outcome", row->outcome);
  }
  void operator()(const schema::Collectives::Row* row) {
    PutCount("bytes", row->bytes);
    PutText("dtype", TextOfDataType(row->dtype).name);
    PutComm(row->comm);
    PutNumber("seq", row->seq);
    PutKnown("root", row->root);
    PutText("algorithm", row->algorithm);
    PutText("protocol", row->protocol);
    PutCount("channels", row->channels);
    PutInstance();
    if (!event_.ended) Put("completed", 0);
  }
  void operator()(const schema::P2p::Row* row) {
    PutCount("bytes", row->bytes);
    PutKnown("peer_rank", row->peer_world_rank);
    PutKnown("tag", row->tag);
    PutComm(row->comm);
    if (!event_.ended) Put("completed", 0);
  }
  void operator()(const schema::Kernels::Row* row) {
    PutCount("correlation", row->correlation);
    PutCount("graph_node", row->graph_node);
  }
  void operator()(const schema::Copies::Row* row) {
    PutNumber("bytes", row->bytes);
    PutCount("correlation", row->correlation);
  }
  void operator()(const schema::Sync::Row* row) {
    if (row->stream != kNone) PutNumber("stream", row->stream);
    PutCount("correlation", row->correlation);
  }
  void operator()(const schema::Api::Row* row) {
    PutCount("correlation", row->correlation);
    if (row->result != 0) Put("result", row->result);
  }
  void operator()(const schema::TlSteps::Row* row) {
    PutKnown("step_ns", row->step_ns);
    PutNumber("ranks", row->ranks);
    if (row->warmup) Put("warmup", 1);
    if (!row->complete) Put("complete", 0);
  }
  void operator()(const schema::TlCollectives::Row* row) {
    if (event_.kind != EventKind::kInstance) return;  // Its parts have no details of their own.
    PutNumber("bytes", row->bytes);
    PutNumber("seq", row->seq);
    PutNumber("ranks_seen", row->seen);
    PutNumber("ranks_expected", row->expected);
    PutKnown("wait_ns_median", row->wait_ns);
    PutKnown("transfer_ns_median", row->transfer_ns);
    if (row->charge_ns > 0) Put("charge_ns", row->charge_ns);
    PutInstance();
    PutKnown("step", row->step);
    if (row->transfer_ns > 0 && !row->censored && !row->uneven && row->bytes > 0)
      Put("busbw_mb_per_s",
          static_cast<std::int64_t>(static_cast<double>(row->bytes) * 1e3 / static_cast<double>(row->transfer_ns) *
                                    BusFactor(static_cast<CollectiveKind>(row->kind), row->expected)));
    if (row->censored) Put("censored", 1);
    if (row->violation) Put("clock_violation", 1);
    if (row->mismatch) Put("mismatch", 1);
  }
  void operator()(const schema::Blocked::Row* row) {
    const auto& kinds = schema::BlockedKind::kValues;  // Their codes are 0, 1, 2, ...
    if (row->kind < std::size(kinds)) PutText("kind", kinds[row->kind].name);
    PutText("of", row->detail);
    PutText("called_by", row->module);
    PutKnown("others_cpu_ns", row->others_cpu_ns);
    if (row->timed_out) Put("timed_out", 1);
  }
  void operator()(const Finding* finding) {
    PutText("id", finding->id);
    PutText("evidence", finding->evidence);
    PutText("action", finding->action);
    PutKnown("rank", finding->rank);
    PutKnown("saves_ns_per_step", finding->saves_ns_per_step);
  }
  void operator()(const auto&) {}  // Other rows have no details.

 private:
  void Put(std::string_view key, std::int64_t value) { out_.push_back({key, value}); }
  void PutKnown(std::string_view key, std::int64_t value) {
    if (value >= 0) Put(key, value);
  }
  void PutNumber(std::string_view key, std::uint64_t value) { out_.push_back({key, value}); }
  // 0 means unknown, or nothing worth a line.
  void PutCount(std::string_view key, std::uint64_t value) {
    if (value != 0) PutNumber(key, value);
  }
  void PutText(std::string_view key, std::string_view value) {
    if (!value.empty()) out_.push_back({key, value});
  }
  void PutText(std::string_view key, std::uint32_t text) { PutText(key, trace::TextOf(*rank_.head, text)); }
  void PutComm(std::uint32_t comm) {
    comm_name_ = CommTitle(*rank_.head, comm);
    PutText("communicator", comm_name_);
  }
  void PutInstance() {
    const auto [instance, member] = event_.instance;
    if (instance == kNone) return;
    const schema::TimelineTables& t = run_.timeline->tables;
    PutNumber("instance", instance);
    if (member != kNone) {
      PutKnown("wait_ns", t.collective_ranks.wait_ns[member]);
      PutKnown("transfer_ns", t.collective_ranks.transfer_ns[member]);
    }
    PutKnown("last_rank", t.collectives.last_rank[instance]);
    Put("clock_error_ns", t.collectives.error_ns[instance]);
  }

  const Event& event_;
  const ExportRun& run_;
  const ExportRank& rank_;
  std::string& comm_name_;
  std::vector<Argument>& out_;
};

// "HtoD", as CUPTI's tools call it, of copies.kind; "Memset" for 6.
std::string_view CuptiNameOfCopy(std::uint8_t kind) {
  constexpr std::string_view kNames[] = {"Memcpy", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset"};
  return At(kNames, kind);
}

}  // namespace

std::string_view NounOf(EventKind kind, std::uint64_t count) {
  struct Noun {
    std::string_view one, many;
  };
  constexpr std::array<Noun, kEventKinds> kNouns = {{{"step", "steps"},
                                                     {"host step", "host steps"},
                                                     {"range", "ranges"},
                                                     {"MPI call", "MPI calls"},
                                                     {"MPI-IO or RMA request", "MPI-IO and RMA requests"},
                                                     {"collective", "collectives"},
                                                     {"message", "messages"},
                                                     {"kernel", "kernels"},
                                                     {"copy", "copies"},
                                                     {"GPU synchronisation", "GPU synchronisations"},
                                                     {"runtime call", "runtime calls"},
                                                     {"blocked call", "blocked calls"},
                                                     {"profiling overhead", "profiling overheads"},
                                                     {"memory event", "memory events"},
                                                     {"sensor reading", "sensor readings"},
                                                     {"counter value", "counter values"},
                                                     {"job step", "job steps"},
                                                     {"matched collective", "matched collectives"},
                                                     {"wait", "waits"},
                                                     {"transfer", "transfers"},
                                                     {"finding", "findings"}}};
  const Noun& noun = kNouns[static_cast<std::size_t>(kind)];
  return count == 1 ? noun.one : noun.many;
}

std::string CommTitle(const schema::RankTables& head, std::uint32_t comm) {
  const schema::Comms& comms = head.comms;
  if (comm >= comms.rows()) return {};
  if (const std::string_view name = trace::TextOf(head, comms.name[comm]); !name.empty()) return std::string(name);
  if (comms.unidentified[comm]) return "communicator " + std::to_string(comm);
  if (comms.kind[comm] == schema::CommKind::kSelf) return "self";
  const bool all = comms.size[comm] > 1 && comms.size[comm] == ingest::MetaNumber(head, "world_size", 0);
  return (all ? "all" : std::to_string(comms.size[comm])) + (comms.size[comm] == 1 ? " rank (" : " ranks (") +
         Hex(comms.global_id[comm], 8) + ")";
}

std::string Describer::ThreadName(std::uint64_t thread) const {
  const schema::Threads& threads = rank_.head->threads;
  if (thread >= threads.rows()) return thread == kNone ? "unknown thread" : "thread " + std::to_string(thread);
  std::string name(trace::TextOf(*rank_.head, threads.name[thread]));
  if (threads.tid[thread] >= 0) name += (name.empty() ? "thread " : " ") + std::to_string(threads.tid[thread]);
  return name.empty() ? "thread " + std::to_string(thread) : name;
}

TrackKey Describer::TrackOf(const Event& event) const { return std::visit(TrackOfRow{event, run_, rank_}, event.row); }

std::string Describer::TrackName(const TrackKey& track) const {
  switch (track.section) {
    case Section::kJobSteps:
      return "steps of the job";
    case Section::kFindings:
      return "findings";
    case Section::kInstances: {
      const auto name = run_.comm_names.find(track.of);
      return "collectives \xc2\xb7 " + (name == run_.comm_names.end() ? Hex(track.of) : name->second);
    }
    case Section::kSteps:
      return rank_.gpu ? "steps (GPU)" : "steps";
    case Section::kHostSteps:
      return "steps (host)";
    case Section::kPhases:
      return "phases";
    case Section::kCollectives:
      return "collectives \xc2\xb7 " + CommTitle(*rank_.head, static_cast<std::uint32_t>(track.of));
    case Section::kMessages:
      return track.of == 0 ? "messages sent" : "messages received";
    case Section::kMpi:
      return "MPI \xc2\xb7 " + ThreadName(track.of);
    case Section::kRequests:
      return "MPI-IO and RMA requests";
    case Section::kRanges:
      return "ranges \xc2\xb7 " + ThreadName(track.of);
    case Section::kStartEndRanges:
      return "start/end ranges \xc2\xb7 " + ThreadName(track.of);
    case Section::kApi:
      return "runtime calls \xc2\xb7 " + ThreadName(track.of);
    case Section::kBlocked:
      return "blocked \xc2\xb7 " + ThreadName(track.of);
    case Section::kStream:
      return "GPU " + std::to_string(track.of >> 48) + " \xc2\xb7 stream " + std::to_string(track.of & 0xffffffff);
    case Section::kSync:
      return "GPU " + std::to_string(track.of) + " \xc2\xb7 synchronisation";
    case Section::kOverheads:
      return "profiling overhead \xc2\xb7 " + ThreadName(track.of);
    case Section::kCounters:
      return CounterName(track.of);
  }
  return {};
}

std::string_view Describer::NameOf(const Event& event) {
  const std::uint64_t number = std::visit(NameNumber{event}, event.row);
  const auto mpi = [&](const char* otherwise) {
    const MpiOpInfo* info = FindMpiOp(static_cast<std::uint16_t>(number));
    return info != nullptr ? info->name : std::string_view(name_ = otherwise + std::to_string(number));
  };
  switch (event.kind) {
    case EventKind::kStep:
    case EventKind::kHostStep:
    case EventKind::kJobStep:
      return name_ = "step " + std::to_string(static_cast<std::int64_t>(number));
    case EventKind::kRange:
    case EventKind::kKernel:
    case EventKind::kApi:
    case EventKind::kBlocked:
      return trace::TextOf(*rank_.head, static_cast<std::uint32_t>(number));
    case EventKind::kMpiCall:
      return mpi("MPI call ");
    case EventKind::kMpiRequest:
      return mpi("MPI request ");
    case EventKind::kCollective:
    case EventKind::kInstance:
      return lockstep::Name(static_cast<CollectiveKind>(number));
    case EventKind::kMessage:
      return number == schema::Direction::kSend ? "send" : "receive";
    case EventKind::kCopy: {
      const auto kind = static_cast<std::uint8_t>(number);
      if (kind == schema::CopyKind::kUnknown || kind >= schema::CopyKind::kMemset) return CuptiNameOfCopy(kind);
      return name_ = "Memcpy " + std::string(CuptiNameOfCopy(kind));
    }
    case EventKind::kSync:
      return At(kSyncNames, number);
    case EventKind::kOverhead:
      return At(kOverheadNames, number);
    case EventKind::kWait:
      return "wait for the last";
    case EventKind::kTransfer:
      return "transfer";
    case EventKind::kFinding:
      return event.as<Finding>().headline;
    default:
      return {};
  }
}

std::uint64_t Describer::NameKey(const Event& event) const {
  return static_cast<std::uint64_t>(event.kind) << 56 |
         (std::visit(NameNumber{event}, event.row) & ~(std::uint64_t{0xff} << 56));
}

const std::vector<Argument>& Describer::ArgumentsOf(const Event& event) {
  arguments_.clear();
  std::visit(Arguments(event, run_, rank_, comm_name_, arguments_), event.row);
  return arguments_;
}

const std::vector<CounterValue>& Describer::ValuesOf(const Event& event) {
  values_.clear();
  const auto put = [&](std::uint64_t of, std::string_view unit, std::int64_t value) {
    values_.push_back({{Section::kCounters, of}, unit, value});
  };
  if (event.kind == EventKind::kCounter) {
    const auto& counter = event.as<Counter>();
    put(counter.number, counter.unit, counter.value);
  } else if (event.kind == EventKind::kMemory) {
    const auto& row = event.as<schema::GpuMemory::Row>();
    const std::uint64_t of = 0x100 | static_cast<std::uint64_t>(row.device) << 16;
    const auto allocated = static_cast<std::int64_t>(row.allocated_bytes);
    // 0 means unknown, except that something that was freed may leave 0.
    if (row.kind == schema::MemoryKind::kPeak) {
      if (allocated > 0) put(of + 2, "bytes", allocated);
    } else {
      if (allocated > 0 || row.kind == schema::MemoryKind::kFree) put(of, "bytes", allocated);
      if (row.reserved_bytes > 0) put(of + 1, "bytes", static_cast<std::int64_t>(row.reserved_bytes));
    }
  } else if (event.kind == EventKind::kSensors) {
    const auto& row = event.as<schema::GpuSamples::Row>();
    const std::uint64_t of = 0x200 | static_cast<std::uint64_t>(row.device) << 16;
    if (row.sm_clock_mhz != kNone) put(of, "MHz", row.sm_clock_mhz);
    if (row.power_mw != kNone) put(of + 1, "mW", row.power_mw);
    if (row.temperature_c != kNone) put(of + 2, "degrees Celsius", row.temperature_c);
    if (row.utilization_percent != kNone) put(of + 3, "percent", row.utilization_percent);
  }
  return values_;
}

}  // namespace lockstep::exporters
