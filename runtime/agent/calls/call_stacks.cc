#include "runtime/agent/calls/call_stacks.h"

#include <time.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <set>

#include "core/event_clock.h"
#include "core/own_file.h"
#include "runtime/agent/live/record_reader.h"
#include "runtime/agent/rings/segment_entries.h"
#include "runtime/agent/stacks/python_runtime.h"
#include "runtime/agent/stacks/stack_request.h"

namespace lockstep::agent {
namespace {

constexpr std::size_t kMostWaitingStacks = 16384, kMostStackAddresses = 64, kMostStackText = 4096,
                      kMostAskedNames = 512, kMostKnownNames = 65536, kMostNamedProcesses = 64;
constexpr std::int64_t kCodeLastsNs = 1'000'000'000;

std::string_view FieldUpTo(std::string_view& line, char end) {
  const std::size_t at = std::min(line.find(end), line.size());
  const std::string_view field = line.substr(0, at);
  line.remove_prefix(std::min(at + 1, line.size()));
  return field;
}

// As the probe writes them.
std::vector<PythonFrame> PythonFramesOf(std::string_view text) {
  std::vector<PythonFrame> frames;
  while (!text.empty()) {
    std::string_view line = FieldUpTo(text, '\n');
    PythonFrame frame{.last_of_loop = FieldUpTo(line, '\t') == "l"};
    const std::string_view digits = FieldUpTo(line, '\t');
    std::from_chars(digits.data(), digits.data() + digits.size(), frame.line);
    frame.function = FieldUpTo(line, '\t');
    frame.path = line;
    frames.push_back(std::move(frame));
  }
  return frames;
}

// As lockstep-stacks calls what has no name.
NativeFrame Unnamed(const Mapping& mapping, std::uint64_t address) {
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%" PRIx64 "]", address - mapping.begin + mapping.offset);
  return {.module = mapping.path, .function = "[" + std::string(BaseName(mapping.path)) + offset};
}

}  // namespace

CallStacks::CallStacks(Setup setup) : setup_(std::move(setup)) {}

void CallStacks::Take(const RingEntry& entry, std::span<const iovec> parts) noexcept {
  if (over_) return;
  try {
    const RecordReader reader(parts);
    RecordHead head;
    for (std::size_t at = 0; reader.Copy(at, &head, sizeof head) && head.slots != 0;
         at += std::size_t{head.slots} * kSlotBytes) {
      CallStackRecord record;
      if (head.kind != RecordKind::kCallStack || !reader.Copy(at, &record, sizeof record)) continue;
      const std::uint64_t bytes = record.addresses * std::uint64_t{8} + record.text_bytes;
      if (record.number == 0 || record.addresses > kMostStackAddresses || record.text_bytes > kMostStackText ||
          bytes > (std::size_t{head.slots} - 1) * kSlotBytes)
        continue;
      std::string payload(bytes, '\0');
      if (reader.Copy(at + sizeof record, payload.data(), payload.size())) TakeOne(entry, record, payload);
    }
  } catch (const std::exception&) {
    over_ = true;  // No memory: calls have no stacks then, and nothing else changes.
  }
}

void CallStacks::TakeOne(const RingEntry& entry, const CallStackRecord& record, std::string_view payload) {
  if (waiting_.size() >= kMostWaitingStacks || entry.process >= kMaxProcesses) {
    ++left_out_;
    return;
  }
  const ProcessEntry& of = setup_.segment.processes()[entry.process];
  Stack stack{.process = {entry.process, of.generation}, .number = record.number};
  stack.python = PythonFramesOf(payload.substr(record.addresses * std::size_t{8}));
  if (processes_.size() < kMostNamedProcesses || processes_.contains(stack.process)) {
    const Process& process = ProcessOf(stack.process, of.pid);
    for (std::uint32_t i = 0; i < record.addresses; ++i) {
      std::uint64_t address = 0;
      std::memcpy(&address, payload.data() + i * sizeof address, sizeof address);
      if (Matters(process, address, !stack.python.empty())) stack.addresses.push_back(address);
    }
  }
  waiting_.push_back(std::move(stack));
}

// Read anew for a stack whose code may have been loaded since: stacks are few.
CallStacks::Process& CallStacks::ProcessOf(const ProcessKey& key, std::int64_t pid) {
  Process& process = processes_[key];
  const std::int64_t now_ns = RawNs();
  if (pid <= 0 || (process.read_ns != 0 && now_ns - process.read_ns < kCodeLastsNs)) return process;
  process.read_ns = now_ns;
  std::vector<Mapping> mappings = MappingsOf(static_cast<pid_t>(pid));
  if (mappings.empty()) return process;  // It has ended. What was known of it is still true.
  process.mappings = std::move(mappings);
  process.maps_lines = CodeLinesOf(process.mappings);
  process.interpreter = FindPython(process.mappings).path;
  return process;
}

// What is mapped is read while a process begins: it may have ended when its first stack comes.
void CallStacks::LookAtProcesses() {
  const std::span<ProcessEntry> used = UsedProcesses(setup_.segment);
  for (std::size_t i = 0; i < used.size() && processes_.size() < kMostNamedProcesses; ++i) {
    if (used[i].state.load(std::memory_order_acquire) != SlotState::kActive) continue;
    const ProcessKey key{static_cast<std::uint32_t>(i), used[i].generation};
    if (!processes_.contains(key)) ProcessOf(key, used[i].pid);
  }
}

