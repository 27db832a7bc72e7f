#pragma once
// A program on the tests' GPU (tests/fakes/cupti) with the CUPTI source in it, and what it wrote into its rings.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/gpu_records.h"
#include "tests/unit/eventually.h"
#include "tests/unit/runtime/probe/probe_child.h"

namespace lockstep::cupti {

inline const std::string kGpuLibrary = LOCKSTEP_BUILD_DIR "/liblockstep-gpu.so";
inline constexpr char kJob[] = LOCKSTEP_BUILD_DIR "/tests/gpu_job";
inline constexpr char kDriverless[] = LOCKSTEP_BUILD_DIR "/tests/cupti_driverless";
inline constexpr char kReplay[] = LOCKSTEP_BUILD_DIR "/tests/gpu_replay";

struct Outcome {
  int status = 0;
  std::vector<std::string> lines;
  std::string errors;
  std::vector<probe::TestRecord> records;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> strings;

  std::size_t Count(RecordKind kind, int flags = -1) const {
    return static_cast<std::size_t>(std::count_if(records.begin(), records.end(), [&](const probe::TestRecord& record) {
      return record.kind == kind && (flags < 0 || record.flags == flags);
    }));
  }
  std::string Name(const probe::TestRecord& record, std::uint32_t id) const {
    const auto found = strings.find({record.ring, id});
    return found != strings.end() ? found->second : "";
  }
  std::map<std::string, std::uint64_t> Losses() const {
    std::map<std::string, std::uint64_t> losses;
    for (const probe::TestRecord& record : records)
      if (record.kind == RecordKind::kLoss)
        losses[Name(record, record.As<LossRecord>().name)] += record.As<LossRecord>().count;
    return losses;
  }
  std::string Fact() const {
    std::string all;
    for (const probe::TestRecord& record : records)
      if (record.kind == RecordKind::kFact) all += record.Text() + "\n";
    return all;
  }
};

class CuptiSource : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::string(LOCKSTEP_SANITIZERS) != "") GTEST_SKIP() << "preloading does not go with sanitizers";
    probe::TestSegmentOptions options;
    options.bytes = std::uint64_t{64} << 20;
    options.main_ring_slots = options.other_ring_slots = 1 << 17;
    segment_ = std::make_unique<probe::TestSegment>(options);
  }
  std::vector<std::string> Environment() const {
    return {std::string("LD_PRELOAD=") + probe::kProbe + ":" + kGpuLibrary, "CUDA_INJECTION64_PATH=" + kGpuLibrary};
  }
  Outcome Start(const std::vector<std::string>& arguments, const std::vector<std::string>& more = {},
                const char* program = kJob, bool preload = true) {
    Outcome run;
    std::vector<std::string> environment = Environment();
    if (!preload) environment[0] = "LOCKSTEP_NOTHING=1";
    environment.insert(environment.end(), more.begin(), more.end());
    {
      probe::ProbeChild child(segment_->path(), arguments, environment, program);
      for (std::string line = child.Line(); !line.empty(); line = child.Line()) run.lines.push_back(line);
      run.errors = child.Errors();
      run.status = child.Wait();
    }
    Collect(run);
    return run;
  }
  void Collect(Outcome& run) {
    run.records = segment_->ReadAll();
    for (const probe::TestRecord& record : run.records)
      if (record.kind == RecordKind::kString) run.strings[{record.ring, record.As<StringRecord>().id}] = record.Text();
  }
  ProcessEntry& Process(std::uint32_t index = 0) { return segment_->view().processes()[index]; }

  std::unique_ptr<probe::TestSegment> segment_;
};

}  // namespace lockstep::cupti
