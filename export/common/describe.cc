#include "export/common/describe.h"

#include <array>
#include <bit>

#include "core/collective.h"
#include "core/hex.h"
#include "core/mpi_ops.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;
using schema::kNoTime;

// Ranges that say which part of a step they are, on the thread that steps: a track of their own.
bool IsPhase(const schema::Ranges::Row& range, std::uint32_t training) {
  return range.category != schema::Category::kNone && range.kind == schema::RangeKind::kPushPop &&
         range.source <= schema::RangeSource::kTorch && range.thread == training;
}

std::uint64_t StreamKey(std::uint16_t device, std::uint32_t context, std::uint32_t stream) {
  return static_cast<std::uint64_t>(device) << 48 | static_cast<std::uint64_t>(context & 0xffff) << 32 | stream;
}

// Of a counter track: which device in bits 16 to 31, sensors 0x200 or memory 0x100, which value.
constexpr std::string_view kCounterNames[] = {"memory allocated", "memory reserved", "peak memory", "SM clock", "power",
                                              "temperature",      "utilisation"};
constexpr std::string_view kSyncNames[] = {"synchronise",        "event synchronise",   "stream waits for event",
                                           "stream synchronise", "context synchronise", "event record"};
constexpr std::string_view kOverheadNames[] = {
    "overhead",  "compiler",     "buffer flush",        "instrumentation",
    "resources", "lazy loading", "command buffer full", "activity buffer request"};

template <std::size_t N>
std::string_view At(const std::string_view (&names)[N], std::size_t i) {
  return names[i < N ? i : 0];
}

}  // namespace

