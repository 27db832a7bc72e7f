#include "merge/timeline/rank_pass.h"

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "core/censored.h"
#include "core/collective.h"
#include "core/counter_curve.h"
#include "core/mpi_ops.h"
#include "ingest/rank_files/event_reader.h"
#include "merge/match/instance_key.h"
#include "merge/timeline/activity_stream.h"
#include "merge/timeline/gpu_windows.h"
#include "merge/timeline/hta_window.h"
#include "merge/timeline/phases.h"
#include "merge/timeline/unplaced.h"
#include "merge/timeline/unrecorded_calls.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;

constexpr std::size_t kKinds = std::size(schema::BlockedKind::kValues);

class Pass {
 public:
  Pass(const RankPassInput& input, const schema::RankTables& head, ingest::EventReader& events,
       MatchedCollectives& matched)
      : in_(input), head_(head), events_(events), matched_(matched), tables_(events) {}

  RankPassResult Run() {
    span_ = CapturedSpan(head_);
    training_ = TrainingThread(head_);
    out_.gpu = tables_.kernels.rows() > 0;
    tables_.OnlyTimes();
    out_.steps = out_.gpu ? FindGpuWindows() : *in_.steps;
    if (out_.gpu && in_.hta_window) hta_ = SelectHtaWindow(tables_, in_.hta_until_ns);
    FindWindows();
    FindInside();
    unrecorded_ = FindUnrecordedComm(head_, events_, training_, out_.gpu);
    if (!out_.gpu) blocked_ = FindBlockedTime(head_, events_, training_);
    if (in_.p2p_waits != nullptr && !(out_.gpu && in_.hta))
      for (const MessageWait& wait : MessageWaits(*in_.p2p_waits, head_.p2p, training_, blocked_.awaited)) {
        message_begins_.push_back(wait.at.begin);
        message_waits_.push_back(wait);
      }
    tables_.AllColumns(hta_.has_value());
    // Rows of our own files are in order of time. If they are not, nothing can be released on the way.
    if (!Stream(false)) Stream(true);
    Emit();
    out_.damaged = events_.Damaged();
    return std::move(out_);
  }

 private:
  std::vector<RankStep> FindGpuWindows() {
    const GpuActivity activity = FindGpuActivity(tables_.kernels, tables_.copies);
    extent_ = activity.extent;
    return GpuWindows(*in_.steps, in_.times, tables_.kernels, tables_.copies, tables_.api, activity, head_);
  }

  struct OpTimes {
    std::int64_t begin, end, end_low, wait_end;
    std::uint32_t member;
    std::int64_t limit;
    bool posted, ended, split, censored;
  };

  OpTimes TimesOf(std::size_t row) const {
    const schema::Collectives& c = head_.collectives;
    OpTimes op;
    op.posted = IsPosted(c.mode[row]);
    op.ended = c.end_ns[row] != kNoTime;
    op.begin = c.begin_ns[row];
    // It never completed: it counts as in flight until the rank's last sign of life.
    op.end = std::max(op.ended ? c.end_ns[row] : span_.end, op.begin);
    // It was enqueued, but whether and when it ran is not known.
    if (WithoutGpuTimes(c.mode[row], c.end_ns[row])) op.end = op.begin;
    op.member = matched_.member_of[in_.index][row];
    op.limit = op.member == schema::kNone ? kNoTime : matched_.limit_ns[op.member];
    op.split = op.limit != kNoTime;
    op.wait_end = op.begin;
    if (op.split && op.limit > matched_.members.arrival_ns[op.member])
      op.wait_end = std::clamp(in_.clock->ToLocal(op.limit), op.begin, op.end);
    // What MPI does after the last rank came is no transfer.
    if (c.kind[row] == schema::Code(CollectiveKind::kFinalize)) op.end = op.wait_end;
    op.end_low = op.end;
    if (op.posted)
      op.end_low = std::min(op.end, std::max({op.wait_end, c.last_incomplete_ns[row], c.wait_begin_ns[row]}));
    else if (!op.ended)
      op.end_low = op.wait_end;
    op.censored = op.split && (!op.ended || !matched_.whole[matched_.members.collective[op.member]] ||
                               matched_.doubtful[op.member] != 0);
    return op;
  }
  // Whether its end is too uncertain depends on how long a thread was inside MPI.
  static bool AsksForInside(const OpTimes& op) { return op.split && op.posted && op.end > op.wait_end && !op.censored; }

