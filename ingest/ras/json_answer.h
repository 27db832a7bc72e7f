#pragma once
// Reads what `ncclras -f json` prints.

#include <string_view>
#include <vector>

#include "core/result.h"
#include "ingest/ras/answer.h"

namespace lockstep::ras {

// Several answers may follow one another; what stands before the first brace is skipped (replies of the protocol).
// kMalformed: cut off, damaged, or something else.
Result<std::vector<Answer>> ReadJsonAnswers(std::string_view text);

}  // namespace lockstep::ras
