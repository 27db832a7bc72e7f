#include "merge/timeline/rank_pass.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "core/collective.h"
#include "core/mpi_ops.h"
#include "merge/timeline/gpu_windows.h"
#include "merge/timeline/kernel_class.h"
#include "merge/timeline/phases.h"

namespace lockstep {
namespace {

constexpr std::int64_t kNoTime = schema::kNoTime;

// A row of coalesced unsuccessful polls spans first entry to last return. When
// they came this close together the thread was spinning in MPI; else it worked
// in between and the calls themselves took next to nothing.
constexpr std::int64_t kSpinPeriodNs = 20'000;

bool InsideMpi(const schema::MpiCalls& calls, std::size_t row) {
  const std::uint32_t count = calls.count.empty() ? 1 : calls.count[row];
  return count <= 1 || calls.duration_ns[row] / count <= kSpinPeriodNs;
}

// Functions of a newer version count as "other".
MpiClass ClassOf(std::uint16_t op) {
  static const std::vector<MpiClass> kClasses = [] {
    std::vector<MpiClass> classes;
    for (const MpiOpInfo& info : kMpiOps) {
      const auto number = static_cast<std::size_t>(info.op);
      if (number >= classes.size()) classes.resize(number + 1, MpiClass::kOther);
      classes[number] = info.cls;
    }
    return classes;
  }();
  return op < kClasses.size() ? kClasses[op] : MpiClass::kOther;
}

bool IsNonBlocking(std::uint8_t mode) {
  return mode == static_cast<std::uint8_t>(CollectiveMode::kNonBlocking) ||
         mode == static_cast<std::uint8_t>(CollectiveMode::kPersistent);
}

class Pass {
 public:
  Pass(const RankPassInput& input, const schema::RankTables& head, const schema::RankTables& events,
       MatchedCollectives& matched)
      : in_(input), head_(head), events_(events), matched_(matched) {}

  RankPassResult Run() {
    span_ = CapturedSpan(head_);
    training_ = TrainingThread(head_);
    out_.gpu = events_.kernels.rows() > 0;
    activity_.gpu = out_.gpu;
    out_.steps = out_.gpu ? GpuWindows(*in_.steps, events_) : *in_.steps;
    ReadCalls();
    if (out_.gpu) ReadKernels();
    ReadCollectives();
    if (!out_.gpu || !in_.hta) ReadP2p();
    AddOps(ops_, activity_);
    ops_ = {};
    Emit();
    return std::move(out_);
  }

 private:
  void ReadCalls() {
    bool posted = false;
    for (const std::uint8_t mode : head_.collectives.mode) posted |= IsNonBlocking(mode);
    for (const std::uint8_t mode : head_.p2p.mode) posted |= mode != 0;

    const schema::MpiCalls& calls = events_.mpi_calls;
    std::vector<Interval> busy, inside, other, io, rma, input;
    if (!out_.gpu) busy.reserve(calls.rows());
    if (posted) inside.reserve(calls.rows());
    for (std::size_t i = 0; i < calls.rows(); ++i) {
      if (!InsideMpi(calls, i)) continue;
      const Interval call{calls.begin_ns[i], calls.begin_ns[i] + calls.duration_ns[i]};
      if (posted) inside.push_back(call);
      if (calls.thread[i] != training_) continue;
      if (!out_.gpu) busy.push_back(call);
      const MpiClass cls = ClassOf(calls.op[i]);
      if (!IsMpiOther(cls)) continue;
      other.push_back(call);
      if (IsIo(cls)) io.push_back(call);
      if (IsRma(cls)) rma.push_back(call);
    }
    // Waiting for a non-blocking transfer is time of the transfer's class.
    const schema::MpiRequests& requests = head_.mpi_requests;
    for (std::size_t i = 0; i < requests.rows(); ++i) {
      if (requests.wait_thread[i] != training_ || requests.end_ns[i] == kNoTime) continue;
      const Interval wait{requests.wait_begin_ns[i], requests.end_ns[i]};
      other.push_back(wait);
      (IsIo(ClassOf(requests.op[i])) ? io : rma).push_back(wait);
    }
    const schema::Ranges& ranges = events_.ranges;
    for (std::size_t i = 0; i < ranges.rows(); ++i)
      if (ranges.category[i] == 1 && ranges.thread[i] == training_ && ranges.duration_ns[i] > 0)
        input.push_back({ranges.begin_ns[i], ranges.begin_ns[i] + ranges.duration_ns[i]});
    activity_.input = Normalize(std::move(input));
    activity_.mpi_other = Normalize(std::move(other));
    activity_.mpi_io = Normalize(std::move(io));
    activity_.mpi_rma = Normalize(std::move(rma));
    if (!out_.gpu) {
      activity_.busy = Normalize(std::move(busy));
      if (!activity_.input.empty()) activity_.busy = Unite(activity_.busy, activity_.input);
    }
    activity_.inside_mpi = Normalize(std::move(inside));
    inside_ = Measure(activity_.inside_mpi);
  }