  // Computes the time inside MPI before each time at which it will be needed. This takes a pass over the calls of its
  // own, because the classification of an operation is needed at its begin but known only at its end.
  void FindInside() {
    for (std::size_t row = 0; row < head_.collectives.rows(); ++row) {
      const OpTimes op = TimesOf(row);
      if (!AsksForInside(op)) continue;
      asked_.push_back(op.wait_end);
      asked_.push_back(op.end);
    }
    if (asked_.empty()) return;
    std::sort(asked_.begin(), asked_.end());
    asked_.erase(std::unique(asked_.begin(), asked_.end()), asked_.end());
    std::vector<Interval> between;
    for (std::size_t i = 0; i + 1 < asked_.size(); ++i) between.push_back({asked_[i], asked_[i + 1]});
    std::vector<Terms> inside;
    for (const bool whole : {false, true}) {
      Breakdown measure(true, between);
      const Breakdown::Source calls = measure.AddSource(Activity::kInsideMpi);
      Watermarks marks(whole, [&](std::int64_t until) { measure.Advance(until); });
      tables_.calls.Rewind();
      marks.Add([&](std::int64_t& latest) {
        const auto* rows = tables_.calls.Next();
        for (std::size_t i = 0; rows != nullptr && i < rows->rows(); ++i) {
          latest = std::max(latest, rows->begin_ns[i]);
          measure.Add(calls, {rows->begin_ns[i], rows->begin_ns[i] + rows->duration_ns[i]});
        }
        return rows != nullptr;
      });
      marks.Run();
      const bool late = measure.came_late();
      inside = measure.Finish();
      if (!late) break;
    }
    inside_before_.assign(asked_.size(), 0);
    for (std::size_t i = 0; i < inside.size(); ++i) inside_before_[i + 1] = inside_before_[i] + inside[i].inside_mpi_ns;
  }
  std::int64_t InsideBefore(std::int64_t ns) const {
    const auto at = std::lower_bound(asked_.begin(), asked_.end(), ns);
    return inside_before_[static_cast<std::size_t>(at - asked_.begin())];
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

  // The first pass over a piece of the rank's collectives writes its members of `matched`.
  void AddCollective(std::size_t row, ActivityStream& stream) {
    OpTimes op = TimesOf(row);
    if (AsksForInside(op)) {
      const std::int64_t high = op.end - op.wait_end;
      const std::int64_t still = high - (InsideBefore(op.end) - InsideBefore(op.wait_end));
      op.censored = IsCensored(high, op.end - op.end_low, still);
    }
    if (op.member != schema::kNone) Write(op);
    if (CopiedOnly(row)) return;
    stream.AddOp({op.begin, op.wait_end, op.split && !op.censored ? op.wait_end : op.end, op.end, !op.posted},
                 head_.collectives.kernel.empty() ? schema::kNone : head_.collectives.kernel[row]);
  }

  // A communicator of one rank only copies data, if it does anything at all, and the table of copies contains that.
  bool CopiedOnly(std::size_t row) const {
    const schema::Collectives& c = head_.collectives;
    const schema::Comms& comms = head_.comms;
    return c.mode[row] == schema::Code(CollectiveMode::kGpu) && c.comm[row] < comms.rows() &&
           comms.size[c.comm[row]] == 1 && (c.kernel.empty() || c.kernel[row] == schema::kNone);
  }

  void Write(const OpTimes& op) {
    schema::TlCollectiveRanks& m = matched_.members;
    const std::uint32_t member = op.member;
    const std::int64_t high = std::max(in_.clock->ToCluster(op.end), m.arrival_ns[member]);
    const std::int64_t low =
        op.end_low == op.end ? high : std::clamp(in_.clock->ToCluster(op.end_low), m.arrival_ns[member], high);
    m.end_high_ns[member] = high;
    m.end_low_ns[member] = low;
    m.censored[member] = op.censored;
    m.step[member] = StepAt(op.begin);
    if (op.limit == kNoTime) return;
    const std::int64_t waited_until = std::clamp(op.limit, m.arrival_ns[member], high);
    m.wait_ns[member] = waited_until - m.arrival_ns[member];
    if (!op.censored) m.transfer_ns[member] = high - waited_until;
  }

  void AddP2p(std::size_t row, ActivityStream& stream) {
    const schema::P2p& p2p = head_.p2p;
    if (p2p.outcome[row] == schema::RequestOutcome::kCancelled) return;
    std::int64_t begin = p2p.begin_ns[row];
    if (WithoutGpuTimes(p2p.mode[row], p2p.end_ns[row])) return;
    const bool posted = IsPosted(p2p.mode[row]);
    const bool gpu = p2p.mode[row] == schema::Code(CollectiveMode::kGpu);
    // A posted receive without a message moves nothing, however long it stays posted.
    if (posted && p2p.direction[row] == schema::Direction::kReceive && p2p.end_ns[row] == kNoTime) return;
    std::int64_t end = p2p.end_ns[row];
    if (end == kNoTime) end = posted ? std::max(begin, p2p.post_end_ns[row]) : span_.end;
    // Before its send was posted a receive has nothing to move; but a kernel that waits for it occupies the GPU.
    const std::int64_t partner_begin = in_.p2p->partner_begin_ns[in_.index][row];
    if (!gpu && p2p.direction[row] == schema::Direction::kReceive && partner_begin != kNoTime)
      begin = std::max(begin, in_.clock->ToLocal(partner_begin));
    if (end > begin)
      stream.AddOp({begin, begin, end, end, !posted}, p2p.kernel.empty() ? schema::kNone : p2p.kernel[row]);
  }

  // Passes everything to the breakdown in order of time. Returns false if some table is not in order of time.
  bool Stream(bool whole) {
    phases_.emplace(training_, unrecorded_.InFlight());
    ActivityStream stream(head_, tables_, training_, in_.hta, windows_, hta_ ? &*hta_ : nullptr, whole);
    if (!out_.gpu || !in_.hta) stream.AddUnrecorded(unrecorded_);
    if (!out_.gpu) stream.AddBlocked(blocked_);
    stream.OnRanges([&](const schema::Ranges& rows) { phases_->Add(rows); });
    stream.AddRows(head_.collectives.begin_ns, [&](std::size_t row) { AddCollective(row, stream); });
    if (!out_.gpu || !in_.hta) stream.AddRows(head_.p2p.begin_ns, [&](std::size_t row) { AddP2p(row, stream); });
    stream.AddRows(message_begins_, [&](std::size_t i) {
      const std::vector<std::uint32_t>& kernel = head_.p2p.kernel;
      stream.AddMessageWait(message_waits_[i].at, kernel.empty() ? schema::kNone : kernel[message_waits_[i].row]);
    });
    return stream.Run(terms_);
  }

  // {0, 0}: this rank has no part of it.
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

  // The steps' windows, then the analysis window's parts: in order, without overlap; at least one.
  void FindWindows() {
    for (const RankStep& step : out_.steps) windows_.push_back(step.window);
    if (hta_) {
      parts_.push_back(hta_->extent);
    } else if (in_.parts != nullptr) {
      for (const AnalysisPart& part : *in_.parts) {
        const Interval at = Locate(part);
        if (at.begin < at.end && (parts_.empty() || parts_.back().end <= at.begin)) parts_.push_back(at);
      }
    } else if (in_.first_step <= in_.last_step) {
      const Interval at = Locate({in_.first_step, in_.last_step, in_.cluster_window});
      if (at.begin < at.end) parts_.push_back(at);
    }
    if (parts_.empty()) parts_.push_back(out_.gpu ? extent_ : span_);
    windows_.insert(windows_.end(), parts_.begin(), parts_.end());
  }

  template <typename Row>
  void Put(Row& row, const Terms& t, Interval window, std::int64_t cpu_ns, std::int64_t offcpu_ns) const {
    row.compute_ns = t.compute_ns, row.blocked_ns = t.blocked_ns, row.exposed_wait_ns = t.exposed_wait_ns;
    // Of waits for other threads' collectives, on condition variables and semaphores.
    row.blocked_lock_ns = t.awaited_apart_ns, row.blocked_unplaced_ns = t.blocked_unplaced_ns;
    row.exposed_transfer_ns = t.exposed_transfer_ns, row.exposed_unsplit_ns = t.exposed_unsplit_ns;
    row.exposed_copy_ns = t.exposed_copy_ns, row.idle_ns = t.idle_ns;
    row.comm_ns = t.comm_ns, row.overlap_ns = t.overlap_ns;
    row.comm_high_ns = t.comm_high_ns, row.overlap_high_ns = t.overlap_high_ns;
    row.copy_ns = t.copy_ns, row.mpi_other_ns = t.mpi_other_ns, row.input_ns = t.input_ns;
    row.helper_wait_ns = t.helper_wait_ns, row.message_wait_ns = t.message_wait_ns;
    row.mpi_io_ns = t.mpi_io_ns, row.mpi_rma_ns = t.mpi_rma_ns, row.mpi_setup_ns = t.mpi_setup_ns;
    row.late_sender_ns = late_sender_.Within(window), row.late_receiver_ns = late_receiver_.Within(window);
    row.cpu_ns = cpu_ns, row.offcpu_ns = offcpu_ns;
  }

  // Adds which part of blocked is of which kind.
  template <typename Row>
  void AddKinds(Row& row, Interval window) const {
    using Kind = schema::BlockedKind;
    const auto within = [&](Kind::Value kind) { return of_kind_[kind].Within(window); };
    row.blocked_sleep_ns += within(Kind::kSleep);
    row.blocked_lock_ns += within(Kind::kLock) + within(Kind::kCondition) + within(Kind::kSemaphore);
    row.blocked_python_ns += within(Kind::kPython);
    row.blocked_file_ns += within(Kind::kFile);
    row.blocked_socket_ns += within(Kind::kSocket);
  }

  // Moves compute that the CPU clock contradicts to blocked. Other threads may compute for this one and end its wait by
  // calls of the kernel that no library sees (OpenMP): what they computed is compute, unless one of them communicated.
  // Steps of which it is not known how much that was are counted.
  void MoveUnplaced(const CounterCurve& delay) {
    const IntervalSet carried = CarriedByOthers(head_, training_);
    const bool recorded = events_.Rows(schema::Blocked::kInfo.name) > 0;
    const Measure computed(blocked_.computed);
    std::vector<StepOnCpu> steps, unknown;
    for (std::size_t i = 0; i < out_.steps.size(); ++i) {
      const RankStep& step = out_.steps[i];
      steps.push_back(
          {step.window, terms_[i].compute_ns, step.complete ? step.cpu_ns : -1, computed.Within(step.window)});
      unknown.push_back(steps.back());
      if (TotalWithin(carried, step.window) == 0) steps.back().others_ns = step.others_cpu_ns;
      (steps.back().others_ns < 0 ? steps : unknown).back().cpu_ns = -1;
    }
    if (recorded) {
      for (const std::int64_t ns : Unplaced(unknown, delay)) out_.unexplained_ns += ns;
      for (const StepOnCpu& step : steps) out_.steps_ns += step.window.end - step.window.begin;
    }
    const std::vector<std::int64_t> unplaced = Unplaced(steps, delay);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::int64_t ns = unplaced[i], hidden = std::min(ns, terms_[i].overlap_ns);
      // Communication beside it is hidden at most: this may be a wait for it.
      const auto move = [&](Terms& terms) {
        terms.compute_ns -= ns, terms.blocked_ns += ns, terms.blocked_unplaced_ns += ns;
        terms.overlap_ns -= hidden;
      };
      move(terms_[i]);
      for (std::size_t p = 0; p < parts_.size(); ++p)
        if (parts_[p].begin <= steps[i].window.begin && steps[i].window.end <= parts_[p].end)
          move(terms_[steps.size() + p]);
    }
  }

