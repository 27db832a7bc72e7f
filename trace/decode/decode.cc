// Converts the blocks of a spool, and what its segment still holds, to one set of tables per process.

#include "trace/decode/decode.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string_view>
#include <utility>

#include "trace/decode/decode_gpu_process.h"
#include "trace/decode/decode_stacks.h"
#include "trace/decode/process_decoder.h"
#include "trace/decode/spool_contents.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::trace {
namespace {

using schema::kNone;
using schema::kNoTime;

// One process of the slot and its rings.
struct ProcessPlan {
  SpoolKey key;
  ProcessState state;
  std::vector<SpoolRing*> rings;
  ProcessIdentity identity;
};

std::vector<ProcessPlan> PlanProcesses(SpoolContents& contents) {
  std::vector<SpoolRing*> rings;
  for (auto& [key, ring] : contents.rings) {
    rings.push_back(&ring);
    // The records are there although the process's kProcess block is lost.
    if (!contents.processes.contains(ring.process))
      AddProcess(contents, {.index = ring.process.first, .generation = ring.process.second});
  }
  std::sort(rings.begin(), rings.end(), [](const SpoolRing* a, const SpoolRing* b) { return a->order < b->order; });
  std::vector<ProcessPlan> plans;
  for (const SpoolKey& key : contents.process_order) {
    ProcessPlan plan{key, contents.processes[key], {}, {}};
    for (SpoolRing* ring : rings)
      if (ring->process == key) plan.rings.push_back(ring);
    if (!plan.rings.empty() || plan.state.mpi_used != 0 || plan.state.lockstep_used != 0 || plan.state.nvtx_used != 0 ||
        plan.state.torch_used != 0 || plan.state.cupti_used != 0 || plan.state.nccl_used != 0)
      plans.push_back(std::move(plan));
  }
  std::vector<const ProcessState*> states;
  for (const ProcessPlan& plan : plans) states.push_back(&plan.state);
  const std::vector<ProcessIdentity> identities = IdentifyProcesses(states, contents.meta);
  for (std::size_t i = 0; i < plans.size(); ++i) plans[i].identity = identities[i];
  // Ranks first, in their order; of processes that are all the slot's, the one with the slot's variables comes first.
  std::stable_sort(plans.begin(), plans.end(), [](const ProcessPlan& a, const ProcessPlan& b) {
    const auto place = [](const ProcessPlan& p) {
      const bool of_slot = p.identity.proof == RankProof::kSlot;
      return std::pair(of_slot ? p.state.world_rank < 0 : p.identity.rank < 0, of_slot ? 0 : p.identity.rank);
    };
    return place(a) < place(b);
  });
  return plans;
}

void AddClockRows(schema::RankTables& tables, const SpoolContents& contents, bool bursts) {
  for (const ClockSnapshot& row : contents.snapshots)
    tables.clock_snapshots.Append({.ticks = row.ticks,
                                   .raw_ns = row.raw_ns,
                                   .monotonic_ns = row.monotonic_ns,
                                   .realtime_ns = row.realtime_ns,
                                   .width_ns = row.width_ns});
  if (!bursts) return;
  for (const BurstRow& row : contents.bursts)
    tables.clock_bursts.Append({.burst = row.burst,
                                .peer_rank = row.peer_rank,
                                .transport = static_cast<std::uint8_t>(row.transport),
                                .purpose = static_cast<std::uint8_t>(row.purpose),
                                .send_ns = row.t1,
                                .peer_receive_ns = row.t2,
                                .peer_send_ns = row.t3,
                                .receive_ns = row.t4});
}

// Decodes the spool of one slot and what its segment still held.
class SlotDecoder {
 public:
  SlotDecoder(const SpoolFile& spool, const std::string& segment_path) : spool_(spool) {
    for (const SpoolBlock& block : spool.blocks()) AddBlock(contents_, block);
    if (!segment_path.empty()) TakeLeftover(segment_path);
    const std::string mode = Meta("clock_mode");
    raw_clock_ = !mode.empty() ? mode == "raw"
                               : leftover_.found && leftover_.clock_mode == static_cast<std::uint32_t>(ClockMode::kRaw);
    map_.emplace(contents_.snapshots, raw_clock_,
                 raw_clock_ ? 1 : TickRateOfThisMachine(contents_.meta, contents_.snapshots.size()));
    plans_ = PlanProcesses(contents_);
  }

