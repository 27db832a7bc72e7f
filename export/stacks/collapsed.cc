// Samples of stacks in Brendan Gregg's collapsed format, which flamegraph.pl, inferno and speedscope read: a line per
// stack, "rank 2;main (train.py);collate (train.py) 17", outermost first.

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/printed.h"
#include "export/common/out_file.h"
#include "export/common/text.h"
#include "export/common/writers.h"
#include "export/stacks/sampled.h"

namespace lockstep::exporters {
namespace {

// The format has no escapes: a semicolon would begin another frame.
void AppendFrame(std::string& out, std::string_view name) {
  for (const char c : Printed(name)) out += c == ';' ? ':' : c;
}

class CollapsedWriter final : public Writer {
 public:
  bool Takes(EventKind) const override { return false; }

  Status Begin(const ExportRun& run) override {
    run_ = &run;
    return file_.Open(run.output);
  }

  Status BeginRank(const ExportRank& rank) override {
    for (const SampledThread& thread : functions_.Take(*run_, rank)) {
      std::map<std::vector<std::uint32_t>, std::uint64_t> counts;
      for (const std::vector<std::uint32_t>& stack : thread.stacks) ++counts[stack];
      samples_ += thread.stacks.size();
      std::string begin = "rank " + std::to_string(rank.rank);
      if (!thread.name.empty()) {
        begin += ';';
        AppendFrame(begin, thread.name);
      }
      for (const auto& [stack, count] : counts) {
        std::string line = begin;
        for (const std::uint32_t number : stack) {
          const SampledFunction& function = functions_.functions()[number];
          line += ';';
          AppendFrame(line, function.name);
          if (!function.file.empty()) {
            line += " (";
            AppendFrame(line, function.file);
            line += ')';
          }
        }
        line += ' ';
        AppendUnsigned(line, count);
        line += '\n';
        file_.Put(line);
      }
    }
    return Ok();
  }

  Status Write(const Event&) override { return Ok(); }
  Status EndRank() override { return Ok(); }
  Status Finish() override { return samples_ == 0 ? Status(NoSamples(*run_)) : file_.Close(); }
  std::uint64_t bytes() const override { return file_.bytes(); }
  std::uint64_t samples() const override { return samples_; }

 private:
  const ExportRun* run_ = nullptr;
  OutFile file_;
  SampledFunctions functions_;
  std::uint64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<Writer> MakeCollapsedWriter(const WriterOptions&) { return std::make_unique<CollapsedWriter>(); }

}  // namespace lockstep::exporters
