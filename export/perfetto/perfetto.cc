// Perfetto's track events, written as protocol buffers directly: nothing is buffered that could overflow and nothing
// is dropped on the way, unlike with its SDK.
//
// Each lane (tracks.h) is a packet sequence of its own, so that its track is a default and names have small numbers.
// Times are absolute: clocks that count from packet to packet would save three bytes each, but need a snapshot per
// sequence, and Perfetto refuses snapshots whose trace time goes back (ClockTracker, v58).

#include <algorithm>
#include <iterator>
#include <optional>
#include <protozero/pbf_builder.hpp>
#include <protozero/varint.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/rank_name.h"
#include "core/version.h"
#include "export/common/json_writer.h"
#include "export/common/out_file.h"
#include "export/common/tar.h"
#include "export/common/text.h"
#include "export/common/tracks.h"
#include "export/common/writers.h"
#include "export/perfetto/perfetto_fields.h"

namespace lockstep::exporters {
namespace {

using perfetto::EventType;
using schema::kNone;
template <typename T>
using Builder = protozero::pbf_builder<T>;

constexpr std::uint64_t kClusterPid = 1;

// What a sequence has interned.
class Names {
 public:
  // 0 is no iid; `fresh` if it was not known before.
  std::uint64_t Of(std::uint64_t key, bool& fresh) {
    const auto [at, added] = iids_.try_emplace(key, iids_.size() + 1);
    fresh = added;
    return at->second;
  }

 private:
  std::unordered_map<std::uint64_t, std::uint64_t> iids_;
};

struct PerfettoLane {
  std::uint32_t sequence = 0;
  Names names;                                                      // By Describer::NameKey.
  std::unordered_map<std::string_view, std::uint64_t> annotations;  // Keys are literals.
  std::unordered_map<std::string, std::uint64_t> values;
};

class PerfettoWriter final : public Writer {
 public:
  explicit PerfettoWriter(const WriterOptions& options) : split_(options.split) {}
  bool wants_cluster() const override { return true; }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    if (split_) {
      LS_CHECK(out_.Open(run.output));
      // First in the archive: what Perfetto reads before the members. All share one clock and one machine.
      std::string manifest;
      JsonWriter json(manifest);
      json.BeginObject();
      json.Key("perfetto_manifest");
      json.BeginObject();
      json.Int("version", 1);
      json.Key("files");
      json.BeginArray("\n  ");
      const auto add = [&](const std::string& name) {
        json.BeginObject();
        json.Word("path", name);
        json.EndObject();
      };
      add(kClusterFile);
      for (const std::int32_t rank : run.ranks) add(FileOf(rank));
      json.EndArray("\n");
      json.EndObject();
      json.EndObject();
      manifest += '\n';
      Tar(out_).Add("perfetto_manifest.json", manifest);
      return out_.status();
    }
    LS_CHECK(out_.Open(run.output));
    Root();
    // At once, though its slices come last: who serves the file reads from its begin what time 0 is.
    PutProcess(-1, "cluster");
    return out_.status();
  }

  Status BeginRank(const ExportRank& rank) override {
    rank_ = rank;
    describer_.emplace(*run_, rank_);
    tracks_ = {};
    if (split_) {
      member_.emplace(out_);
      member_->Begin(rank.rank < 0 ? kClusterFile : FileOf(rank.rank));
      sequence_ = 0;
      Root();
    }
    PutProcess(rank.rank, rank.title);
    return out_.status();
  }

  Status Write(const Event& event) override {
    const std::int64_t begin = event.begin_ns - run_->base_ns, end = event.end_ns - run_->base_ns;
    if (IsValue(event.kind)) {
      for (const CounterValue& value : describer_->ValuesOf(event)) PutCounter(value, begin);
      return out_.status();
    }
    const TrackKey key = describer_->TrackOf(event);
    const auto close = [this](Lane& at, std::int64_t ns) { PutEnd(at, ns); };
    if (IsMark(event)) {
      PutBegin(tracks_.Mark(key, begin, close), event, begin, true, -1);
    } else if (Lane* lane = tracks_.Open(event.kind, key, begin, end, close)) {
      PutBegin(*lane, event, begin, false, -1);
    } else {
      PutBegin(tracks_.Mark(key, begin, close), event, begin, true, end - begin);
    }
    return out_.status();
  }

