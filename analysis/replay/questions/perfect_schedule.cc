#include "analysis/replay/questions/perfect_schedule.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "analysis/replay/questions/prefetch.h"
#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

// The lanes on which steps end: the threads that compute. Steps of GPU runs also end there, but these lanes have no
// members.
std::vector<std::uint32_t> TrainingLanes(const Job& job) {
  std::vector<std::uint32_t> lanes(job.starts.size(), kNone);
  for (const auto& ends : job.step_ends)
    for (std::size_t r = 0; r < ends.size() && r < lanes.size(); ++r)
      if (ends[r] != kNone) lanes[r] = job.graph.operations()[ends[r]].lane;
  return lanes;
}

struct Blocking {
  std::uint32_t operation, rank, step;
};

// In program order of each rank.
std::vector<Blocking> BlockingReductions(const RecordedRun& run, const BucketSequence& buckets, const Job& job) {
  std::vector<bool> reduction(run.collectives.size(), false);
  for (const std::uint32_t c : buckets.collectives) reduction[c] = true;
  const std::vector<std::uint32_t> training = TrainingLanes(job);
  std::vector<Blocking> found;
  for (std::uint32_t i = 0; i < job.operations.size(); ++i) {
    const JobOperation& about = job.operations[i];
    if (about.role != Role::kMember || about.collective == kNone || !reduction[about.collective]) continue;
    const std::uint32_t lane = job.graph.operations()[i].lane;
    if (lane == kNone || job.graph.queued_lanes()[lane] || lane != training[about.rank]) continue;
    found.push_back({i, about.rank, about.step});
  }
  return found;
}

}  // namespace

bool HasBlockingReductions(const RecordedRun& run, const BucketSequence& buckets, const Job& job) {
  return !BlockingReductions(run, buckets, job).empty();
}

void PostReductions(const RecordedRun& run, const BucketSequence& buckets, Job& job) {
  const std::vector<Blocking> blocking = BlockingReductions(run, buckets, job);
  if (blocking.empty()) return;
  const std::vector<std::uint32_t> training = TrainingLanes(job);
  // The next operation on the thread of each.
  std::vector<std::uint32_t> next(job.operations.size(), kNone), last(job.graph.queued_lanes().size(), kNone);
  for (std::uint32_t i = 0; i < job.operations.size(); ++i) {
    const std::uint32_t lane = job.graph.operations()[i].lane;
    if (lane == kNone) continue;
    if (last[lane] != kNone) next[last[lane]] = i;
    last[lane] = i;
  }
  std::vector<std::uint32_t> turns(training.size(), kNone);
  for (std::uint32_t& lane : turns) lane = job.graph.AddLane(true);
  // For each rank and step: the operations posted, and the last post.
  std::vector<std::vector<std::uint32_t>> posted(training.size() * run.steps.size());
  std::vector<std::uint32_t> last_post(posted.size(), kNone);
  for (const Blocking& each : blocking) {
    Operation member = job.graph.operations()[each.operation];
    JobOperation about = job.operations[each.operation];
    member.lane = turns[each.rank];
    const std::uint32_t made = job.graph.Add(member);
    job.operations.push_back(about);
    Operation& post = job.graph.operations()[each.operation];
    post.collective = kNone;
    post.duration_ns = 0;
    post.activity = Activity::kOther;
    post.enqueues = made;
    job.operations[each.operation].role = Role::kPost;
    const std::size_t cell = each.rank * run.steps.size() + each.step;
    if (each.step >= run.steps.size()) continue;
    posted[cell].push_back(made);
    last_post[cell] = each.operation;
  }
  for (std::size_t cell = 0; cell < posted.size(); ++cell) {
    if (last_post[cell] == kNone || next[last_post[cell]] == kNone) continue;
    for (const std::uint32_t member : posted[cell]) job.graph.Needs(next[last_post[cell]], member);
  }
}

std::vector<Job> BetterSchedules(const RecordedRun& run, const std::optional<BucketSequence>& buckets,
                                 const CostModel& costs, const ReductionTimes& times) {
  std::vector<Job> jobs;
  if (buckets) {
    const std::uint64_t total = buckets->total_bytes();
    const std::size_t fit =
        rules::kBestScheduleMostPiecesInAll / std::max<std::size_t>(1, run.ranks.size() * run.steps.size());
    const std::size_t pieces =
        std::min<std::uint64_t>(std::clamp(fit, rules::kBestScheduleLeastPieces, rules::kBestSchedulePieces),
                                std::max<std::uint64_t>(1, total));
    std::vector<std::uint64_t> bytes(pieces, total / pieces);
    bytes.back() += total % pieces;
    Result<std::unique_ptr<RecordedRun>> cut = run.Rebucket(*buckets, bytes, costs, times);
    if (cut.ok() && cut.value()->collectives.size() >= run.collectives.size() + pieces * buckets->first.size()) {
      RecordedRun& changed = *cut.value();
      // The network takes as long for all of them together as before, and dividing them costs nothing.
      BucketSequence small{buckets->comm, bytes, {}, {}};
      for (std::size_t step = 0; step < buckets->first.size(); ++step) {
        double took = 0;
        for (std::size_t k = 0; k < buckets->bytes.size(); ++k)
          took += static_cast<double>(times.transfer_ns[buckets->first[step] + k]);
        small.first.push_back(static_cast<std::uint32_t>(small.collectives.size()));
        for (std::size_t k = 0; k < pieces; ++k) {
          const auto at = static_cast<std::uint32_t>(run.collectives.size() + step * pieces + k);
          changed.collectives[at].transfer_ns =
              std::llround(took * static_cast<double>(bytes[k]) / static_cast<double>(total));
          small.collectives.push_back(at);
        }
      }
      Job job = changed.MakeJob({.progress = true});
      std::vector<bool> piece(changed.collectives.size(), false);
      for (const std::uint32_t c : small.collectives) piece[c] = true;
      for (std::size_t i = 0; i < job.operations.size(); ++i) {
        const JobOperation& about = job.operations[i];
        if (about.role == Role::kPost && about.collective != kNone && piece[about.collective])
          job.graph.operations()[i].duration_ns = job.graph.operations()[i].duration_ns *
                                                  static_cast<std::int64_t>(buckets->bytes.size()) /
                                                  static_cast<std::int64_t>(pieces);
      }
      PostReductions(changed, small, job);
      jobs.push_back(std::move(job));
    }
    Job job = run.MakeJob();
    if (HasBlockingReductions(run, *buckets, job)) {
      PostReductions(run, *buckets, job);
      jobs.push_back(std::move(job));
    }
  }
  if (Job moving = run.MakeJob({.progress = true}); moving.moved_in_wait > 0) jobs.push_back(std::move(moving));
  for (const std::size_t depth : {std::size_t{1}, std::size_t{2}, kWholeStep})
    if (std::optional<Job> job = WithPrefetch(run, depth)) jobs.push_back(std::move(*job));
  return jobs;
}

}  // namespace lockstep::replay