  Decoded Decode() {
    decoded_.ended = contents_.end.has_value();
    decoded_.bad_blocks = spool_.bad_blocks() + contents_.malformed_blocks + (spool_.cut() ? 1 : 0);
    for (const LeftoverRing& ring : leftover_.rings) {
      RecordStream counter;
      counter.AddPiece(0, ring.slots);
      while (!counter.Next().empty()) ++decoded_.recovered_from_rings;
    }
    decoded_.processes.reserve(plans_.size() + 1);  // Decoders refer to the tables.
    for (std::size_t i = 0; i == 0 || i < plans_.size(); ++i) DecodeProcess(i);
    AddWindows();
    // After all processes, because the main one's file also lists the others and contains the slot's losses.
    for (std::size_t i = 1; i < plans_.size(); ++i) AddProcessRow(0, i, -1);
    std::vector<const GpuRecords*> gpus;
    for (const auto& decoder : decoders_) gpus.push_back(&decoder->gpu());
    AddGpuSamples(TablesOf(0), *map_, contents_.gpu_samples, gpus);
    AddSamples();
    AddSlotLosses();
    return std::move(decoded_);
  }

 private:
  schema::RankTables& TablesOf(std::size_t process) { return decoded_.processes[process].tables; }
  // "" if the spool does not contain it.
  std::string Meta(const std::string& key) const {
    const auto at = contents_.meta.find(key);
    return at == contents_.meta.end() ? std::string() : at->second;
  }
  // kNoTime for 0.
  std::int64_t Ns(std::uint64_t ticks) const { return ticks == 0 ? kNoTime : TickConverter(*map_).Ns(ticks); }

  void TakeLeftover(const std::string& segment_path) {
    std::vector<SpooledRing> spooled;
    for (const auto& [key, ring] : contents_.rings)
      spooled.push_back({key.first, key.second, ring.thread.stream.end_slot()});
    leftover_ = ReadLeftover(segment_path, spooled);
    // A segment of another run must not be mixed in; its name may have been used again.
    const auto agent = contents_.meta.find("agent_pid");
    if (leftover_.found && agent != contents_.meta.end() && agent->second != std::to_string(leftover_.agent_pid))
      leftover_ = {};
    AddLeftover(contents_, leftover_);
  }

  // Decodes process `i` of the plan into tables of its own; without processes, makes the tables of a slot in which
  // nothing was used.
  void DecodeProcess(std::size_t i) {
    DecodedProcess& process = decoded_.processes.emplace_back();
    process.process = static_cast<std::uint32_t>(i);
    decoders_.push_back(std::make_unique<ProcessDecoder>(process.tables, *map_));
    ProcessDecoder& decoder = *decoders_.back();
    stack_rows_.emplace_back(decoder, process.tables.stacks, contents_.frames);
    if (i < plans_.size()) {
      const ProcessPlan& plan = plans_[i];
      AddMetaRows(decoder, &plan);
      std::vector<DecoderThread> threads;
      for (SpoolRing* ring : plan.rings) threads.push_back(std::move(ring->thread));
      decoder.gpu().Of(plan.state.gpu_vendor);
      decoder.UseCallStacks(CallStackRows(stack_rows_.back(), plan.key, contents_.call_stacks));
      const std::uint64_t slot_end = contents_.end ? contents_.end->ticks : 0;
      decoder.Decode(std::move(threads), 0, plan.state.pid,
                     plan.state.end_ticks != 0 ? plan.state.end_ticks : slot_end);
      process.identity = plan.identity;
      const bool told = plan.identity.proof != RankProof::kSlot || plan.state.world_rank >= 0;
      const std::int32_t nccl_rank = told ? -1 : RankFromNccl(process.tables, contents_.meta);
      AddProcessRow(i, i, nccl_rank);
      if (nccl_rank >= 0) {
        decoder.AddFact("rank", std::to_string(nccl_rank));
        decoder.AddFact("rank_source", NameOf(schema::RankSource::kNccl));
      }
      decoder.AddLoss(Loss::kNoRing, plan.state.dropped_no_ring);
      decoder.AddLoss(Loss::kRangeUnbalanced, plan.state.range_unbalanced);
      decoder.AddLoss(Loss::kRangeTooDeep, plan.state.range_too_deep);
      decoder.AddLoss(Loss::kRequestUnknown, plan.state.request_table_full, "the probe's table of requests was full");
      AddGpuLosses(decoder, process.tables, *map_, plan.state, slot_end);
      std::uint64_t extrapolated = decoder.extrapolated();
      if (!raw_clock_ && contents_.snapshots.empty())
        extrapolated += process.tables.mpi_calls.rows() + process.tables.ranges.rows();
      decoder.AddLoss(Loss::kClockExtrapolated, extrapolated);
    } else {
      AddMetaRows(decoder, nullptr);
    }
    AddClockRows(process.tables, contents_, i == 0);
  }