  Status EndRank() override {
    tracks_.CloseAll([this](Lane& lane, std::int64_t ns) { PutEnd(lane, ns); });
    if (member_) {
      member_->End();
      member_.reset();
    }
    return out_.status();
  }

  Status Finish() override {
    if (split_) Tar(out_).Finish();
    return out_.Close();
  }
  std::uint64_t bytes() const override { return out_.bytes(); }

 private:
  using Lane = Tracks<PerfettoLane>::Lane;
  static constexpr const char* kClusterFile = "cluster.pftrace";

  static std::string FileOf(std::int32_t rank) { return RankName(rank) + ".pftrace"; }

  std::string Description() const {
    std::string text = "Lockstep " LOCKSTEP_VERSION ", run " + std::string(run_->timeline->Meta("run_id")) +
                       "; time 0 is " + std::to_string(run_->base_ns) + " ns of the cluster's clock";
    for (const std::string& remark : run_->remarks) text += "; " + remark;
    return text;
  }

  std::string_view Valid(std::string_view text) { return ValidUtf8(text, scratch_); }

  // Processes are ordered by rank only if the root says so.
  void Root() {
    std::string track;
    Builder<perfetto::Track> t(track);
    t.add_uint64(perfetto::Track::kUuid, 0);
    t.add_enum(perfetto::Track::kProcessOrdering, perfetto::kProcessOrderExplicit);
    PutDescriptor(track);
  }

  // Below its uuid are the rank's tracks; ranks come in order, the cluster first.
  void PutProcess(std::int32_t rank, std::string_view title) {
    const std::uint64_t order = static_cast<std::uint64_t>(static_cast<std::int64_t>(rank) + 1);
    process_ = (order + 1) << 20;
    lanes_ = 0;
    std::string track;
    Builder<perfetto::Track> t(track);
    t.add_uint64(perfetto::Track::kUuid, process_);
    {
      std::string text;
      Builder<perfetto::Process> p(text);
      p.add_int32(perfetto::Process::kPid, static_cast<std::int32_t>(kClusterPid + order));
      p.add_string(perfetto::Process::kName, std::string(Valid(title)));
      t.add_message(perfetto::Track::kProcess, text);
    }
    t.add_enum(perfetto::Track::kChildOrdering, perfetto::kOrderExplicit);
    t.add_int32(perfetto::Track::kRank, static_cast<std::int32_t>(order));
    if (rank < 0) t.add_string(perfetto::Track::kDescription, std::string(Valid(Description())));
    PutDescriptor(track);
  }

  // A descriptor of no lane.
  void PutDescriptor(const std::string& track) {
    packet_.clear();
    Builder<perfetto::Packet> p(packet_);
    p.add_uint32(perfetto::Packet::kSequence, ++sequence_);
    p.add_message(perfetto::Packet::kTrackDescriptor, track);
    PutPacket();
  }

  void PutPacket() {
    std::string& out = out_.buffer();
    out.push_back(static_cast<char>(static_cast<std::uint32_t>(perfetto::Trace::kPacket) << 3 | 2));
    protozero::write_varint(std::back_inserter(out), packet_.size());
    out.append(packet_);
    out_.Grown();
  }