  void ReadKernels() {
    const schema::Kernels& kernels = events_.kernels;
    classes_ = ClassifyKernels(events_, head_.collectives, in_.hta);
    std::vector<bool> carried(kernels.rows(), false);
    for (const std::uint32_t row : head_.collectives.kernel)
      if (row < carried.size()) carried[row] = true;
    std::vector<Interval> compute, copy;
    for (std::size_t i = 0; i < kernels.rows(); ++i) {
      const Interval kernel{kernels.begin_ns[i], kernels.begin_ns[i] + kernels.duration_ns[i]};
      switch (classes_[i]) {
        case KernelClass::kCompute:
          compute.push_back(kernel);
          break;
        case KernelClass::kComm:
          if (!carried[i]) ops_.push_back({kernel.begin, kernel.begin, kernel.end, kernel.end, true});
          break;
        case KernelClass::kMemory:
          copy.push_back(kernel);
          break;
        case KernelClass::kNone:
          // HTA's OTHER keeps the device busy and is no compute: the same as a copy to the identity.
          if (in_.hta) copy.push_back(kernel);
          break;
      }
    }
    for (std::size_t i = 0; i < events_.copies.rows(); ++i)
      copy.push_back({events_.copies.begin_ns[i], events_.copies.begin_ns[i] + events_.copies.duration_ns[i]});
    activity_.busy = Normalize(std::move(compute));
    activity_.copy = Normalize(std::move(copy));
  }

  // In flight on the GPU's account only if its kernel counts as communication.
  bool Counts(std::size_t row) const {
    if (!out_.gpu || !in_.hta) return true;
    const std::uint32_t kernel = head_.collectives.kernel[row];
    return kernel < classes_.size() && classes_[kernel] == KernelClass::kComm;
  }

  std::int64_t StepAt(std::int64_t local_ns) {
    const auto& steps = out_.steps;
    if (recent_ < steps.size() && steps[recent_].window.begin <= local_ns && local_ns < steps[recent_].window.end)
      return steps[recent_].index;
    const auto after = std::upper_bound(steps.begin(), steps.end(), local_ns,
                                        [](std::int64_t t, const RankStep& step) { return t < step.window.begin; });
    if (after == steps.begin() || local_ns >= after[-1].window.end) return -1;
    recent_ = static_cast<std::size_t>(after - steps.begin()) - 1;
    return steps[recent_].index;
  }

