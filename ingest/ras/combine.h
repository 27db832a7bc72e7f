#pragma once
// Answers of RAS as the progress of one job.

#include <string>
#include <vector>

#include "hang/progress.h"
#include "ingest/ras/answer.h"

namespace lockstep::ras {

// The last answer is judged, the ones before it tell since when it has been so. Ascending by time.
// `notes` gets what is odd and what RAS cannot tell, a sentence each.
//
// RAS counts the collectives that a rank has called. What the slowest rank of a communicator has not called cannot have
// completed, so whoever is ahead of it is taken to be inside the slowest one's next call; whether anything else has
// completed is not known. A rank whose process does not answer is taken to hold up its communicators.
hang::Progress Combine(const std::vector<Answer>& answers, std::vector<std::string>& notes);

}  // namespace lockstep::ras