  // The lane's track, and the defaults of its sequence.
  void Introduce(Lane& lane, std::string_view unit) {
    lane.extra.sequence = ++sequence_;
    const std::uint64_t uuid = process_ + ++lanes_;
    std::string track;
    Builder<perfetto::Track> t(track);
    t.add_uint64(perfetto::Track::kUuid, uuid);
    std::string name = describer_->TrackName(lane.track);
    if (lane.index > 0) name += " (" + std::to_string(lane.index + 1) + ")";
    t.add_string(perfetto::Track::kName, std::string(Valid(name)));
    t.add_uint64(perfetto::Track::kParent, process_);
    t.add_int32(perfetto::Track::kRank, Order(lane));
    if (!unit.empty()) {
      std::string text;
      Builder<perfetto::CounterTrack> c(text);
      if (unit == "bytes" || unit == "count")
        c.add_enum(perfetto::CounterTrack::kUnit,
                   static_cast<std::int32_t>(unit == "bytes" ? perfetto::kUnitBytes : perfetto::kUnitCount));
      else
        c.add_string(perfetto::CounterTrack::kUnitName, std::string(unit));
      t.add_message(perfetto::Track::kCounter, text);
    }
    packet_.clear();
    Builder<perfetto::Packet> p(packet_);
    p.add_uint32(perfetto::Packet::kSequence, lane.extra.sequence);
    p.add_uint32(perfetto::Packet::kSequenceFlags, perfetto::kStateCleared);
    p.add_bool(perfetto::Packet::kFirstOnSequence, true);
    {
      std::string event, defaults;
      Builder<perfetto::EventDefaults>(event).add_uint64(perfetto::EventDefaults::kTrack, uuid);
      Builder<perfetto::Defaults>(defaults).add_message(perfetto::Defaults::kTrackEvent, event);
      p.add_message(perfetto::Packet::kDefaults, defaults);
    }
    p.add_message(perfetto::Packet::kTrackDescriptor, track);
    PutPacket();
  }

  // By section, then by number of the thread or stream, then by lane. Sections are far apart.
  static std::int32_t Order(const Lane& lane) {
    constexpr std::uint64_t kRoom = 1 << 20;
    const std::uint64_t of =
        lane.track.section == Section::kStream
            ? (lane.track.of >> 48) * 4096 + std::min<std::uint64_t>(lane.track.of & 0xffffffff, 4095)
            : lane.track.of;
    return static_cast<std::int32_t>(static_cast<std::uint64_t>(lane.track.section) * kRoom * 4 +
                                     std::min(of, kRoom - 1) * 4 + std::min<std::size_t>(lane.index, 3));
  }

  void StartPacket(const Lane& lane, std::int64_t ns) {
    packet_.clear();
    Builder<perfetto::Packet> p(packet_);
    p.add_uint64(perfetto::Packet::kTimestamp, static_cast<std::uint64_t>(ns));
    p.add_uint32(perfetto::Packet::kSequence, lane.extra.sequence);
    p.add_uint32(perfetto::Packet::kSequenceFlags, perfetto::kNeedsState);
  }

  void PutEnd(Lane& lane, std::int64_t ns) {
    StartPacket(lane, ns);
    event_.clear();
    Builder<perfetto::TrackEvent>(event_).add_enum(perfetto::TrackEvent::kType,
                                                   static_cast<std::int32_t>(EventType::kSliceEnd));
    Builder<perfetto::Packet>(packet_).add_message(perfetto::Packet::kTrackEvent, event_);
    PutPacket();
  }

  void PutCounter(const CounterValue& value, std::int64_t ns) {
    Lane& lane = tracks_.First(value.track);
    if (lane.extra.sequence == 0) Introduce(lane, value.unit);
    StartPacket(lane, ns);
    event_.clear();
    Builder<perfetto::TrackEvent> e(event_);
    e.add_enum(perfetto::TrackEvent::kType, static_cast<std::int32_t>(EventType::kCounter));
    e.add_int64(perfetto::TrackEvent::kCounterValue, value.value);
    Builder<perfetto::Packet>(packet_).add_message(perfetto::Packet::kTrackEvent, event_);
    PutPacket();
  }