  void ReadCollectives() {
    const schema::Collectives& c = head_.collectives;
    ops_.reserve(ops_.size() + c.rows() + head_.p2p.rows());
    for (std::size_t row = 0; row < c.rows(); ++row) {
      const bool posted = IsNonBlocking(c.mode[row]);
      const bool ended = c.end_ns[row] != kNoTime;
      const std::int64_t begin = c.begin_ns[row];
      std::int64_t end = c.end_ns[row];
      // Never completed: still in flight when the rank was last heard of.
      if (!ended) end = span_.end;
      end = std::max(end, begin);
      const std::uint32_t member = matched_.member_of[in_.index][row];
      const std::int64_t limit = member == schema::kNone ? kNoTime : matched_.limit_ns[member];
      const bool split = limit != kNoTime;

      std::int64_t wait_end = begin;
      if (split && limit > matched_.members.arrival_ns[member])
        wait_end = std::clamp(in_.clock->ToLocal(limit), begin, end);
      std::int64_t end_low = end;
      if (posted)
        end_low = std::min(end, std::max({wait_end, c.last_incomplete_ns[row], c.wait_begin_ns[row]}));
      else if (!ended)
        end_low = wait_end;

      bool censored = split && (!ended || !matched_.whole[matched_.members.collective[member]]);
      if (split && posted && end > wait_end && !censored) {
        const std::int64_t high = end - wait_end;
        const std::int64_t still = high - inside_.Within({wait_end, end});
        censored = (end - end_low) >= (high + 9) / 10 || still >= (high + 9) / 10;
      }
      if (member != schema::kNone) Write(member, begin, end_low, end, limit, censored);
      if (Counts(row)) ops_.push_back({begin, wait_end, split && !censored ? wait_end : end, end, !posted});
    }
  }

  void Write(std::uint32_t member, std::int64_t begin, std::int64_t end_low, std::int64_t end, std::int64_t limit,
             bool censored) {
    schema::TlCollectiveRanks& m = matched_.members;
    const std::int64_t high = std::max(in_.clock->ToCluster(end), m.arrival_ns[member]);
    const std::int64_t low =
        end_low == end ? high : std::clamp(in_.clock->ToCluster(end_low), m.arrival_ns[member], high);
    m.end_high_ns[member] = high;
    m.end_low_ns[member] = low;
    m.censored[member] = censored;
    m.step[member] = StepAt(begin);
    if (limit == kNoTime) return;
    const std::int64_t waited_until = std::clamp(limit, m.arrival_ns[member], high);
    m.wait_ns[member] = waited_until - m.arrival_ns[member];
    if (!censored) m.transfer_ns[member] = high - waited_until;
  }

  void ReadP2p() {
    const schema::P2p& p2p = head_.p2p;
    const auto& partner_begin = in_.p2p->partner_begin_ns[in_.index];
    for (std::size_t row = 0; row < p2p.rows(); ++row) {
      if (p2p.outcome[row] == 1) continue;
      std::int64_t begin = p2p.begin_ns[row];
      const bool posted = p2p.mode[row] != 0;
      // A posted receive without a message moves nothing, however long it stays posted.
      if (posted && p2p.direction[row] == 1 && p2p.end_ns[row] == kNoTime) continue;
      std::int64_t end = p2p.end_ns[row];
      if (end == kNoTime) end = posted ? std::max(begin, p2p.post_end_ns[row]) : span_.end;
      // Before its send was posted a receive has nothing to move.
      if (p2p.direction[row] == 1 && partner_begin[row] != kNoTime)
        begin = std::max(begin, in_.clock->ToLocal(partner_begin[row]));
      if (end > begin) ops_.push_back({begin, begin, end, end, !posted});
    }
  }

  // {0, 0}: this rank has nothing of it.
  Interval Locate(const AnalysisPart& part) const {
    const RankStep *first = nullptr, *last = nullptr;
    for (const RankStep& step : out_.steps) {
      if (step.index < part.first_step || step.index > part.last_step || !step.complete) continue;
      if (first == nullptr) first = &step;
      last = &step;
    }
    if (first != nullptr) return {first->window.begin, last->window.end};
    if (part.cluster_window.begin < part.cluster_window.end)
      return {in_.clock->ToLocal(part.cluster_window.begin), in_.clock->ToLocal(part.cluster_window.end)};
    return {0, 0};
  }

  // In order, without overlap; at least one.
  std::vector<Interval> AnalysisWindow() const {
    std::vector<Interval> found;
    if (in_.parts != nullptr) {
      for (const AnalysisPart& part : *in_.parts) {
        const Interval at = Locate(part);
        if (at.begin < at.end && (found.empty() || found.back().end <= at.begin)) found.push_back(at);
      }
    } else if (in_.first_step <= in_.last_step) {
      const Interval at = Locate({in_.first_step, in_.last_step, in_.cluster_window});
      if (at.begin < at.end) found.push_back(at);
    }
    if (found.empty()) found.push_back(out_.gpu ? GpuExtent(events_) : span_);
    return found;
  }