std::string_view PluralOf(EventKind kind) {
  constexpr std::array<std::string_view, kEventKinds> kNames = {"steps",
                                                                "host steps",
                                                                "ranges",
                                                                "MPI calls",
                                                                "MPI-IO and RMA requests",
                                                                "collectives",
                                                                "messages",
                                                                "kernels",
                                                                "copies",
                                                                "GPU synchronisations",
                                                                "runtime calls",
                                                                "profiling overheads",
                                                                "memory events",
                                                                "sensor readings",
                                                                "counter values",
                                                                "job steps",
                                                                "matched collectives",
                                                                "waits",
                                                                "transfers",
                                                                "findings"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view CopyKindName(std::uint8_t kind) {
  constexpr std::string_view kNames[] = {"Memcpy", "HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset"};
  return At(kNames, kind);
}

std::string_view DtypeName(std::uint16_t dtype) {
  constexpr std::string_view kNames[] = {"",        "int8",        "uint8",       "int16",   "uint16",   "int32",
                                         "uint32",  "int64",       "uint64",      "float16", "bfloat16", "float32",
                                         "float64", "float8_e4m3", "float8_e5m2", "byte",    "derived"};
  return At(kNames, dtype);
}

std::uint32_t DtypeBytes(std::uint16_t dtype) {
  constexpr std::uint8_t kBytes[] = {0, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1, 1, 0};
  return dtype < std::size(kBytes) ? kBytes[dtype] : 0;
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

std::string_view Describer::Text(std::uint32_t id) const { return trace::TextOf(*rank_.head, id); }

std::string Describer::ThreadName(std::uint64_t thread) const {
  const schema::Threads& threads = rank_.head->threads;
  if (thread >= threads.rows()) return thread == kNone ? "unknown thread" : "thread " + std::to_string(thread);
  std::string name(Text(threads.name[thread]));
  if (threads.tid[thread] >= 0) name += (name.empty() ? "thread " : " ") + std::to_string(threads.tid[thread]);
  return name.empty() ? "thread " + std::to_string(thread) : name;
}

TrackKey Describer::TrackOf(const Event& event) const {
  switch (event.kind) {
    case EventKind::kStep:
      return {Section::kSteps, 0};
    case EventKind::kHostStep:
      return {Section::kHostSteps, 0};
    case EventKind::kRange: {
      const auto& range = event.as<schema::Ranges::Row>();
      if (IsPhase(range, rank_.training_thread)) return {Section::kPhases, 0};
      return {range.kind == schema::RangeKind::kStartEnd ? Section::kStartEndRanges : Section::kRanges, range.thread};
    }
    case EventKind::kMpiCall:
      return {Section::kMpi, event.as<schema::MpiCalls::Row>().thread};
    case EventKind::kMpiRequest:
      return {Section::kRequests, 0};
    case EventKind::kCollective:
      return {Section::kCollectives, event.as<schema::Collectives::Row>().comm};
    case EventKind::kMessage:
      return {Section::kMessages, event.as<schema::P2p::Row>().direction};
    case EventKind::kKernel: {
      const auto& row = event.as<schema::Kernels::Row>();
      return {Section::kStream, StreamKey(row.device, row.context, row.stream)};
    }
    case EventKind::kCopy: {
      const auto& row = event.as<schema::Copies::Row>();
      return {Section::kStream, StreamKey(row.device, row.context, row.stream)};
    }
    case EventKind::kSync:
      return {Section::kSync, event.as<schema::Sync::Row>().device};
    case EventKind::kApi:
      return {Section::kApi, event.as<schema::Api::Row>().thread};
    case EventKind::kOverhead:
      return {Section::kOverheads, event.as<schema::Overheads::Row>().thread};
    case EventKind::kJobStep:
      return {Section::kJobSteps, 0};
    case EventKind::kInstance:
    case EventKind::kWait:
    case EventKind::kTransfer:
      return {Section::kInstances, run_.timeline->tables.collectives.comm_id[event.instance.instance]};
    case EventKind::kFinding:
      return {Section::kFindings, 0};
    default:
      return {Section::kCounters, 0};
  }
}

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
    case Section::kStream:
      return "GPU " + std::to_string(track.of >> 48) + " \xc2\xb7 stream " + std::to_string(track.of & 0xffffffff);
    case Section::kSync:
      return "GPU " + std::to_string(track.of) + " \xc2\xb7 synchronisation";
    case Section::kOverheads:
      return "profiling overhead \xc2\xb7 " + ThreadName(track.of);
    case Section::kCounters:
      break;
  }
  if (track.of == kInFlight) return "collectives in flight";
  if (track.of == kBytesInFlight) return "bytes in flight";
  const auto device = static_cast<std::uint16_t>(track.of >> 16);
  const std::string where = (track.of & 0x200) != 0 && device == 65535 ? "GPU"
                            : device == 65535                          ? "host"
                                                                       : "GPU " + std::to_string(device);
  return where + " \xc2\xb7 " + std::string(kCounterNames[(track.of & 0x200) != 0 ? 3 + (track.of & 3) : track.of & 3]);
}

std::string_view Describer::NameOf(const Event& event) {
  switch (event.kind) {
    case EventKind::kStep:
      return name_ = "step " + std::to_string(event.as<schema::TlStepRanks::Row>().index);
    case EventKind::kHostStep:
      return name_ = "step " + std::to_string(event.as<schema::Steps::Row>().index);
    case EventKind::kRange:
      return Text(event.as<schema::Ranges::Row>().name);
    case EventKind::kMpiCall: {
      const std::uint16_t op = event.as<schema::MpiCalls::Row>().op;
      const MpiOpInfo* info = FindMpiOp(op);
      return info != nullptr ? info->name : std::string_view(name_ = "MPI call " + std::to_string(op));
    }
    case EventKind::kMpiRequest: {
      const std::uint16_t op = event.as<schema::MpiRequests::Row>().op;
      const MpiOpInfo* info = FindMpiOp(op);
      return info != nullptr ? info->name : std::string_view(name_ = "MPI request " + std::to_string(op));
    }
    case EventKind::kCollective:
      return lockstep::Name(static_cast<CollectiveKind>(event.as<schema::Collectives::Row>().kind));
    case EventKind::kMessage:
      return event.as<schema::P2p::Row>().direction == schema::Direction::kSend ? "send" : "receive";
    case EventKind::kKernel:
      return Text(event.as<schema::Kernels::Row>().name);
    case EventKind::kCopy: {
      const std::uint8_t kind = event.as<schema::Copies::Row>().kind;
      if (kind == schema::CopyKind::kUnknown || kind >= schema::CopyKind::kMemset) return CopyKindName(kind);
      return name_ = "Memcpy " + std::string(CopyKindName(kind));
    }
    case EventKind::kSync:
      return At(kSyncNames, event.as<schema::Sync::Row>().kind);
    case EventKind::kApi:
      return Text(event.as<schema::Api::Row>().name);
    case EventKind::kOverhead:
      return At(kOverheadNames, event.as<schema::Overheads::Row>().kind);
    case EventKind::kJobStep:
      return name_ = "step " + std::to_string(event.as<schema::TlSteps::Row>().index);
    case EventKind::kInstance:
      return lockstep::Name(static_cast<CollectiveKind>(event.as<schema::TlCollectives::Row>().kind));
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
  // Kind above, what the name comes from below.
  const auto key = [&](std::uint64_t from) {
    return static_cast<std::uint64_t>(event.kind) << 56 | (from & ~(0xffull << 56));
  };
  switch (event.kind) {
    case EventKind::kStep:
      return key(static_cast<std::uint64_t>(event.as<schema::TlStepRanks::Row>().index));
    case EventKind::kHostStep:
      return key(static_cast<std::uint64_t>(event.as<schema::Steps::Row>().index));
    case EventKind::kRange:
      return key(event.as<schema::Ranges::Row>().name);
    case EventKind::kMpiCall:
      return key(event.as<schema::MpiCalls::Row>().op);
    case EventKind::kMpiRequest:
      return key(event.as<schema::MpiRequests::Row>().op);
    case EventKind::kCollective:
      return key(event.as<schema::Collectives::Row>().kind);
    case EventKind::kMessage:
      return key(event.as<schema::P2p::Row>().direction);
    case EventKind::kKernel:
      return key(event.as<schema::Kernels::Row>().name);
    case EventKind::kCopy:
      return key(event.as<schema::Copies::Row>().kind);
    case EventKind::kSync:
      return key(event.as<schema::Sync::Row>().kind);
    case EventKind::kApi:
      return key(event.as<schema::Api::Row>().name);
    case EventKind::kOverhead:
      return key(event.as<schema::Overheads::Row>().kind);
    case EventKind::kJobStep:
      return key(static_cast<std::uint64_t>(event.as<schema::TlSteps::Row>().index));
    case EventKind::kInstance:
      return key(event.as<schema::TlCollectives::Row>().kind);
    case EventKind::kFinding:
      return key(event.number);
    default:
      return key(0);
  }
}

void Describer::PutComm(std::uint32_t comm) {
  if (comm >= rank_.head->comms.rows()) return;
  comm_name_ = CommTitle(*rank_.head, comm);
  PutText("communicator", comm_name_);
}

void Describer::PutInstance(const Event& event) {
  if (event.instance.instance == kNone) return;
  const schema::TimelineTables& t = run_.timeline->tables;
  PutCount("instance", event.instance.instance);
  if (event.instance.member != kNone) {
    const std::uint32_t member = event.instance.member;
    if (t.collective_ranks.wait_ns[member] >= 0) Put("wait_ns", t.collective_ranks.wait_ns[member]);
    if (t.collective_ranks.transfer_ns[member] >= 0) Put("transfer_ns", t.collective_ranks.transfer_ns[member]);
  }
  if (t.collectives.last_rank[event.instance.instance] >= 0)
    Put("last_rank", t.collectives.last_rank[event.instance.instance]);
  Put("clock_error_ns", t.collectives.error_ns[event.instance.instance]);
}

const std::vector<Argument>& Describer::ArgumentsOf(const Event& event) {
  arguments_.clear();
  switch (event.kind) {
    case EventKind::kStep: {
      const auto& row = event.as<schema::TlStepRanks::Row>();
      Put("compute_ns", row.compute_ns);
      Put("exposed_wait_ns", row.exposed_wait_ns);
      Put("exposed_transfer_ns", row.exposed_transfer_ns);
      Put("exposed_unsplit_ns", row.exposed_unsplit_ns);
      Put("exposed_copy_ns", row.exposed_copy_ns);
      Put("idle_ns", row.idle_ns);
      Put("comm_ns", row.comm_ns);
      Put("overlap_ns", row.overlap_ns);
      if (row.cpu_ns >= 0) Put("cpu_ns", row.cpu_ns);
      if (row.offcpu_ns >= 0) Put("offcpu_ns", row.offcpu_ns);
      if (!row.complete) Put("complete", 0);
      break;
    }
    case EventKind::kHostStep: {
      const auto& row = event.as<schema::Steps::Row>();
      if (row.warmup) Put("warmup", 1);
      if (!row.complete) Put("complete", 0);
      break;
    }
    case EventKind::kRange: {
      const auto& row = event.as<schema::Ranges::Row>();
      PutText("domain", Text(row.domain));
      if (row.payload_kind == schema::PayloadKind::kInteger) Put("payload", row.payload);
      if (row.payload_kind == schema::PayloadKind::kSequence) Put("sequence_number", row.payload);
      if (row.open) Put("closed", 0);
      break;
    }
    case EventKind::kMpiCall: {
      const auto& row = event.as<schema::MpiCalls::Row>();
      PutComm(row.comm);
      if (row.bytes > 0) PutCount("bytes", row.bytes);
      if (row.peer >= 0) Put("peer", row.peer);
      if (row.tag >= 0) Put("tag", row.tag);
      if (row.count > 1) PutCount("calls", row.count);
      if (row.outcome != schema::CallOutcome::kCompleted) Put("outcome", row.outcome);
      break;
    }
    case EventKind::kMpiRequest: {
      const auto& row = event.as<schema::MpiRequests::Row>();
      PutComm(row.comm);
      if (row.bytes > 0) PutCount("bytes", row.bytes);
      if (row.peer >= 0) Put("peer", row.peer);
      if (row.outcome != schema::RequestOutcome::kCompleted) Put("outcome", row.outcome);
      break;
    }
    case EventKind::kCollective: {
      const auto& row = event.as<schema::Collectives::Row>();
      if (row.bytes > 0) PutCount("bytes", row.bytes);
      PutText("dtype", DtypeName(row.dtype));
      PutComm(row.comm);
      PutCount("seq", row.seq);
      if (row.root >= 0) Put("root", row.root);
      PutText("algorithm", Text(row.algorithm));
      PutText("protocol", Text(row.protocol));
      if (row.channels > 0) PutCount("channels", row.channels);
      PutInstance(event);
      if (!event.ended) Put("completed", 0);
      break;
    }
    case EventKind::kMessage: {
      const auto& row = event.as<schema::P2p::Row>();
      if (row.bytes > 0) PutCount("bytes", row.bytes);
      if (row.peer_world_rank >= 0) Put("peer_rank", row.peer_world_rank);
      if (row.tag >= 0) Put("tag", row.tag);
      PutComm(row.comm);
      if (!event.ended) Put("completed", 0);
      break;
    }
    case EventKind::kKernel: {
      const auto& row = event.as<schema::Kernels::Row>();
      if (row.correlation != 0) PutCount("correlation", row.correlation);
      if (row.graph_node != 0) PutCount("graph_node", row.graph_node);
      break;
    }
    case EventKind::kCopy: {
      const auto& row = event.as<schema::Copies::Row>();
      PutCount("bytes", row.bytes);
      if (row.correlation != 0) PutCount("correlation", row.correlation);
      break;
    }
    case EventKind::kSync: {
      const auto& row = event.as<schema::Sync::Row>();
      if (row.stream != kNone) PutCount("stream", row.stream);
      if (row.correlation != 0) PutCount("correlation", row.correlation);
      break;
    }
    case EventKind::kApi: {
      const auto& row = event.as<schema::Api::Row>();
      if (row.correlation != 0) PutCount("correlation", row.correlation);
      if (row.result != 0) Put("result", row.result);
      break;
    }
    case EventKind::kJobStep: {
      const auto& row = event.as<schema::TlSteps::Row>();
      if (row.step_ns >= 0) Put("step_ns", row.step_ns);
      PutCount("ranks", row.ranks);
      if (row.warmup) Put("warmup", 1);
      if (!row.complete) Put("complete", 0);
      break;
    }
    case EventKind::kInstance: {
      const auto& row = event.as<schema::TlCollectives::Row>();
      PutCount("bytes", row.bytes);
      PutCount("seq", row.seq);
      PutCount("ranks_seen", row.seen);
      PutCount("ranks_expected", row.expected);
      if (row.wait_ns >= 0) Put("wait_ns_median", row.wait_ns);
      if (row.transfer_ns >= 0) Put("transfer_ns_median", row.transfer_ns);
      if (row.charge_ns > 0) Put("charge_ns", row.charge_ns);
      PutInstance(event);
      if (row.step >= 0) Put("step", row.step);
      if (row.transfer_ns > 0 && !row.censored && !row.uneven && row.bytes > 0)
        Put("busbw_mb_per_s",
            static_cast<std::int64_t>(static_cast<double>(row.bytes) * 1e3 / static_cast<double>(row.transfer_ns) *
                                      BusFactor(static_cast<CollectiveKind>(row.kind), row.expected)));
      if (row.censored) Put("censored", 1);
      if (row.violation) Put("clock_violation", 1);
      if (row.mismatch) Put("mismatch", 1);
      break;
    }
    case EventKind::kFinding: {
      const auto& finding = event.as<Finding>();
      PutText("id", finding.id);
      PutText("evidence", finding.evidence);
      PutText("action", finding.action);
      if (finding.rank >= 0) Put("rank", finding.rank);
      if (finding.saves_ns_per_step >= 0) Put("saves_ns_per_step", finding.saves_ns_per_step);
      break;
    }
    default:
      break;
  }
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
    // 0 is unknown, but where something was freed it may be what is left.
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
