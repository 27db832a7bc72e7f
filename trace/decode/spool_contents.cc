#include "trace/decode/spool_contents.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <tuple>

namespace lockstep::trace {
namespace {

template <typename T>
void AppendAll(std::vector<T>& to, std::span<const std::byte> payload) {
  const std::size_t count = payload.size() / sizeof(T), old = to.size();
  to.resize(old + count);
  if (count != 0) std::memcpy(static_cast<void*>(to.data() + old), payload.data(), count * sizeof(T));
}

template <typename F>
void ForEachLine(std::span<const std::byte> payload, F&& f) {
  std::string_view text(reinterpret_cast<const char*>(payload.data()), payload.size());
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    f(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

std::string_view TakeField(std::string_view& line) {
  const std::size_t tab = line.find('\t');
  const std::string_view field = line.substr(0, tab);
  line = tab == std::string_view::npos ? std::string_view{} : line.substr(tab + 1);
  return field;
}

SpoolRing& RingOf(SpoolContents& contents, SpoolKey key) {
  const auto [at, fresh] = contents.rings.try_emplace(key);
  if (fresh) at->second.order = static_cast<std::uint32_t>(contents.rings.size() - 1);
  return at->second;
}

void AddMeta(SpoolContents& contents, std::span<const std::byte> payload) {
  ForEachLine(payload, [&](std::string_view line) {
    const std::size_t tab = line.find('\t');
    if (tab != std::string_view::npos && tab != 0)
      contents.meta[std::string(line.substr(0, tab))] = std::string(line.substr(tab + 1));
  });
}

}  // namespace

std::uint64_t Number(std::string_view text) {
  std::uint64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

void AddProcess(SpoolContents& contents, ProcessState state) {
  const SpoolKey key{state.index, state.generation};
  if (!contents.processes.contains(key)) contents.process_order.push_back(key);
  contents.processes[key] = std::move(state);
}

void AddBlock(SpoolContents& contents, const SpoolBlock& block) {
  const SpoolKey key{block.header.ring, block.header.generation};
  const std::span<const std::byte> payload = block.payload;
  switch (block.header.kind) {
    case SpoolKind::kMeta:
      AddMeta(contents, payload);
      return;
    case SpoolKind::kProcess:
      if (payload.size() < sizeof(ProcessEntry)) break;
      AddProcess(contents, ParseProcessEntry(payload.data(), key.first));
      return;
    case SpoolKind::kThread: {
      if (payload.size() < sizeof(SpoolThread)) break;
      SpoolThread thread;
      std::memcpy(&thread, payload.data(), sizeof thread);
      SpoolRing& ring = RingOf(contents, key);
      ring.process = {thread.process, thread.process_generation};
      ring.process_known = true;
      ring.thread.tid = thread.tid;
      return;
    }
    case SpoolKind::kRecords: {
      SpoolRing& ring = RingOf(contents, key);
      if (ring.open_at_slot != 0 && block.header.first_slot + payload.size() / kSlotBytes > ring.open_at_slot) {
        ring.thread.left_open = {};
        ring.open_at_slot = 0;
      }
      ring.thread.stream.AddPiece(block.header.first_slot, payload);
      return;
    }
    case SpoolKind::kSnapshots:
      AppendAll(contents.snapshots, payload);
      return;
    case SpoolKind::kBursts:
      AppendAll(contents.bursts, payload);
      return;
    case SpoolKind::kGpuSamples:
      AppendAll(contents.gpu_samples, payload);
      return;
    case SpoolKind::kSamples:
      AppendAll(contents.samples, payload);
      return;
    case SpoolKind::kCallStacks:
      AppendAll(contents.call_stacks, payload);
      return;
    case SpoolKind::kStacks:
      ForEachLine(payload, [&](std::string_view line) {
        SpoolFrame frame;
        frame.number = static_cast<std::uint32_t>(Number(TakeField(line)));
        frame.parent = static_cast<std::uint32_t>(Number(TakeField(line)));
        frame.line = static_cast<std::uint32_t>(Number(TakeField(line)));
        frame.python = Number(TakeField(line)) != 0;
        frame.library = Number(TakeField(line)) != 0;
        frame.file = TakeField(line);
        frame.function = line;
        contents.frames.push_back(std::move(frame));
      });
      return;
    case SpoolKind::kWindows:
      AppendAll(contents.windows, payload);
      return;
    case SpoolKind::kCpu: {
      std::vector<SpoolCpu> rows;
      AppendAll(rows, payload);
      for (const SpoolCpu& row : rows)
        RingOf(contents, {row.ring, row.generation}).thread.cpu.push_back({row.ticks, row.cpu_ns, row.run_delay_ns});
      return;
    }
    case SpoolKind::kLoss:
      ForEachLine(payload, [&](std::string_view line) {
        SpoolLoss loss;
        loss.name = TakeField(line);
        loss.count = Number(TakeField(line));
        loss.first_ticks = Number(TakeField(line));
        loss.last_ticks = Number(TakeField(line));
        loss.detail = line;
        if (!loss.name.empty()) contents.losses.push_back(std::move(loss));
      });
      return;
    case SpoolKind::kEnd:
      if (payload.size() < sizeof(SpoolEnd)) break;
      contents.end.emplace();
      std::memcpy(&*contents.end, payload.data(), sizeof(SpoolEnd));
      return;
    case SpoolKind::kRing:
      if (payload.size() < kOldRingHeaderBytes) break;
      RingOf(contents, key).thread.left_open = ParseRingHeader(payload.data(), payload.size());
      RingOf(contents, key).open_at_slot = block.header.first_slot;
      return;
  }
  ++contents.malformed_blocks;
}

void AddLeftover(SpoolContents& contents, const Leftover& leftover) {
  for (const ProcessState& process : leftover.processes) AddProcess(contents, process);
  std::map<std::uint32_t, std::uint32_t> generation_of;
  for (const ProcessState& process : leftover.processes) generation_of[process.index] = process.generation;
  for (const LeftoverRing& left : leftover.rings) {
    SpoolRing& ring = RingOf(contents, {left.ring, left.generation});
    if (!ring.process_known) {
      ring.process = {left.process, generation_of.contains(left.process) ? generation_of[left.process] : 0};
      ring.process_known = true;
      ring.thread.tid = left.tid;
    }
    // The agent's own last block about it is complete, and its gap is counted there.
    if (!ring.thread.left_open.known || ring.open_at_slot != 0) ring.thread.left_open = left.state;
    if (!left.slots.empty()) ring.thread.stream.AddPiece(left.first_slot, left.slots);
  }
  const auto same = [](const BurstRow& a, const BurstRow& b) {
    return std::tie(a.burst, a.peer_rank, a.transport, a.t1, a.t4) ==
           std::tie(b.burst, b.peer_rank, b.transport, b.t1, b.t4);
  };
  for (const BurstRow& row : leftover.bursts)
    if (std::none_of(contents.bursts.begin(), contents.bursts.end(),
                     [&](const BurstRow& seen) { return same(seen, row); }))
      contents.bursts.push_back(row);
}

}  // namespace lockstep::trace
