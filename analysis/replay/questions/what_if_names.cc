// Names a question, advises how to get its change, and decides whether this run can answer it.

#include <fmt/format.h>

#include <algorithm>

#include "analysis/core/format.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::replay {
namespace {

std::string Mebibytes(std::uint64_t bytes) { return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (1 << 20)); }

}  // namespace

std::string WhatIf::Name(const Question& question) const {
  Answer answer;
  return Describe(question, answer).ok() ? answer.question : std::string("this");
}

Status WhatIf::Describe(const Question& question, Answer& answer) const {
  switch (question.kind) {
    case Question::kFreeCommunication:
      answer.question = "communication free";
      break;
    case Question::kNetwork:
      answer.question = fmt::format("bandwidth x {:g}, latency x {:g}", question.bandwidth, question.latency);
      break;
    case Question::kEqualRanks:
      answer.question = "equal work on all ranks";
      answer.try_it = "even out the work per rank and step (sizes of the input, partition of the domain or the layers)";
      break;
    case Question::kProgress:
      answer.question = "posted communication moves at once";
      break;
    case Question::kSendsGo:
      answer.question = "sends wait for no receiver";
      break;
    case Question::kEdit:
      answer.question = "another graph";
      break;
    case Question::kNoOverlap:
      answer.question = "no overlap";
      break;
    case Question::kPerfectSchedule:
      answer.question = "perfect schedule";
      break;
    case Question::kOverlap:
      answer.question = "overlap on";
      answer.try_it = fmt::format("post the reductions ({}) where they are called, wait after the last",
                                  run_->torch ? "async_op=True" : "MPI_Iallreduce");
      break;
    case Question::kPrefetch:
      answer.question = fmt::format("parameters gathered {} ahead",
                                    question.depth == 1 ? "one unit" : fmt::format("{} units", question.depth));
      answer.try_it = run_->torch
                          ? fmt::format(
                                "FSDP(..., forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE); "
                                "FSDP2: set_modules_to_forward_prefetch and set_modules_to_backward_prefetch with "
                                "{} each",
                                question.depth == 1 ? "one unit" : fmt::format("{} units", question.depth))
                          : fmt::format("begin each all-gather {} before its use, without waiting for it there",
                                        question.depth == 1 ? "one unit" : fmt::format("{} units", question.depth));
      break;
    case Question::kMoreRanks:
      answer.question = fmt::format("{} ranks, weak scaling", question.rank_count);
      answer.try_it = fmt::format("launch {} ranks, with the same work for each", question.rank_count);
      break;
    case Question::kWithoutRanks: {
      std::vector<std::int32_t> ranks = question.ranks;  // In any order, and twice where they were asked for twice.
      std::sort(ranks.begin(), ranks.end());
      ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
      for (const std::int32_t rank : ranks)
        if (std::find(run_->ranks.begin(), run_->ranks.end(), rank) == run_->ranks.end())
          return Error{ErrorCode::kUsage, fmt::format("the run has no rank {}", rank), "--without-rank",
                       fmt::format("ranks {} to {}", run_->ranks.front(), run_->ranks.back())};
      answer.question =
          fmt::format("without what slows rank{} {}", ranks.size() == 1 ? "" : "s", analysis::ShortRankList(ranks));
      // Of one rank there is no question to put right: Answerable says why.
      if (run_->ranks.size() > 1 && ranks.size() >= run_->ranks.size())
        return Error{ErrorCode::kUsage, "no rank is left to compare with", "--without-rank", "leave one out"};
      answer.try_it = "give these ranks the work, the cores and the input that the others have";
      break;
    }
    case Question::kBucketCap: {
      const std::uint64_t total = buckets_ ? buckets_->total_bytes() : 0;
      const bool one = question.first_bytes >= total;
      answer.question =
          one ? "all gradients in one bucket" : fmt::format("bucket cap {}", Mebibytes(question.cap_bytes));
      if (run_->torch && buckets_)
        answer.try_it = DdpSettings(question.first_bytes, question.cap_bytes, total);
      else
        answer.try_it = one ? fmt::format("reduce all {} at once, after the backward pass", Mebibytes(total))
                            : fmt::format("reduce gradients in buckets of {}", Mebibytes(question.cap_bytes));
      // A change without effect is not recommended.
      if (buckets_ && SizesFor(*buckets_, question.first_bytes, question.cap_bytes).bytes == buckets_->bytes)
        answer.try_it.clear();
      break;
    }
    case Question::kTogether: {
      std::size_t bucketings = 0;
      for (const Question& each : question.together) {
        bucketings += each.kind == Question::kBucketCap;
        if (each.kind == Question::kPerfectSchedule || each.kind == Question::kMoreRanks || bucketings > 1)
          return Error{ErrorCode::kUsage, "these changes cannot be made together", "--together",
                       "at most one bucket cap, no --perfect-schedule, no --ranks"};
        Answer part;
        LS_CHECK(Describe(each, part));
        answer.question += (answer.question.empty() ? "" : " + ") + part.question;
        if (!part.try_it.empty()) answer.try_it += (answer.try_it.empty() ? "" : "; ") + part.try_it;
      }
      break;
    }
  }
  return Ok();
}

// One rank's recording contains its own time. What it waited for, and how the others would react to a change, is only
// in the others' recordings.
Status WhatIf::Answerable(const Question& question) const {
  const auto refused = [&](std::string_view alone, std::string_view of_several) {
    const bool all_there = run_->job_ranks <= 1;
    return Error{ErrorCode::kUnsupported,
                 all_there ? fmt::format("the job has one rank: {}", alone)
                           : fmt::format("of {} ranks only rank {} was recorded: {}", run_->job_ranks,
                                         run_->ranks.empty() ? 0 : run_->ranks.front(), of_several),
                 "", all_there ? "ask about a run of several ranks" : "record all ranks, or give the traces of all"};
  };
  const bool one = run_->ranks.size() < 2;
  switch (question.kind) {
    case Question::kSendsGo:
      // Kernels of GPUs do both halves of a message.
      if (!run_->moves_in_calls())
        return Error{ErrorCode::kUnsupported, "which sends waited is known of calls of MPI and gloo only", "",
                     "--free-communication bounds it"};
      if (one) return refused("it sends to nobody", "when the others receive is not known");
      return Ok();
    case Question::kTogether:
      for (const Question& each : question.together) LS_CHECK(Answerable(each));
      return Ok();
    case Question::kWithoutRanks:
    case Question::kEqualRanks:
      if (one) return refused("no other rank waits for it", "what the others do meanwhile is not known");
      return Ok();
    case Question::kFreeCommunication:
    case Question::kNetwork:
    case Question::kNoOverlap:
    case Question::kOverlap:
    case Question::kProgress:
    case Question::kPrefetch:
    case Question::kBucketCap:
    case Question::kPerfectSchedule:
    case Question::kMoreRanks:
      if (one)
        return refused("it communicates with nobody", "when the others come and how long data moves is not known");
      if (!communicates_)
        return Error{ErrorCode::kUnsupported, "the replayed steps have no communication between the ranks", "",
                     "check that it was recorded: lockstep doctor, lockstep analyze"};
      return Ok();
    case Question::kEdit:
      return Ok();
  }
  return Ok();
}

}  // namespace lockstep::replay