  template <typename Row>
  void Put(Row& row, const Terms& t, Interval window, std::int64_t cpu_ns, std::int64_t offcpu_ns) const {
    row.compute_ns = t.compute_ns, row.exposed_wait_ns = t.exposed_wait_ns;
    row.exposed_transfer_ns = t.exposed_transfer_ns, row.exposed_unsplit_ns = t.exposed_unsplit_ns;
    row.exposed_copy_ns = t.exposed_copy_ns, row.idle_ns = t.idle_ns;
    row.comm_ns = t.comm_ns, row.overlap_ns = t.overlap_ns;
    row.comm_high_ns = t.comm_high_ns, row.overlap_high_ns = t.overlap_high_ns;
    row.copy_ns = t.copy_ns, row.mpi_other_ns = t.mpi_other_ns, row.input_ns = t.input_ns;
    row.mpi_io_ns = t.mpi_io_ns, row.mpi_rma_ns = t.mpi_rma_ns;
    row.late_sender_ns = late_sender_.Within(window), row.late_receiver_ns = late_receiver_.Within(window);
    row.cpu_ns = cpu_ns, row.offcpu_ns = offcpu_ns;
  }

  void Emit() {
    if (in_.p2p_waits != nullptr) {
      late_sender_ = Measure(in_.p2p_waits->late_sender);
      late_receiver_ = Measure(in_.p2p_waits->late_receiver);
    }
    CounterCurve cpu, delay;
    const schema::CpuSamples& samples = events_.cpu_samples;
    bool cpu_wanted = out_.steps.empty();
    for (std::size_t i = 0; i < out_.steps.size(); ++i)
      cpu_wanted |= out_.steps[i].cpu_ns < 0 || (i > 0 && out_.steps[i].window.begin != out_.steps[i - 1].window.end);
    for (std::size_t i = 0; i < samples.rows(); ++i) {
      if (samples.thread[i] != training_) continue;
      if (cpu_wanted && samples.cpu_ns[i] >= 0) cpu.Add(samples.time_ns[i], samples.cpu_ns[i]);
      if (samples.run_delay_ns[i] >= 0) delay.Add(samples.time_ns[i], samples.run_delay_ns[i]);
    }
    std::vector<Interval> windows;
    for (const RankStep& step : out_.steps) windows.push_back(step.window);
    const std::vector<Interval> parts = AnalysisWindow();
    const Interval total{parts.front().begin, parts.back().end};
    out_.phases = PhasesOf(head_, events_, training_, *in_.steps, total, in_.rank == nullptr ? 0 : in_.rank->rank);
    windows.insert(windows.end(), parts.begin(), parts.end());
    const std::vector<Terms> terms = BreakDown(activity_, windows);

    // Marks carry the exact CPU time of their step; samples only interpolate.
    std::int64_t marked_cpu = 0, marked_ns = 0;
    for (std::size_t i = 0; i < out_.steps.size(); ++i) {
      const RankStep& step = out_.steps[i];
      schema::TlStepRanks::Row row;
      row.index = step.index;
      row.rank = in_.rank == nullptr ? 0 : in_.rank->rank;
      row.begin_ns = step.window.begin;
      row.end_ns = step.window.end;
      row.cluster_end_ns = in_.clock->ToCluster(step.window.end);
      row.complete = step.complete;
      const std::int64_t step_cpu = step.cpu_ns >= 0 ? step.cpu_ns : cpu.Within(step.window);
      Put(row, terms[i], step.window, step_cpu, delay.Within(step.window));
      out_.step_ranks.Append(row);
      if (step.window.begin >= total.begin && step.window.end <= total.end && step.cpu_ns >= 0) {
        marked_cpu += step.cpu_ns;
        marked_ns += step.window.end - step.window.begin;
      }
    }
    schema::TlRankTotals::Row row;
    row.rank = in_.rank == nullptr ? 0 : in_.rank->rank;
    row.begin_ns = total.begin;
    row.end_ns = total.end;
    Terms sum;
    std::int64_t sampled_cpu = 0, off_cpu = 0;
    const auto add = [](std::int64_t& to, std::int64_t value) { to = to < 0 || value < 0 ? -1 : to + value; };
    for (std::size_t i = 0; i < parts.size(); ++i) {
      sum.Add(terms[out_.steps.size() + i]);
      row.span_ns += parts[i].end - parts[i].begin;
      add(sampled_cpu, cpu.Within(parts[i]));
      add(off_cpu, delay.Within(parts[i]));
    }
    // Steps do not overlap, so equal lengths are the same time.
    const bool covered = row.span_ns > 0 && marked_ns == row.span_ns;
    Put(row, sum, total, covered ? marked_cpu : sampled_cpu, off_cpu);
    row.late_sender_ns = row.late_receiver_ns = 0;
    for (const Interval& part : parts) {
      row.late_sender_ns += late_sender_.Within(part);
      row.late_receiver_ns += late_receiver_.Within(part);
    }
    out_.totals.Append(row);
  }

