// Chrome's JSON trace events: the tracks of Perfetto's export for viewers that read nothing else.

#include <algorithm>
#include <optional>
#include <string>

#include "core/version.h"
#include "export/common/describe.h"
#include "export/common/out_file.h"
#include "export/common/text.h"
#include "export/common/tracks.h"
#include "export/common/writers.h"

namespace lockstep::exporters {
namespace {

struct LaneState {
  bool named = false;
};

class ChromeWriter final : public Writer {
 public:
  bool wants_cluster() const override { return true; }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    LS_CHECK(out_.Open(run.output));
    out_.Put("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    return out_.status();
  }

  Status BeginRank(const ExportRank& rank) override {
    rank_ = rank;
    describer_.emplace(*run_, rank_);
    tracks_ = {};
    pid_ = static_cast<std::int64_t>(rank.rank) + 2;  // The cluster is 1.
    Metadata("process_name", 0, rank.title);
    Metadata("process_sort_index", 0, pid_);
    return out_.status();
  }

  Status Write(const Event& event) override {
    const std::int64_t begin = event.begin_ns - run_->base_ns, end = event.end_ns - run_->base_ns;
    if (IsValue(event.kind)) {
      for (const CounterValue& value : describer_->ValuesOf(event)) {
        Start('C', 0, begin);
        Name(describer_->TrackName(value.track));
        out_.Put(", \"args\": {");
        AppendJsonText(out_.buffer(), value.unit);
        out_.Put(": ");
        AppendInt(out_.buffer(), value.value);
        out_.Put("}}");
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
    Start(slice ? 'X' : 'i', tid, begin);
    if (slice) {
      out_.Put(", \"dur\": ");
      AppendMicroseconds(out_.buffer(), end - begin);
    } else {
      out_.Put(", \"s\": \"t\"");
    }
    Name(describer_->NameOf(event));
    out_.Put(", \"args\": {");
    bool first = true;
    for (const Argument& argument : describer_->ArgumentsOf(event)) PutArgument(argument, first);
    if (!slice && !IsMark(event)) PutArgument({"duration_ns", end - begin}, first);
    out_.Put("}}");
    if (event.flow != 0) Arrow('s', tid, begin, event.flow);
    if (event.flow_target) {
      const auto& ends = run_->flow_ends;
      for (auto at = std::lower_bound(ends.begin(), ends.end(), std::pair(event.instance.instance, std::uint64_t{0}));
           at != ends.end() && at->first == event.instance.instance; ++at)
        Arrow('f', tid, begin, at->second);
    }
    return out_.status();
  }

  Status EndRank() override { return out_.status(); }

  Status Finish() override {
    out_.Put("\n], \"otherData\": {\"lockstep\": \"" LOCKSTEP_VERSION "\", \"run\": ");
    AppendJsonText(out_.buffer(), run_->timeline->Meta("run_id"));
    out_.Put(", \"cluster_ns_at_0\": ");
    AppendInt(out_.buffer(), run_->base_ns);
    out_.Put(", \"left_out\": [");
    for (std::size_t i = 0; i < run_->remarks.size(); ++i) {
      if (i > 0) out_.Put(", ");
      AppendJsonText(out_.buffer(), run_->remarks[i]);
    }
    out_.Put("]}}\n");
    return out_.Close();
  }
  std::uint64_t bytes() const override { return out_.bytes(); }

 private:
  using Lane = Tracks<LaneState>::Lane;

  void Separate() {
    out_.Put(first_ ? "\n" : ",\n");
    first_ = false;
  }
  void Start(char phase, std::int64_t tid, std::int64_t ns) {
    Separate();
    out_.Put("{\"ph\": \"");
    out_.buffer() += phase;
    out_.Put("\", \"pid\": ");
    AppendInt(out_.buffer(), pid_);
    out_.Put(", \"tid\": ");
    AppendInt(out_.buffer(), tid);
    out_.Put(", \"ts\": ");
    AppendMicroseconds(out_.buffer(), ns);
  }
  void Name(std::string_view name) {
    out_.Put(", \"name\": ");
    AppendJsonText(out_.buffer(), name);
  }
  void PutArgument(const Argument& argument, bool& first) {
    if (!first) out_.Put(", ");
    first = false;
    AppendJsonText(out_.buffer(), argument.key);
    out_.Put(": ");
    if (const auto* number = std::get_if<std::int64_t>(&argument.value))
      AppendInt(out_.buffer(), *number);
    else if (const auto* count = std::get_if<std::uint64_t>(&argument.value))
      AppendUnsigned(out_.buffer(), *count);
    else
      AppendJsonText(out_.buffer(), std::get<std::string_view>(argument.value));
  }
  void Arrow(char phase, std::int64_t tid, std::int64_t ns, std::uint64_t number) {
    Start(phase, tid, ns);
    out_.Put(", \"cat\": \"wait\", \"name\": \"waits for\", \"id\": ");
    AppendUnsigned(out_.buffer(), number);
    out_.Put(phase == 'f' ? ", \"bp\": \"e\"}" : "}");
  }
  template <typename Value>
  void Metadata(std::string_view what, std::int64_t tid, const Value& value) {
    Separate();
    out_.Put("{\"ph\": \"M\", \"pid\": ");
    AppendInt(out_.buffer(), pid_);
    out_.Put(", \"tid\": ");
    AppendInt(out_.buffer(), tid);
    Name(what);
    if constexpr (std::is_integral_v<Value>) {
      out_.Put(", \"args\": {\"sort_index\": ");
      AppendInt(out_.buffer(), value);
    } else {
      out_.Put(", \"args\": {\"name\": ");
      AppendJsonText(out_.buffer(), value);
    }
    out_.Put("}}");
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
  Tracks<LaneState> tracks_;
  OutFile out_;
  std::int64_t pid_ = 0;
  bool first_ = true;
};

}  // namespace

std::unique_ptr<Writer> MakeChromeWriter(const WriterOptions&) { return std::make_unique<ChromeWriter>(); }

}  // namespace lockstep::exporters