bool CallStacks::Matters(const Process& process, std::uint64_t address, bool has_python) {
  const Mapping* mapping = MappingAt(process.mappings, address);
  if (mapping == nullptr) return false;
  if (BaseName(mapping->path).starts_with("liblockstep")) return false;
  return !has_python || (mapping->path != process.interpreter && !IsLibrary(mapping->path) && !mapping->path.empty());
}

bool CallStacks::Named(const Stack& stack) {
  if (stack.addresses.empty()) return true;
  const Process& process = processes_[stack.process];
  if (process.names.size() > kMostKnownNames) return true;  // No more are looked for.
  return std::all_of(stack.addresses.begin(), stack.addresses.end(),
                     [&](std::uint64_t address) { return process.names.contains(address); });
}

// A request of threads that have a place and no stack: what is told of each is one frame, and those inlined in it.
void CallStacks::AskForNames() {
  if (waiting_.empty() || (names_ && names_->busy())) return;
  asked_.clear();
  asked_process_ = waiting_.front().process;
  std::set<std::uint64_t> wanted;
  const Process& process = processes_[asked_process_];
  if (process.names.size() > kMostKnownNames) return;
  for (const Stack& stack : waiting_) {
    if (stack.process != asked_process_ || wanted.size() >= kMostAskedNames) continue;
    for (const std::uint64_t address : stack.addresses)
      if (!process.names.contains(address)) wanted.insert(address);
  }
  if (wanted.empty()) return;
  asked_.assign(wanted.begin(), wanted.end());
  std::string request;
  const auto append = [&](const auto& value) { request.append(reinterpret_cast<const char*>(&value), sizeof value); };
  append(StackRequest{
      .process = 0, .threads = static_cast<std::uint32_t>(asked_.size()), .maps_bytes = process.maps_lines.size()});
  request += process.maps_lines;
  for (std::size_t i = 0; i < asked_.size(); ++i) {
    ThreadRequest one{.thread = static_cast<std::uint32_t>(i + 1)};  // 0 is none.
    one.registers.value[kCounterRegister] = asked_[i] - 1;           // Inside the call, not behind it.
    append(one);
  }
  if (!names_) names_.emplace(setup_.reader.program, setup_.reader.restore_signals);
  if (names_->Ask(request)) return;
  // There is no program that could be asked.
  for (const std::uint64_t address : asked_) processes_[asked_process_].names[address] = {};
  asked_.clear();
}

void CallStacks::TakeNames() {
  if (!names_ || asked_.empty()) return;
  const std::optional<std::string> answer = names_->Answer();
  if (!answer) return;
  Process& process = processes_[asked_process_];
  for (const std::uint64_t address : asked_) process.names[address] = {};
  for (NativeStack& stack : NativeStacksOf(*answer))
    if (stack.thread > 0 && static_cast<std::size_t>(stack.thread) <= asked_.size())
      process.names[asked_[static_cast<std::size_t>(stack.thread - 1)]] = std::move(stack.frames);
  asked_.clear();
}

void CallStacks::Write(SpoolWriter& spool, bool all, SpoolReserve reserve) {
  std::vector<SpoolCallStack> rows;
  while (!waiting_.empty() && (all || Named(waiting_.front()))) {
    const Stack stack = std::move(waiting_.front());
    waiting_.pop_front();
    const Process& process = processes_[stack.process];
    std::vector<NativeFrame> native;
    for (const std::uint64_t address : stack.addresses) {
      const auto at = process.names.find(address);
      if (at != process.names.end() && !at->second.empty())
        native.insert(native.end(), at->second.begin(), at->second.end());
      else if (const Mapping* mapping = MappingAt(process.mappings, address); mapping != nullptr)
        native.push_back(Unnamed(*mapping, address));
    }
    const std::uint32_t number = setup_.tree.Add(MergeStacks(native, stack.python, process.interpreter));
    if (number == 0)
      ++left_out_;  // Nothing is known of it.
    else
      rows.push_back({stack.process.first, stack.process.second, stack.number, number});
  }
  setup_.tree.Write(spool, reserve, setup_.unwritten);
  constexpr std::size_t kRowsPerBlock = kSpoolBlockBytes / sizeof(SpoolCallStack);
  for (std::size_t at = 0; at < rows.size(); at += kRowsPerBlock) {
    const std::size_t count = std::min(kRowsPerBlock, rows.size() - at);
    if (!spool.Append({SpoolKind::kCallStacks}, rows.data() + at, count * sizeof(SpoolCallStack), reserve))
      setup_.unwritten(count);
  }
}

void CallStacks::Tick(SpoolWriter& spool) noexcept {
  if (over_) return;
  try {
    LookAtProcesses();
    TakeNames();
    if (!waiting_.empty()) {
      Write(spool, false, SpoolReserve::kNone);
      AskForNames();
    }
  } catch (const std::exception&) {
    over_ = true;
  }
}

void CallStacks::Finish(SpoolWriter& spool, std::int64_t within_ns) noexcept {
  if (over_) return;
  const std::int64_t until_ns = RawNs() + within_ns;
  constexpr timespec kPause{0, 2'000'000};
  for (Tick(spool); !over_ && !waiting_.empty() && !asked_.empty() && RawNs() < until_ns; Tick(spool))
    ::nanosleep(&kPause, nullptr);
  if (over_) return;
  try {
    Write(spool, true, SpoolReserve::kHalf);
    if (left_out_ != 0) setup_.unknown(left_out_);
    names_.reset();
  } catch (const std::exception&) {
    over_ = true;
  }
}

}  // namespace lockstep::agent
