// Open Trace Format 2: an archive for Vampir, Scalasca and otf2-print. A location per host thread and GPU stream; what
// does not nest on it has a further one. Messages and blocking collectives of MPI are MPI's records.

#include <otf2/otf2.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/collective.h"
#include "core/mpi_ops.h"
#include "export/common/describe.h"
#include "export/common/out_file.h"
#include "export/common/text.h"
#include "export/common/tracks.h"
#include "export/common/writers.h"
#include "export/kineto/kineto_comm.h"

namespace lockstep::exporters {
namespace {

using schema::kNone;
using schema::kNoTime;

constexpr std::uint64_t kEventChunk = 1 << 20, kDefinitionChunk = 4 << 20;
constexpr unsigned kLaneBits = 24;  // Of a location's number, below its rank.

OTF2_FlushType BeforeFlush(void*, OTF2_FileType, OTF2_LocationRef, void*, bool) { return OTF2_FLUSH; }

OTF2_CollectiveOp OpOf(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return OTF2_COLLECTIVE_OP_ALLREDUCE;
    case CollectiveKind::kAllGather:
      return OTF2_COLLECTIVE_OP_ALLGATHER;
    case CollectiveKind::kReduceScatter:
      return OTF2_COLLECTIVE_OP_REDUCE_SCATTER;
    case CollectiveKind::kAllToAll:
      return OTF2_COLLECTIVE_OP_ALLTOALL;
    case CollectiveKind::kBroadcast:
      return OTF2_COLLECTIVE_OP_BCAST;
    case CollectiveKind::kReduce:
      return OTF2_COLLECTIVE_OP_REDUCE;
    case CollectiveKind::kGather:
      return OTF2_COLLECTIVE_OP_GATHER;
    case CollectiveKind::kScatter:
      return OTF2_COLLECTIVE_OP_SCATTER;
    case CollectiveKind::kScan:
      return OTF2_COLLECTIVE_OP_SCAN;
    default:
      return OTF2_COLLECTIVE_OP_BARRIER;
  }
}

// A record that belongs inside the call that is open at its time.
struct Pending {
  enum What : std::uint8_t { kCollectiveBegin, kCollectiveEnd, kSend, kReceive } what;
  CollectiveKind kind;
  std::uint32_t comm, peer, tag;
  std::uint64_t bytes;
};

struct Otf2Lane {
  OTF2_EvtWriter* events = nullptr;
  std::vector<OTF2_RegionRef> open;
  std::multimap<std::int64_t, Pending> pending;
  std::int64_t latest_ns = 0;
  std::uint64_t written = 0;
};

class Otf2Writer final : public Writer {
 public:
  ~Otf2Writer() override {
    if (archive_ != nullptr) OTF2_Archive_Close(archive_);
  }

  bool Takes(EventKind kind) const override {
    switch (kind) {
      case EventKind::kHostStep:
      case EventKind::kSync:
      case EventKind::kBlocked:
      case EventKind::kOverhead:
        return false;
      default:
        return !IsValue(kind);
    }
  }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    namespace fs = std::filesystem;
    if (Status made = MakeDirectory(run.output); !made.ok()) return made;
    // The library adds to what is there, so an archive is removed first; a folder of the same name that belongs to none
    // (traces of another tool) is somebody's.
    const fs::path output(run.output);
    std::error_code error;
    if (fs::exists(output / "traces", error) && !fs::exists(output / "traces.otf2", error))
      return Error{ErrorCode::kIo, "'traces' is there and belongs to no OTF2 archive", run.output, "-o DIR elsewhere"};
    for (const char* old : {"traces.otf2", "traces.def", "traces"}) fs::remove_all(output / old, error);
    archive_ = OTF2_Archive_Open(run.output.c_str(), "traces", OTF2_FILEMODE_WRITE, kEventChunk, kDefinitionChunk,
                                 OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    if (archive_ == nullptr) return Failed();
    static const OTF2_FlushCallbacks kFlush = {BeforeFlush, nullptr};
    Check(OTF2_Archive_SetFlushCallbacks(archive_, &kFlush, nullptr));
    Check(OTF2_Archive_SetSerialCollectiveCallbacks(archive_));
    Check(OTF2_Archive_SetCreator(archive_, "lockstep"));
    Check(OTF2_Archive_OpenEvtFiles(archive_));
    Text("");  // Number 0.
    return status();
  }