  static std::string_view NameOf(std::uint8_t rank_source) {
    const auto& names = schema::RankSource::kValues;  // Their codes are 0, 1, 2, ...
    return names[rank_source < std::size(names) ? rank_source : 0].name;
  }

  void AddMetaRows(ProcessDecoder& decoder, const ProcessPlan* plan) const {
    std::map<std::string, std::string> meta = contents_.meta;
    if (contents_.end) {
      const SpoolEnd& end = *contents_.end;
      meta.try_emplace("exit_code", end.signal == 0 ? std::to_string(end.exit_code) : "");
      meta.try_emplace("exit_signal", end.signal != 0 ? std::to_string(end.signal) : "");
      if (end.app_cpu_ns >= 0) meta.try_emplace("app_cpu_ns", std::to_string(end.app_cpu_ns));
      if (end.agent_cpu_ns >= 0) meta.try_emplace("agent_cpu_ns", std::to_string(end.agent_cpu_ns));
    }
    if (plan != nullptr) {
      const ProcessState* process = &plan->state;
      const ProcessIdentity& identity = plan->identity;
      // The agent recorded its child's end. If several ranks are in the slot, that child was a launcher.
      const auto ranks = std::ranges::count_if(plans_, [](const ProcessPlan& p) { return p.identity.rank >= 0; });
      if (identity.proof > RankProof::kSlot && ranks > 1 && Meta("pid") != std::to_string(process->pid))
        for (const char* key : {"exit_code", "exit_signal"}) meta.erase(key);
      if (identity.proof != RankProof::kSlot) {
        // The launcher's answer is kept: merge uses it if several groups have the same ranks.
        const std::string size = identity.world_size > 0 ? std::to_string(identity.world_size) : Meta("world_size");
        if (Meta("rank_source") == "env" &&
            (Meta("rank") != std::to_string(identity.rank) || Meta("world_size") != size)) {
          meta["launch_rank"] = Meta("rank");
          meta["launch_world_size"] = Meta("world_size");
        }
        meta.erase("rank");
        meta.erase("rank_source");
        if (identity.rank >= 0) {
          meta["rank"] = std::to_string(identity.rank);
          meta["rank_source"] = trace::NameOf(identity.proof);
        } else {
          meta["process_role"] = identity.earlier ? "rank of an earlier world" : "helper";
        }
        if (!size.empty()) meta["world_size"] = size;
        if (!identity.instead_of.empty()) meta["rank_instead_of"] = identity.instead_of;
      } else if (process->world_rank >= 0 &&
                 (!meta.contains("rank") || (process->rank_source == schema::RankSource::kMpi &&
                                             meta["rank"] == std::to_string(process->world_rank)))) {
        meta["rank"] = std::to_string(process->world_rank);
        meta["rank_source"] = NameOf(process->rank_source);
      }
      if (process->pid > 0) meta["pid"] = std::to_string(process->pid);
      if (process->nvtx_used != 0) meta["nvtx_objects"] = std::to_string(process->nvtx_used);
    }
    for (const auto& [key, value] : meta) decoder.AddFact(key, value);
  }