  void Intern(perfetto::Interned list, std::uint64_t iid, std::string_view text) {
    entry_.clear();
    Builder<perfetto::InternedText> entry(entry_);
    entry.add_uint64(perfetto::InternedText::kIid, iid);
    const std::string_view valid = Valid(text);
    entry.add_bytes(perfetto::InternedText::kText, valid.data(), valid.size());
    Builder<perfetto::Interned>(interned_).add_message(list, entry_);
  }

  // `duration_ns` >= 0: the slice is shown as an instant, because too many lie side by side.
  void PutBegin(Lane& lane, const Event& event, std::int64_t ns, bool instant, std::int64_t duration_ns) {
    if (lane.extra.sequence == 0) Introduce(lane, {});
    PerfettoLane& state = lane.extra;
    interned_.clear();
    event_.clear();
    Builder<perfetto::TrackEvent> e(event_);
    e.add_enum(perfetto::TrackEvent::kType,
               static_cast<std::int32_t>(instant ? EventType::kInstant : EventType::kSliceBegin));
    bool fresh = false;
    const std::uint64_t name = state.names.Of(describer_->NameKey(event), fresh);
    if (fresh) Intern(perfetto::Interned::kEventNames, name, describer_->NameOf(event));
    e.add_uint64(perfetto::TrackEvent::kNameIid, name);
    for (const Argument& argument : describer_->ArgumentsOf(event)) PutArgument(e, state, argument);
    if (duration_ns >= 0) PutArgument(e, state, {"duration_ns", duration_ns});
    if (event.flow != 0) e.add_fixed64(perfetto::TrackEvent::kFlow, event.flow);
    if (event.flow_target)
      for (const auto& [instance, number] : run_->FlowsInto(event.instance.instance))
        e.add_fixed64(perfetto::TrackEvent::kFlowEnd, number);
    // 0 would be none.
    if (event.instance.instance != kNone)
      e.add_uint64(perfetto::TrackEvent::kCorrelation, std::uint64_t{event.instance.instance} + 1);
    StartPacket(lane, ns);
    Builder<perfetto::Packet> p(packet_);
    if (!interned_.empty()) p.add_message(perfetto::Packet::kInternedData, interned_);
    p.add_message(perfetto::Packet::kTrackEvent, event_);
    PutPacket();
  }

  void PutArgument(Builder<perfetto::TrackEvent>& e, PerfettoLane& state, const Argument& argument) {
    const auto [at, fresh] = state.annotations.try_emplace(argument.key, state.annotations.size() + 1);
    if (fresh) Intern(perfetto::Interned::kAnnotationNames, at->second, argument.key);
    annotation_.clear();
    Builder<perfetto::Annotation> a(annotation_);
    a.add_uint64(perfetto::Annotation::kNameIid, at->second);
    if (const auto* number = std::get_if<std::int64_t>(&argument.value)) {
      a.add_int64(perfetto::Annotation::kInt, *number);
    } else if (const auto* count = std::get_if<std::uint64_t>(&argument.value)) {
      a.add_uint64(perfetto::Annotation::kUint, *count);
    } else {
      const auto text = std::get<std::string_view>(argument.value);
      const auto [value, first] = state.values.try_emplace(std::string(text), state.values.size() + 1);
      if (first) Intern(perfetto::Interned::kStringValues, value->second, text);
      a.add_uint64(perfetto::Annotation::kStringIid, value->second);
    }
    e.add_message(perfetto::TrackEvent::kAnnotation, annotation_);
  }

  const bool split_;
  const ExportRun* run_ = nullptr;
  ExportRank rank_;
  std::optional<Describer> describer_;
  Tracks<PerfettoLane> tracks_;
  OutFile out_;
  std::optional<Tar::Member> member_;
  std::uint32_t sequence_ = 0;
  std::uint64_t process_ = 0, lanes_ = 0;
  std::string packet_, event_, interned_, entry_, annotation_, scratch_;
};

}  // namespace

std::unique_ptr<Writer> MakePerfettoWriter(const WriterOptions& options) {
  return std::make_unique<PerfettoWriter>(options);
}

}  // namespace lockstep::exporters
