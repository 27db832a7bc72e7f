#pragma once
// A child process with the probe preloaded, and the ranges that it left in the rings.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <map>
#include <utility>

#include "tests/unit/runtime/probe/test_segment.h"

namespace lockstep::probe {

inline constexpr char kProbe[] = LOCKSTEP_BUILD_DIR "/liblockstep.so";
inline constexpr char kScenarios[] = LOCKSTEP_BUILD_DIR "/tests/probe_scenarios";

class ProbeChild {
 public:
  ProbeChild(const std::string& segment, std::vector<std::string> arguments,
             const std::vector<std::string>& more_env = {}, const char* program = kScenarios) {
    int in[2], out[2], err[2];
    if (pipe(in) != 0 || pipe(out) != 0 || pipe(err) != 0) std::abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      for (int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) close(fd);
      setenv("LOCKSTEP_SEGMENT", segment.c_str(), 1);
      // A sanitizer's runtime must come first: there the programs are linked with the probe.
      if (std::strcmp(LOCKSTEP_SANITIZERS, "") == 0) setenv("LD_PRELOAD", kProbe, 1);
      for (const std::string& each : more_env) putenv(strdup(each.c_str()));
      std::vector<char*> argv{strdup(program)};
      for (const std::string& each : arguments) argv.push_back(strdup(each.c_str()));
      argv.push_back(nullptr);
      execv(program, argv.data());
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    in_ = in[1];
    out_ = fdopen(out[0], "r");
    err_ = fdopen(err[0], "r");
  }
  ~ProbeChild() {
    if (in_ >= 0) close(in_);
    fclose(out_);
    fclose(err_);
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  std::string Line() {
    char line[256] = {};
    return std::fgets(line, sizeof line, out_) != nullptr ? std::string(line, std::strcspn(line, "\n")) : "";
  }
  std::string Errors() {
    std::string all;
    for (int c; (c = std::fgetc(err_)) != EOF;) all += static_cast<char>(c);
    return all;
  }
  void Go() { ASSERT_EQ(write(in_, "\n", 1), 1); }
  void Kill() { kill(pid_, SIGKILL); }
  // Wait status.
  int Wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  FILE* out_ = nullptr;
  FILE* err_ = nullptr;
};

inline int RunScenario(TestSegment& segment, std::vector<std::string> arguments,
                       const std::vector<std::string>& env = {}) {
  return ProbeChild(segment.path(), std::move(arguments), env).Wait();
}

// Range records with their names, by ring.
struct NamedRange {
  std::string name;
  RangeRecord range;
  std::uint8_t flags;
};
inline std::vector<NamedRange> RangesOf(TestSegment& segment, RecordKind kind = RecordKind::kRange) {
  std::vector<NamedRange> ranges;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::string> names;
  for (const TestRecord& record : segment.ReadAll()) {
    if (record.kind == RecordKind::kString) names[{record.ring, record.As<StringRecord>().id}] = record.Text();
    if (record.kind != kind) continue;
    const auto range = record.As<RangeRecord>();
    EXPECT_TRUE(range.name == 0 || names.count({record.ring, range.name}) != 0) << "name not written before its use";
    ranges.push_back({names[{record.ring, range.name}], range, record.flags});
  }
  return ranges;
}

}  // namespace lockstep::probe
