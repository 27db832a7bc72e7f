#pragma once
// What collectives and messages were called from (lockstep run --stacks calls): the probe writes return addresses and
// frames of Python, once for each stack (CallStackRecord); here they get their names and go to the spool as stacks.

#include <sys/uio.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/ring_layout.h"
#include "core/spool_layout.h"
#include "runtime/agent/late/stack_tree.h"
#include "runtime/agent/spool/spool_writer.h"
#include "runtime/agent/stacks/process_memory.h"
#include "runtime/agent/stacks/python_frames.h"
#include "runtime/agent/stacks/stack_merge.h"
#include "runtime/agent/stacks/stack_names.h"
#include "runtime/agent/stacks/stack_reader.h"

namespace lockstep::agent {

// Thread: one.
class CallStacks {
 public:
  struct Setup {
    SegmentView segment;
    StackTree& tree;                                    // Of the slot's spool.
    StackReader::Setup reader;                          // Of the program that finds names.
    std::function<void(std::uint64_t rows)> unwritten;  // That are not in the spool.
    std::function<void(std::uint64_t stacks)> unknown;  // Of which nothing could be found out.
  };
  explicit CallStacks(Setup setup);
  CallStacks(const CallStacks&) = delete;
  CallStacks& operator=(const CallStacks&) = delete;

  // Takes complete records of one ring, its oldest first.
  void Take(const RingEntry& entry, std::span<const iovec> parts) noexcept;
  // Writes what has names by now. Never blocks.
  void Tick(SpoolWriter& spool) noexcept;
  // The application has ended: waits for names, so long at most. What has none by then is written without.
  void Finish(SpoolWriter& spool, std::int64_t within_ns) noexcept;

 private:
  using ProcessKey = std::pair<std::uint32_t, std::uint32_t>;  // Index, generation.
  struct Process {
    std::vector<Mapping> mappings;
    std::string maps_lines, interpreter;
    std::int64_t read_ns = 0;
    std::map<std::uint64_t, std::vector<NativeFrame>> names;  // By return address.
  };
  struct Stack {
    ProcessKey process;
    std::uint32_t number = 0;
    std::vector<std::uint64_t> addresses;  // Innermost first, those whose names are wanted.
    std::vector<PythonFrame> python;
  };
  void TakeOne(const RingEntry& entry, const CallStackRecord& record, std::string_view payload);
  Process& ProcessOf(const ProcessKey& key, std::int64_t pid);
  // Whether a frame at this address says something that Python's frames, if there are any, do not.
  static bool Matters(const Process& process, std::uint64_t address, bool has_python);
  void LookAtProcesses();
  void AskForNames();
  void TakeNames();
  // Of stacks at the head of the queue whose names are known, or all.
  void Write(SpoolWriter& spool, bool all, SpoolReserve reserve);
  bool Named(const Stack& stack);

  Setup setup_;
  std::optional<StackNames> names_;  // From the first question on.
  std::map<ProcessKey, Process> processes_;
  std::deque<Stack> waiting_;
  ProcessKey asked_process_;
  std::vector<std::uint64_t> asked_;  // Addresses that names are being looked for.
  std::uint64_t left_out_ = 0;        // Stacks that there is no room for.
  bool over_ = false;
};

}  // namespace lockstep::agent