  static std::int32_t RankOf(const ProcessPlan& plan) {
    return plan.identity.proof == RankProof::kSlot ? plan.state.world_rank : plan.identity.rank;
  }
  static std::uint8_t SourceOf(const ProcessPlan& plan) {
    switch (plan.identity.proof) {
      case RankProof::kMpi:
        return schema::RankSource::kMpi;
      case RankProof::kGroup:
        return schema::RankSource::kGroup;
      case RankProof::kEnvironment:
        return schema::RankSource::kEnvironment;
      case RankProof::kSlot:
        return plan.state.rank_source;
      case RankProof::kNone:
        break;
    }
    return schema::RankSource::kNone;
  }

  // Adds a row for process `i` to the tables of process `into`. `nccl_rank`: the rank that NCCL gave it, -1 none.
  void AddProcessRow(std::size_t into, std::size_t i, std::int32_t nccl_rank) {
    const ProcessState& state = plans_[i].state;
    const Extent& life = decoders_[i]->life();
    std::uint8_t ended = schema::ProcessEnd::kUnknown;
    std::int32_t code = 0;
    const bool direct_child = plans_.size() == 1 || Meta("pid") == std::to_string(state.pid);
    if (contents_.end && direct_child) {
      ended = contents_.end->signal != 0 ? schema::ProcessEnd::kSignal : schema::ProcessEnd::kExit;
      code = contents_.end->signal != 0 ? contents_.end->signal : contents_.end->exit_code;
    } else if (state.end_ticks != 0) {
      ended = schema::ProcessEnd::kExit;
    }
    TablesOf(into).processes.Append(
        {.process = static_cast<std::uint32_t>(i),
         .pid = state.pid,
         .parent_pid = state.parent_pid,
         .exe = decoders_[into]->Intern(state.exe),
         .begin_ns = state.begin_ticks != 0 ? Ns(state.begin_ticks) : life.first_ns,
         .end_ns = state.end_ticks != 0 ? Ns(state.end_ticks) : life.last_ns,
         .world_rank = nccl_rank >= 0 ? nccl_rank : RankOf(plans_[i]),
         .rank_source = nccl_rank >= 0 ? std::uint8_t{schema::RankSource::kNccl} : SourceOf(plans_[i]),
         .ended = ended,
         .end_code = code,
         .mpi_thread_level = state.mpi_thread_level});
  }

  // The latest process that began before `i` did and for which `is` holds; -1: there is none.
  template <typename F>
  std::ptrdiff_t LatestBefore(std::size_t i, F&& is) const {
    std::ptrdiff_t found = -1;
    for (std::size_t j = 0; i < plans_.size() && j < plans_.size(); ++j) {
      const ProcessState& each = plans_[j].state;
      if (each.begin_ticks == 0 || each.begin_ticks >= plans_[i].state.begin_ticks || !is(each)) continue;
      if (found < 0 || each.begin_ticks > plans_[static_cast<std::size_t>(found)].state.begin_ticks)
        found = static_cast<std::ptrdiff_t>(j);
    }
    return found;
  }

  // What a process did to its switch, also as the program that it was before an exec.
  std::vector<ProcessDecoder::WindowMark> OwnSwitches(std::size_t i) const {
    std::vector<ProcessDecoder::WindowMark> own = decoders_[i]->window_marks();
    const std::ptrdiff_t former = LatestBefore(i, [&](const ProcessState& each) {
      return each.pid == plans_[i].state.pid && each.parent_pid == plans_[i].state.parent_pid;
    });
    if (former >= 0) {
      const std::vector<ProcessDecoder::WindowMark> before = OwnSwitches(static_cast<std::size_t>(former));
      own.insert(own.end(), before.begin(), before.end());
    }
    return own;
  }

