#pragma once
// Which waits a running job is told about without asking: a healthy job waits long, too, while one of its ranks writes
// a checkpoint, evaluates, compiles or loads.

#include <cstdint>

#include "hang/judge.h"
#include "hang/progress.h"

namespace lockstep::hang {

// How long a wait of this verdict must last, in multiples of what the user asked for (`lockstep run --hang-after`);
// 0: it gives no alarm however long it lasts.
// 1: what no healthy job does: a rank is stopped or gone, or ranks wait in calls that do not belong together.
// 2.5: everybody is inside, or the rank that is waited for sleeps: the network may be slow, or a disk.
// 6: the rank that is waited for computes, or listens for something from outside the job; what it does is not known, or
//    nothing of it; or other ranks go on meanwhile (masters with workers wait like that by design).
// 0: what others wait for is not known.
double AllowanceOf(const Progress& progress, const Verdict& verdict, std::int64_t after_ns);

// Removes the verdicts that are no reason for an alarm. A wait for somebody who may come must also be twice as long as
// the longest one that came to its end on any of the ranks that wait: a job that has waited for so long before waits
// for the same again.
void KeepAlarms(const Progress& progress, std::int64_t after_ns, Judgement& judgement);

}  // namespace lockstep::hang
