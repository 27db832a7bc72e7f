// Chrome's JSON trace events: the tracks of Perfetto's export for viewers that read nothing else.

#include <algorithm>
#include <optional>
#include <string>

#include "core/version.h"
#include "export/common/describe.h"
#include "export/common/json_writer.h"
#include "export/common/out_file.h"
#include "export/common/tracks.h"
#include "export/common/writers.h"

namespace lockstep::exporters {
namespace {

struct ChromeLane {
  bool named = false;
};

class ChromeWriter final : public Writer {
 public:
  bool wants_cluster() const override { return true; }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    LS_CHECK(out_.Open(run.output));
    json_.BeginObject();
    json_.Word("displayTimeUnit", "ms");
    json_.Key("traceEvents");
    json_.BeginArray("\n");
    return out_.status();
  }

  Status BeginRank(const ExportRank& rank) override {
    rank_ = rank;
    describer_.emplace(*run_, rank_);
    tracks_ = {};
    pid_ = static_cast<std::int64_t>(rank.rank) + 2;  // The cluster has number 1.
    Metadata("process_name", 0, rank.title);
    Metadata("process_sort_index", 0, pid_);
    return out_.status();
  }

  Status Write(const Event& event) override {
    const std::int64_t begin = event.begin_ns - run_->base_ns, end = event.end_ns - run_->base_ns;
    if (IsValue(event.kind)) {
      for (const CounterValue& value : describer_->ValuesOf(event)) {
        Start("C", 0, begin);
        json_.Text("name", describer_->TrackName(value.track));
        json_.Key("args");
        json_.BeginObject();
        json_.TextKey(value.unit);
        json_.Int(value.value);
        json_.EndObject();
        End();
      }
      return out_.status();
    }
    const TrackKey key = describer_->TrackOf(event);
    const auto close = [](Lane&, std::int64_t) {};
    Lane* lane = IsMark(event) ? nullptr : tracks_.Open(event.kind, key, begin, end, close);
    const bool slice = lane != nullptr;
    if (!slice) lane = &tracks_.Mark(key, begin, close);
    const auto tid = static_cast<std::int64_t>(lane->number) + 1;
    if (!lane->extra.named) Introduce(*lane, tid);
    Start(slice ? "X" : "i", tid, begin);
    if (slice)
      json_.Microseconds("dur", end - begin);
    else
      json_.Word("s", "t");
    json_.Text("name", describer_->NameOf(event));
    json_.Key("args");
    json_.BeginObject();
    for (const Argument& argument : describer_->ArgumentsOf(event)) PutArgument(argument);
    if (!slice && !IsMark(event)) json_.Int("duration_ns", end - begin);
    json_.EndObject();
    End();
    if (event.flow != 0) Arrow("s", tid, begin, event.flow);
    if (event.flow_target)
      for (const auto& [instance, number] : run_->FlowsInto(event.instance.instance)) Arrow("f", tid, begin, number);
    return out_.status();
  }

  Status EndRank() override { return out_.status(); }

  Status Finish() override {
    json_.EndArray("\n");
    json_.Key("otherData");
    json_.BeginObject();
    json_.Word("lockstep", LOCKSTEP_VERSION);
    json_.Text("run", run_->timeline->Meta("run_id"));
    json_.Int("cluster_ns_at_0", run_->base_ns);
    json_.Key("left_out");
    json_.BeginArray();
    for (const std::string& remark : run_->remarks) json_.Text(remark);
    json_.EndArray();
    json_.EndObject();
    json_.EndObject();
    out_.Put("\n");
    return out_.Close();
  }
  std::uint64_t bytes() const override { return out_.bytes(); }

 private:
  using Lane = Tracks<ChromeLane>::Lane;

  void Start(std::string_view phase, std::int64_t tid, std::int64_t ns) {
    json_.BeginObject();
    json_.Word("ph", phase);
    json_.Int("pid", pid_);
    json_.Int("tid", tid);
    json_.Microseconds("ts", ns);
  }
  void End() {
    json_.EndObject();
    out_.Grown();
  }
  void PutArgument(const Argument& argument) {
    json_.TextKey(argument.key);
    if (const auto* number = std::get_if<std::int64_t>(&argument.value))
      json_.Int(*number);
    else if (const auto* count = std::get_if<std::uint64_t>(&argument.value))
      json_.Unsigned(*count);
    else
      json_.Text(std::get<std::string_view>(argument.value));
  }
  void Arrow(std::string_view phase, std::int64_t tid, std::int64_t ns, std::uint64_t number) {
    Start(phase, tid, ns);
    json_.Word("cat", "wait");
    json_.Word("name", "waits for");
    json_.Unsigned("id", number);
    if (phase == "f") json_.Word("bp", "e");
    End();
  }
  template <typename Value>
  void Metadata(std::string_view what, std::int64_t tid, const Value& value) {
    json_.BeginObject();
    json_.Word("ph", "M");
    json_.Int("pid", pid_);
    json_.Int("tid", tid);
    json_.Text("name", what);
    json_.Key("args");
    json_.BeginObject();
    if constexpr (std::is_integral_v<Value>)
      json_.Int("sort_index", value);
    else
      json_.Text("name", value);
    json_.EndObject();
    End();
  }
  void Introduce(Lane& lane, std::int64_t tid) {
    lane.extra.named = true;
    std::string name = describer_->TrackName(lane.track);
    if (lane.index > 0) name += " (" + std::to_string(lane.index + 1) + ")";
    Metadata("thread_name", tid, name);
    Metadata("thread_sort_index", tid,
             static_cast<std::int64_t>(lane.track.section) * 100'000 +
                 std::min<std::int64_t>(static_cast<std::int64_t>(lane.number), 99'999));
  }

  const ExportRun* run_ = nullptr;
  ExportRank rank_;
  std::optional<Describer> describer_;
  Tracks<ChromeLane> tracks_;
  OutFile out_;
  JsonWriter json_{out_.buffer()};
  std::int64_t pid_ = 0;
};

}  // namespace

std::unique_ptr<Writer> MakeChromeWriter(const WriterOptions&) { return std::make_unique<ChromeWriter>(); }

}  // namespace lockstep::exporters