  const RankPassInput& in_;
  const schema::RankTables &head_, &events_;
  MatchedCollectives& matched_;
  Interval span_{0, 0};
  std::uint32_t training_ = 0;
  RankActivity activity_;
  Measure inside_, late_sender_, late_receiver_;
  std::vector<KernelClass> classes_;
  std::vector<CommOp> ops_;
  std::size_t recent_ = 0;
  RankPassResult out_;
};

}  // namespace

Interval CapturedSpan(const schema::RankTables& head) {
  Interval span{0, 0};
  bool any = false;
  const auto extend = [&](std::int64_t begin, std::int64_t end) {
    if (begin == kNoTime || end == kNoTime || end < begin) return;
    span = any ? Interval{std::min(span.begin, begin), std::max(span.end, end)} : Interval{begin, end};
    any = true;
  };
  for (std::size_t i = 0; i < head.threads.rows(); ++i)
    if (head.threads.records[i] > 0 || head.threads.end_ns[i] > head.threads.begin_ns[i])
      extend(head.threads.begin_ns[i], head.threads.end_ns[i]);
  if (any) return span;
  // No thread wrote down its life (files of others): what the small tables hold.
  for (std::size_t i = 0; i < head.steps.rows(); ++i) extend(head.steps.begin_ns[i], head.steps.end_ns[i]);
  for (std::size_t i = 0; i < head.collectives.rows(); ++i)
    extend(head.collectives.begin_ns[i], std::max(head.collectives.begin_ns[i], head.collectives.end_ns[i]));
  for (std::size_t i = 0; i < head.p2p.rows(); ++i)
    extend(head.p2p.begin_ns[i], std::max(head.p2p.begin_ns[i], head.p2p.end_ns[i]));
  return span;
}

std::uint32_t TrainingThread(const schema::RankTables& head) {
  std::map<std::uint32_t, std::size_t> marks;
  for (const std::uint32_t thread : head.steps.thread)
    if (thread != schema::kNone) ++marks[thread];
  std::uint32_t most = schema::kNone;
  for (const auto& [thread, count] : marks)
    if (most == schema::kNone || count > marks[most]) most = thread;
  if (most != schema::kNone) return most;
  const schema::Threads& threads = head.threads;
  for (std::size_t i = 0; i < threads.rows(); ++i)
    if (threads.training[i]) return threads.thread[i];
  for (std::size_t i = 0; i < threads.rows(); ++i)
    if (threads.process[i] < head.processes.rows() && threads.tid[i] == head.processes.pid[threads.process[i]])
      return threads.thread[i];
  return threads.rows() > 0 ? threads.thread[0] : 0;
}

RankPassResult PassRank(const RankPassInput& input, MatchedCollectives& matched) {
  ReadTables events = input.rank->source->ReadEvents();
  RankPassResult result = PassTables(input, input.rank->head, events.tables, matched);
  result.damaged = std::move(events.damaged);
  return result;
}

RankPassResult PassTables(const RankPassInput& input, const schema::RankTables& head, const schema::RankTables& events,
                          MatchedCollectives& matched) {
  return Pass(input, head, events, matched).Run();
}

}  // namespace lockstep