  Status BeginRank(const ExportRank& rank) override {
    rank_ = rank;
    describer_.emplace(*run_, rank_);
    tracks_ = {};
    // The first location represents the rank in communicators.
    Introduce(tracks_.First(MainTrack()));
    comms_.assign(rank.head->comms.rows(), OTF2_UNDEFINED_COMM);
    for (std::uint32_t comm = 0; comm < rank.head->comms.rows(); ++comm) comms_[comm] = CommOf(comm);
    return status();
  }

  Status Write(const Event& event) override {
    const std::int64_t begin = event.begin_ns - run_->base_ns, end = event.end_ns - run_->base_ns;
    switch (event.kind) {
      case EventKind::kCollective:
        Collective(event.as<schema::Collectives::Row>(), begin, end, event.ended);
        return status();
      case EventKind::kMessage:
        Message(event.as<schema::P2p::Row>(), begin, end, event.ended);
        return status();
      default:
        break;
    }
    const auto close = [this](Lane& lane, std::int64_t ns) { Leave(lane, ns); };
    Lane* lane = tracks_.Open(event.kind, TrackOf(event), begin, end, close);
    if (lane == nullptr) {
      ++crowded_;
      return status();
    }
    Introduce(*lane);
    Otf2Lane& state = lane->extra;
    Flush(*lane, begin, false);
    const OTF2_RegionRef region = RegionOf(event);
    state.open.push_back(region);
    Check(OTF2_EvtWriter_Enter(state.events, nullptr, Time(state, begin), region));
    ++state.written;
    if (event.kind == EventKind::kMpiCall) Flush(*lane, begin, true);
    return status();
  }

  Status EndRank() override {
    tracks_.CloseAll([this](Lane& lane, std::int64_t ns) { Leave(lane, ns); });
    tracks_.ForEach([&](Lane& lane) {
      if (lane.extra.events == nullptr) return;
      Flush(lane, INT64_MAX, true);
      Locations location{LocationOf(lane.number), Text(LaneName(lane)), rank_.rank, lane.extra.written,
                         lane.track.section == Section::kStream};
      locations_.push_back(location);
      Check(OTF2_Archive_CloseEvtWriter(archive_, lane.extra.events));
    });
    groups_.push_back({rank_.rank, Text(rank_.title)});
    return status();
  }

  Status Finish() override {
    Check(OTF2_Archive_CloseEvtFiles(archive_));
    Check(OTF2_Archive_OpenDefFiles(archive_));
    for (const Locations& location : locations_) {
      OTF2_DefWriter* definitions = OTF2_Archive_GetDefWriter(archive_, location.id);
      if (definitions != nullptr) Check(OTF2_Archive_CloseDefWriter(archive_, definitions));
    }
    Check(OTF2_Archive_CloseDefFiles(archive_));
    Definitions();
    const OTF2_ErrorCode closed = OTF2_Archive_Close(archive_);
    archive_ = nullptr;
    Check(closed);
    LS_CHECK(status());
    std::error_code error;
    for (std::filesystem::recursive_directory_iterator at(run_->output, error), end; !error && at != end;
         at.increment(error))
      if (at->is_regular_file(error)) bytes_ += at->file_size(error);
    return Ok();
  }
  std::uint64_t bytes() const override { return bytes_; }
  std::string trouble() const override {
    return crowded_ == 0 ? "" : std::to_string(crowded_) + " events beside too many others are not in the archive";
  }

 private:
  using Lane = Tracks<Otf2Lane>::Lane;
  struct Locations {
    std::uint64_t id;
    OTF2_StringRef name;
    std::int32_t rank;
    std::uint64_t events;
    bool gpu;
  };
  struct Comm {
    OTF2_StringRef name;
    std::vector<std::int32_t> members;  // World ranks.
  };

  Status Failed() const {
    return Error{ErrorCode::kIo, std::string("cannot write the archive: ") + OTF2_Error_GetDescription(error_),
                 run_->output, "name a directory with free space that can be written to with -o"};
  }
  Status status() const { return error_ == OTF2_SUCCESS ? Ok() : Failed(); }
  void Check(OTF2_ErrorCode code) {
    if (code != OTF2_SUCCESS && error_ == OTF2_SUCCESS) error_ = code;
  }

  OTF2_StringRef Text(std::string_view given) {
    std::string scratch;
    std::string text(ValidUtf8(given, scratch));
    const auto [at, fresh] = texts_.try_emplace(std::move(text), static_cast<OTF2_StringRef>(texts_.size()));
    if (fresh) text_order_.push_back(&at->first);
    return at->second;
  }