  // All that turned it: until a process decides for the first time, it goes with the one that started it, if that is
  // recorded (BeginWindow in runtime/probe/window.cc).
  std::vector<ProcessDecoder::WindowMark> SwitchesOf(std::size_t i) const {
    std::vector<ProcessDecoder::WindowMark> marks = OwnSwitches(i);
    std::int64_t decided_ns = INT64_MAX;
    for (const ProcessDecoder::WindowMark& mark : marks)
      if (mark.cause != WindowCause::kTimer && mark.cause != WindowCause::kSizeLimit)
        decided_ns = std::min(decided_ns, mark.ns);
    const std::ptrdiff_t starter = LatestBefore(i, [&](const ProcessState& each) {
      const bool ended = each.end_ticks != 0 && each.end_ticks < plans_[i].state.begin_ticks;
      return each.pid == plans_[i].state.parent_pid && !ended;
    });
    if (starter >= 0)
      for (const ProcessDecoder::WindowMark& mark : SwitchesOf(static_cast<std::size_t>(starter)))
        if (mark.ns < decided_ns) marks.push_back(mark);
    return marks;
  }

  // Windows that were over when a process began are not its own.
  void ForgetBefore(std::size_t i, std::vector<ProcessDecoder::WindowMark>& marks) const {
    if (i >= plans_.size() || plans_[i].state.begin_ticks == 0) return;
    const std::int64_t begin_ns = Ns(plans_[i].state.begin_ticks);
    const auto later = std::find_if(marks.begin(), marks.end(), [&](const auto& mark) { return mark.ns > begin_ns; });
    if (later == marks.begin()) return;
    if (std::any_of(later - 1, marks.end(), [](const auto& mark) { return mark.on; }))
      marks.erase(marks.begin(), later - 1);
  }

  // Recording is a switch per process; what the agent switches, it switches for all.
  void AddWindows() {
    std::vector<ProcessDecoder::WindowMark> of_agent;
    Extent life{kNoTime, contents_.end ? TickConverter(*map_).Ns(contents_.end->ticks) : kNoTime};
    TickConverter clock(*map_);
    for (const SpoolWindow& row : contents_.windows)
      of_agent.push_back(
          {clock.Ns(row.ticks), row.step, static_cast<WindowCause>(row.cause), (row.on & 1) != 0, row.cut != 0});
    for (const auto& decoder : decoders_) life.Cover(decoder->life());
    // Spools without meta key `recording` were recorded from begin to end.
    const auto recording = contents_.meta.find("recording");
    const bool all = recording == contents_.meta.end() || recording->second == "all";
    for (std::size_t i = 0; i < decoders_.size(); ++i) {
      std::vector<ProcessDecoder::WindowMark> marks = SwitchesOf(i);
      marks.insert(marks.end(), of_agent.begin(), of_agent.end());
      std::stable_sort(marks.begin(), marks.end(), [](const auto& a, const auto& b) { return a.ns < b.ns; });
      if (life.first_ns != kNoTime && all && (marks.empty() || !marks.front().on))
        marks.insert(marks.begin(), {std::min(life.first_ns, marks.empty() ? life.first_ns : marks.front().ns), -1,
                                     WindowCause::kRunBegin, true, false});
      ForgetBefore(i, marks);
      decoders_[i]->MakeWindows(marks, life.last_ns);
      decoders_[i]->CountLosses();
      std::uint64_t cut = 0;
      for (const std::uint8_t each : TablesOf(i).windows.cut) cut += each;
      // A helper's windows are those of the process that it goes with, whose loss it is.
      if (i == 0 || !decoders_[i]->window_marks().empty()) decoders_[i]->AddLoss(Loss::kWindowCut, cut);
    }
  }

