#pragma once
// The question that a point of the bucket curve answers.

#include "analysis/core/model.h"
#include "analysis/replay/questions/what_if.h"

namespace lockstep::analysis {

// Gradients in buckets of `cap_mb` MiB, or all in one, the first bucket limited as the run limits it.
replay::Question QuestionOfCap(const Buckets& buckets, const replay::BucketSequence& sequence, double cap_mb,
                               bool one_bucket);

}  // namespace lockstep::analysis