  // One location per thread and per stream; MPI calls, ranges and runtime calls of a thread share it.
  TrackKey MainTrack() const { return {Section::kRanges, rank_.training_thread}; }
  TrackKey TrackOf(const Event& event) const {
    const TrackKey key = describer_->TrackOf(event);
    switch (key.section) {
      case Section::kPhases:
        return MainTrack();
      case Section::kMpi:
      case Section::kApi:
        return {Section::kRanges, key.of};
      default:
        return key;
    }
  }
  std::string LaneName(const Lane& lane) const {
    std::string name = describer_->TrackName(lane.track);
    constexpr std::string_view kPrefix = "ranges \xc2\xb7 ";
    if (lane.track.section == Section::kRanges) name.erase(0, kPrefix.size());
    if (lane.index > 0) name += " (" + std::to_string(lane.index + 1) + ")";
    return name;
  }
  std::uint64_t LocationOf(std::size_t lane) const {
    return static_cast<std::uint64_t>(rank_.rank) << kLaneBits | lane;
  }

  void Introduce(Lane& lane) {
    if (lane.extra.events != nullptr) return;
    lane.extra.events = OTF2_Archive_GetEvtWriter(archive_, LocationOf(lane.number));
    if (lane.extra.events == nullptr) Check(OTF2_ERROR_FILE_INTERACTION);
  }

  // The library wants times of a location that never go back.
  static OTF2_TimeStamp Time(Otf2Lane& state, std::int64_t ns) {
    state.latest_ns = std::max(state.latest_ns, ns);
    return static_cast<OTF2_TimeStamp>(state.latest_ns);
  }

  void Leave(Lane& lane, std::int64_t ns) {
    Otf2Lane& state = lane.extra;
    if (state.events == nullptr || state.open.empty()) return;
    Flush(lane, ns, true);
    Check(OTF2_EvtWriter_Leave(state.events, nullptr, Time(state, ns), state.open.back()));
    ++state.written;
    state.open.pop_back();
  }

  // Writes what was put off until `ns`, itself included if `all`.
  void Flush(Lane& lane, std::int64_t ns, bool all) {
    Otf2Lane& state = lane.extra;
    while (!state.pending.empty() &&
           (state.pending.begin()->first < ns || (all && state.pending.begin()->first == ns))) {
      const auto at = state.pending.begin();
      const Pending& p = at->second;
      const OTF2_TimeStamp time = Time(state, at->first);
      switch (p.what) {
        case Pending::kCollectiveBegin:
          Check(OTF2_EvtWriter_MpiCollectiveBegin(state.events, nullptr, time));
          break;
        case Pending::kCollectiveEnd:
          Check(OTF2_EvtWriter_MpiCollectiveEnd(state.events, nullptr, time, OpOf(p.kind), p.comm, p.peer, p.bytes,
                                                p.bytes));
          break;
        case Pending::kSend:
          Check(OTF2_EvtWriter_MpiSend(state.events, nullptr, time, p.peer, p.comm, p.tag, p.bytes));
          break;
        case Pending::kReceive:
          Check(OTF2_EvtWriter_MpiRecv(state.events, nullptr, time, p.peer, p.comm, p.tag, p.bytes));
          break;
      }
      ++state.written;
      state.pending.erase(at);
    }
  }

  Lane& ThreadLane(std::uint32_t thread) {
    Lane& lane = tracks_.First({Section::kRanges, thread});
    Introduce(lane);
    return lane;
  }

  void Collective(const schema::Collectives::Row& row, std::int64_t begin, std::int64_t end, bool ended) {
    if (row.mode != schema::Code(CollectiveMode::kBlocking) || !ended || row.comm >= comms_.size() ||
        comms_[row.comm] == OTF2_UNDEFINED_COMM)
      return;
    const auto kind = static_cast<CollectiveKind>(row.kind);
    const std::uint32_t root = row.root >= 0 ? static_cast<std::uint32_t>(row.root) : OTF2_UNDEFINED_UINT32;
    auto& pending = ThreadLane(row.thread).extra.pending;
    pending.emplace(begin, Pending{Pending::kCollectiveBegin, kind, comms_[row.comm], root, 0, row.bytes});
    pending.emplace(end, Pending{Pending::kCollectiveEnd, kind, comms_[row.comm], root, 0, row.bytes});
  }

  void Message(const schema::P2p::Row& row, std::int64_t begin, std::int64_t end, bool ended) {
    const bool send = row.direction == schema::Direction::kSend;
    if (row.mode == schema::Code(CollectiveMode::kGpu) || row.peer < 0 ||
        row.outcome == schema::RequestOutcome::kCancelled || (!send && !ended) || row.comm >= comms_.size() ||
        comms_[row.comm] == OTF2_UNDEFINED_COMM)
      return;
    ThreadLane(row.thread)
        .extra.pending.emplace(
            send ? begin : end,
            Pending{send ? Pending::kSend : Pending::kReceive, CollectiveKind::kNone, comms_[row.comm],
                    static_cast<std::uint32_t>(row.peer), static_cast<std::uint32_t>(std::max(row.tag, 0)), row.bytes});
  }