  void ReadSamples(CounterCurve& cpu, CounterCurve& delay) {
    bool cpu_wanted = out_.steps.empty();
    for (std::size_t i = 0; i < out_.steps.size(); ++i)
      cpu_wanted |= out_.steps[i].cpu_ns < 0 || (i > 0 && out_.steps[i].window.begin != out_.steps[i - 1].window.end);
    ForEachRow(tables_.samples, [&](const auto& samples, std::size_t i) {
      if (samples.thread[i] != training_) return;
      if (cpu_wanted && samples.cpu_ns[i] >= 0) cpu.Add(samples.time_ns[i], samples.cpu_ns[i]);
      if (samples.run_delay_ns[i] >= 0) delay.Add(samples.time_ns[i], samples.run_delay_ns[i]);
    });
  }

  void Emit() {
    if (in_.p2p_waits != nullptr) {
      late_[0] = in_.p2p_waits->Of(true), late_[1] = in_.p2p_waits->Of(false);
      late_sender_ = Measure(late_[0]);
      late_receiver_ = Measure(late_[1]);
    }
    std::array<std::vector<Interval>, kKinds> of_kind;
    for (const BlockedTime::Own& own : blocked_.own) of_kind[own.kind].push_back(own.at);
    for (std::size_t kind = 0; kind < of_kind.size(); ++kind) {
      own_of_kind_[kind] = Normalize(std::move(of_kind[kind]));
      of_kind_[kind] = Measure(own_of_kind_[kind]);
    }
    CounterCurve cpu(windows_), delay(windows_);
    ReadSamples(cpu, delay);
    if (!out_.gpu) MoveUnplaced(delay);
    const Interval total{parts_.front().begin, parts_.back().end};
    const std::int32_t rank = in_.rank == nullptr ? 0 : in_.rank->rank;
    out_.phases = phases_->Table(*in_.steps, total, rank);

    // Marks carry the exact CPU time of their step; samples only interpolate.
    std::int64_t marked_cpu = 0, marked_ns = 0;
    for (std::size_t i = 0; i < out_.steps.size(); ++i) {
      const RankStep& step = out_.steps[i];
      schema::TlStepRanks::Row row;
      row.index = step.index;
      row.rank = rank;
      row.begin_ns = step.window.begin;
      row.end_ns = step.window.end;
      row.cluster_end_ns = in_.clock->ToCluster(step.window.end);
      row.complete = step.complete;
      const std::int64_t step_cpu = step.cpu_ns >= 0 ? step.cpu_ns : cpu.Within(i);
      Put(row, terms_[i], step.window, step_cpu, delay.Within(i));
      AddKinds(row, step.window);
      out_.step_ranks.Append(row);
      if (step.window.begin >= total.begin && step.window.end <= total.end && step.cpu_ns >= 0) {
        marked_cpu += step.cpu_ns;
        marked_ns += step.window.end - step.window.begin;
      }
    }
    schema::TlRankTotals::Row row;
    row.rank = rank;
    row.begin_ns = total.begin;
    row.end_ns = total.end;
    Terms sum;
    std::int64_t sampled_cpu = 0, off_cpu = 0;
    const auto add = [](std::int64_t& to, std::int64_t value) { to = to < 0 || value < 0 ? -1 : to + value; };
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      sum.Add(terms_[out_.steps.size() + i]);
      row.span_ns += parts_[i].end - parts_[i].begin;
      add(sampled_cpu, cpu.Within(out_.steps.size() + i));
      add(off_cpu, delay.Within(out_.steps.size() + i));
    }
    // Steps do not overlap, so equal lengths are the same time.
    const bool covered = row.span_ns > 0 && marked_ns == row.span_ns;
    Put(row, sum, total, covered ? marked_cpu : sampled_cpu, off_cpu);
    row.late_sender_ns = row.late_receiver_ns = 0;
    for (const Interval& part : parts_) {
      AddKinds(row, part);
      row.late_sender_ns += late_sender_.Within(part);
      row.late_receiver_ns += late_receiver_.Within(part);
    }
    out_.totals.Append(row);
  }

  const RankPassInput& in_;
  const schema::RankTables& head_;
  ingest::EventReader& events_;
  MatchedCollectives& matched_;
  EventTables tables_;
  Interval span_{0, 0}, extent_{0, 0};
  std::uint32_t training_ = 0;
  std::optional<HtaWindow> hta_;
  std::vector<Interval> windows_, parts_;
  BlockedTime blocked_;
  std::array<IntervalSet, kKinds> own_of_kind_;
  std::array<Measure, kKinds> of_kind_;
  UnrecordedComm unrecorded_;
  std::vector<Terms> terms_;
  std::vector<std::int64_t> asked_, inside_before_;
  std::optional<PhaseRanges> phases_;
  std::vector<std::int64_t> message_begins_;  // Of message_waits_.
  std::vector<MessageWait> message_waits_;
  std::array<IntervalSet, 2> late_;
  Measure late_sender_, late_receiver_;
  std::size_t recent_ = 0;
  RankPassResult out_;
};

}  // namespace

RankPassResult PassRank(const RankPassInput& input, MatchedCollectives& matched) {
  const std::unique_ptr<ingest::EventReader> events = input.rank->source->OpenEvents();
  return PassEvents(input, input.rank->head, *events, matched);
}

RankPassResult PassEvents(const RankPassInput& input, const schema::RankTables& head, ingest::EventReader& events,
                          MatchedCollectives& matched) {
  return Pass(input, head, events, matched).Run();
}

}  // namespace lockstep::merge
