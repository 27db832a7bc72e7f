// Samples of stacks for speedscope.app: a profile per rank, and one of the samples that were taken while others waited
// for it. https://www.speedscope.app/file-format-schema.json

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/version.h"
#include "export/common/json_writer.h"
#include "export/common/out_file.h"
#include "export/common/writers.h"
#include "export/stacks/sampled.h"

namespace lockstep::exporters {
namespace {

constexpr std::string_view kLine = "\n  ";

class SpeedscopeWriter final : public Writer {
 public:
  bool Takes(EventKind) const override { return false; }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    LS_CHECK(file_.Open(run.output));
    json_.BeginObject();
    json_.Text("$schema", "https://www.speedscope.app/file-format-schema.json");
    json_.Text("name", run.timeline->run_dir);
    json_.Text("exporter", "lockstep " LOCKSTEP_VERSION);
    json_.Key("profiles");
    json_.BeginArray(kLine);
    return Ok();
  }

  Status BeginRank(const ExportRank& rank) override {
    for (const SampledThread& thread : functions_.Take(*run_, rank)) {
      const std::string title = rank.title + (thread.name.empty() ? "" : " · " + thread.name);
      const auto late = static_cast<std::size_t>(std::count(thread.late.begin(), thread.late.end(), true));
      samples_ += thread.stacks.size();
      Profile(title, thread, false, thread.stacks.size());
      // What the others waited for is what is looked at first.
      if (late > most_late_) {
        most_late_ = late;
        first_shown_ = profiles_;
      }
      if (late > 0 && late < thread.stacks.size()) Profile(title + " · while others waited", thread, true, late);
    }
    return Ok();
  }

  Status Write(const Event&) override { return Ok(); }
  Status EndRank() override { return Ok(); }

  Status Finish() override {
    if (samples_ == 0) return NoSamples(*run_);
    json_.EndArray("\n");
    json_.Unsigned("activeProfileIndex", std::min(first_shown_, profiles_ - 1));
    json_.Key("shared");
    json_.BeginObject();
    json_.Key("frames");
    json_.BeginArray(kLine);
    for (const SampledFunction& function : functions_.functions()) {
      json_.BeginObject();
      json_.Text("name", function.name);
      if (!function.file.empty()) json_.Text("file", function.file);
      if (const std::uint32_t line = function.line(); line > 0) json_.Unsigned("line", line);
      json_.EndObject();
      file_.Grown();
    }
    json_.EndArray("\n");
    json_.EndObject();
    json_.EndObject();
    file_.Put("\n");
    return file_.Close();
  }

  std::uint64_t bytes() const override { return file_.bytes(); }
  std::uint64_t samples() const override { return samples_; }

 private:
  void Profile(const std::string& title, const SampledThread& thread, bool late_only, std::size_t count) {
    ++profiles_;
    json_.BeginObject();
    json_.Word("type", "sampled");
    json_.Text("name", title);
    json_.Word("unit", "none");
    json_.Unsigned("startValue", 0);
    json_.Unsigned("endValue", count);
    json_.Key("samples");
    json_.BeginArray();
    for (std::size_t i = 0; i < thread.stacks.size(); ++i) {
      if (late_only && !thread.late[i]) continue;
      json_.BeginArray();
      for (const std::uint32_t function : thread.stacks[i]) json_.Unsigned(function);
      json_.EndArray();
      file_.Grown();
    }
    json_.EndArray();
    json_.Key("weights");
    json_.BeginArray();
    for (std::size_t i = 0; i < count; ++i) json_.Unsigned(1);
    json_.EndArray();
    json_.EndObject();
    file_.Grown();
  }

  const ExportRun* run_ = nullptr;
  OutFile file_;
  JsonWriter json_{file_.buffer()};
  SampledFunctions functions_;
  std::uint64_t samples_ = 0;
  std::size_t profiles_ = 0, first_shown_ = 0, most_late_ = 0;
};

}  // namespace

std::unique_ptr<Writer> MakeSpeedscopeWriter(const WriterOptions&) { return std::make_unique<SpeedscopeWriter>(); }

}  // namespace lockstep::exporters