  OTF2_RegionRef RegionOf(const Event& event) {
    const std::pair key(event.kind, Text(describer_->NameOf(event)));
    const auto [at, fresh] = regions_.try_emplace(key, static_cast<OTF2_RegionRef>(regions_.size()));
    if (!fresh) return at->second;
    OTF2_RegionRole role = OTF2_REGION_ROLE_FUNCTION;
    OTF2_Paradigm paradigm = OTF2_PARADIGM_USER;
    switch (event.kind) {
      case EventKind::kMpiCall: {
        paradigm = OTF2_PARADIGM_MPI;
        role = OTF2_REGION_ROLE_WRAPPER;
        if (const MpiOpInfo* info = FindMpiOp(event.as<schema::MpiCalls::Row>().op); info != nullptr) {
          if (info->kind == CollectiveKind::kBarrier)
            role = OTF2_REGION_ROLE_BARRIER;
          else if (info->kind != CollectiveKind::kNone)
            role = OTF2_REGION_ROLE_COLL_OTHER;
          else if (info->cls >= MpiClass::kSend && info->cls <= MpiClass::kSendRecv)
            role = OTF2_REGION_ROLE_POINT2POINT;
          else if (IsIo(info->cls))
            role = OTF2_REGION_ROLE_FILE_IO;
          else if (IsRma(info->cls))
            role = OTF2_REGION_ROLE_RMA;
        }
        break;
      }
      case EventKind::kKernel:
        paradigm = OTF2_PARADIGM_CUDA;
        break;
      case EventKind::kCopy:
        paradigm = OTF2_PARADIGM_CUDA;
        role = OTF2_REGION_ROLE_DATA_TRANSFER;
        break;
      case EventKind::kApi:
        paradigm = OTF2_PARADIGM_CUDA;
        role = OTF2_REGION_ROLE_WRAPPER;
        break;
      default:
        role = OTF2_REGION_ROLE_CODE;
        break;
    }
    region_order_.push_back({key.second, role, paradigm});
    return at->second;
  }

  // Number of a communicator in the archive: one for all its members.
  OTF2_CommRef CommOf(std::uint32_t comm) {
    const schema::Comms& comms = rank_.head->comms;
    if (comms.unidentified[comm] || comms.global_id[comm] == 0 || comms.kind[comm] != schema::CommKind::kIntra)
      return OTF2_UNDEFINED_COMM;
    const auto [at, fresh] = comm_of_.try_emplace(comms.global_id[comm], static_cast<OTF2_CommRef>(comm_list_.size()));
    if (!fresh) return at->second;
    comm_list_.push_back({Text(CommTitle(*rank_.head, comm)), MembersOf(*rank_.head, run_->comm_members, comm)});
    return at->second;
  }