  // Each in the file of the process whose thread it is of.
  void AddSamples() {
    if (contents_.samples.empty()) return;
    std::map<std::int64_t, std::size_t> process_of;
    for (std::size_t i = plans_.size(); i-- > 0;) {
      process_of[plans_[i].state.pid] = i;
      for (const std::int64_t tid : TablesOf(i).threads.tid) process_of[tid] = i;
    }
    std::vector<std::vector<SpoolStackSample>> samples(decoded_.processes.size());
    for (const SpoolStackSample& sample : contents_.samples) {
      const auto of = process_of.find(sample.tid);
      samples[of == process_of.end() ? 0 : of->second].push_back(sample);
    }
    std::uint64_t unknown = 0;
    for (std::size_t i = 0; i < samples.size(); ++i)
      unknown += AddStackSamples(stack_rows_[i], TablesOf(i), *map_, samples[i]);
    decoders_[0]->AddLoss(Loss::kUnknownRecord, unknown, "samples whose stack is not in the spool");
  }

  // Losses of the slot as a whole, in the main process's file.
  void AddSlotLosses() {
    ProcessDecoder& decoder = *decoders_[0];
    bool write_failed = false;  // Or recording was given up at the size limit, whose own loss counts what is missing.
    for (const SpoolLoss& line : contents_.losses) {
      const Seen seen{{Ns(line.first_ticks), Ns(line.last_ticks)}, line.count};
      if (const LossInfo* info = FindLoss(line.name)) {
        const auto loss = static_cast<Loss>(info - kLosses);
        write_failed = write_failed || loss == Loss::kSpoolWrite || loss == Loss::kBytesLimit;
        decoder.AddLoss(loss, seen, line.detail);
      } else {
        decoder.AddLoss(Loss::kUnknownRecord, seen, line.name);
      }
    }
    std::uint64_t missing_slots = 0;
    for (const auto& each : decoders_) missing_slots += each->missing_slots();
    const std::uint64_t bad = spool_.bad_blocks() + contents_.malformed_blocks;
    const std::string missing =
        missing_slots == 0 ? "" : std::to_string(missing_slots) + " slots of 32 bytes are in no readable block";
    decoder.AddLoss(Loss::kSpoolBlock, bad == 0 && missing_slots != 0 && !write_failed && !spool_.cut() ? 1 : bad,
                    missing);
    decoder.AddLoss(Loss::kSpoolTail, spool_.cut() ? 1 : 0);
    decoder.AddLoss(Loss::kUnknownRecord, spool_.newer_blocks(), "blocks of a newer version");
    if (leftover_.found) {
      decoder.AddLoss(Loss::kSpoolBlock, leftover_.damaged ? 1 : 0, "the shared segment is damaged");
      if (!contents_.end) decoder.AddLoss(Loss::kNoRing, leftover_.dropped_no_ring);
    }
    // Processes that never got a ring have no file of their own.
    std::uint64_t without_file = 0;
    for (const auto& process : contents_.processes)
      if (std::none_of(plans_.begin(), plans_.end(),
                       [&](const ProcessPlan& plan) { return plan.key == process.first; }))
        without_file += process.second.dropped_no_ring;
    decoder.AddLoss(Loss::kNoRing, without_file, "in processes that got no ring at all");
  }

  const SpoolFile& spool_;
  SpoolContents contents_;
  Leftover leftover_;
  bool raw_clock_ = false;
  std::optional<TickMap> map_;
  std::vector<ProcessPlan> plans_;
  Decoded decoded_;
  std::vector<std::unique_ptr<ProcessDecoder>> decoders_;  // One per process of `decoded_`.
  std::vector<StackRows> stack_rows_;                      // Likewise.
};

}  // namespace

Result<Decoded> DecodeSpool(const DecodeInput& input) {
  try {
    LS_TRY(const SpoolFile spool, SpoolFile::Open(input.spool_path));
    return SlotDecoder(spool, input.segment_path).Decode();
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::kUnsupported, "the spool's records need more memory than there is", input.spool_path,
                 "decode it on a machine with more memory"};
  }
}

}  // namespace lockstep::trace