  void Definitions() {
    OTF2_GlobalDefWriter* g = OTF2_Archive_GetGlobalDefWriter(archive_);
    if (g == nullptr) return Check(OTF2_ERROR_FILE_INTERACTION);
    const OTF2_StringRef job = Text("job"), machine = Text("machine"), node_class = Text("node"), none = Text("");
    const OTF2_StringRef all_name = Text("MPI ranks");
    std::vector<std::pair<OTF2_StringRef, std::uint32_t>> nodes;  // Name, number.
    std::map<std::string, OTF2_SystemTreeNodeRef> node_of;
    const schema::TlRanks& ranks = run_->timeline->tables.ranks;
    const auto node = [&](std::int32_t rank) {
      const std::string name(run_->timeline->Text(ranks.node[static_cast<std::size_t>(run_->timeline->RankRow(rank))]));
      const auto [at, fresh] = node_of.try_emplace(name, static_cast<OTF2_SystemTreeNodeRef>(node_of.size() + 1));
      if (fresh) nodes.emplace_back(Text(name.empty() ? "unknown node" : name), at->second);
      return at->second;
    };
    std::vector<OTF2_SystemTreeNodeRef> group_node;
    for (const auto& [rank, name] : groups_) group_node.push_back(node(rank));

    Check(OTF2_GlobalDefWriter_WriteClockProperties(
        g, 1'000'000'000, 0, static_cast<std::uint64_t>(std::max<std::int64_t>(run_->window.end - run_->base_ns, 1)),
        OTF2_UNDEFINED_TIMESTAMP));
    for (std::size_t i = 0; i < text_order_.size(); ++i)
      Check(OTF2_GlobalDefWriter_WriteString(g, static_cast<OTF2_StringRef>(i), text_order_[i]->c_str()));
    for (std::size_t i = 0; i < region_order_.size(); ++i) {
      const Region& region = region_order_[i];
      Check(OTF2_GlobalDefWriter_WriteRegion(g, static_cast<OTF2_RegionRef>(i), region.name, region.name, none,
                                             region.role, region.paradigm, OTF2_REGION_FLAG_NONE, none, 0, 0));
    }
    Check(OTF2_GlobalDefWriter_WriteSystemTreeNode(g, 0, job, machine, OTF2_UNDEFINED_SYSTEM_TREE_NODE));
    for (const auto& [name, number] : nodes)
      Check(OTF2_GlobalDefWriter_WriteSystemTreeNode(g, number, name, node_class, 0));
    std::unordered_map<std::int32_t, std::uint64_t> place;  // World rank -> position among the groups.
    std::vector<std::uint64_t> mains;
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto& [rank, name] = groups_[i];
      Check(OTF2_GlobalDefWriter_WriteLocationGroup(g, static_cast<OTF2_LocationGroupRef>(i), name,
                                                    OTF2_LOCATION_GROUP_TYPE_PROCESS, group_node[i],
                                                    OTF2_UNDEFINED_LOCATION_GROUP));
      place.emplace(rank, i);
      mains.push_back(static_cast<std::uint64_t>(rank) << kLaneBits);
    }
    for (const Locations& location : locations_)
      Check(OTF2_GlobalDefWriter_WriteLocation(
          g, location.id, location.name,
          location.gpu ? OTF2_LOCATION_TYPE_ACCELERATOR_STREAM : OTF2_LOCATION_TYPE_CPU_THREAD, location.events,
          static_cast<OTF2_LocationGroupRef>(place.at(location.rank))));
    Check(OTF2_GlobalDefWriter_WriteGroup(g, 0, all_name, OTF2_GROUP_TYPE_COMM_LOCATIONS, OTF2_PARADIGM_MPI,
                                          OTF2_GROUP_FLAG_NONE, static_cast<std::uint32_t>(mains.size()),
                                          mains.data()));
    for (std::size_t i = 0; i < comm_list_.size(); ++i) {
      std::vector<std::uint64_t> members;
      // Ranks that are not exported cannot be named.
      for (const std::int32_t rank : comm_list_[i].members)
        if (const auto at = place.find(rank); at != place.end()) members.push_back(at->second);
      const auto group = static_cast<OTF2_GroupRef>(i + 1);
      Check(OTF2_GlobalDefWriter_WriteGroup(g, group, comm_list_[i].name, OTF2_GROUP_TYPE_COMM_GROUP, OTF2_PARADIGM_MPI,
                                            OTF2_GROUP_FLAG_NONE, static_cast<std::uint32_t>(members.size()),
                                            members.data()));
      Check(OTF2_GlobalDefWriter_WriteComm(g, static_cast<OTF2_CommRef>(i), comm_list_[i].name, group,
                                           OTF2_UNDEFINED_COMM, OTF2_COMM_FLAG_NONE));
    }
    Check(OTF2_Archive_CloseGlobalDefWriter(archive_, g));
  }

  struct Region {
    OTF2_StringRef name;
    OTF2_RegionRole role;
    OTF2_Paradigm paradigm;
  };

  const ExportRun* run_ = nullptr;
  ExportRank rank_;
  std::optional<Describer> describer_;
  Tracks<Otf2Lane> tracks_;
  OTF2_Archive* archive_ = nullptr;
  OTF2_ErrorCode error_ = OTF2_SUCCESS;
  std::map<std::string, OTF2_StringRef> texts_;  // Nodes stay where they are.
  std::vector<const std::string*> text_order_;
  std::map<std::pair<EventKind, OTF2_StringRef>, OTF2_RegionRef> regions_;
  std::vector<Region> region_order_;
  std::vector<Locations> locations_;
  std::vector<std::pair<std::int32_t, OTF2_StringRef>> groups_;
  std::vector<OTF2_CommRef> comms_;  // Of the current rank, by its number there.
  std::unordered_map<std::uint64_t, OTF2_CommRef> comm_of_;
  std::vector<Comm> comm_list_;
  std::uint64_t bytes_ = 0, crowded_ = 0;
};

}  // namespace

std::unique_ptr<Writer> MakeOtf2Writer(const WriterOptions&) { return std::make_unique<Otf2Writer>(); }

}  // namespace lockstep::exporters
