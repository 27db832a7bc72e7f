#pragma once
// Reads what `ncclras` and `ncclras -v` print.

#include <string_view>
#include <vector>

#include "core/result.h"
#include "ingest/ras/answer.h"

namespace lockstep::ras {

// Several answers may follow one another. The text names a few ranks only, those that differ from most: what it says of
// the others follows from their number, and what it does not say stays unknown. kMalformed: it is something else.
Result<std::vector<Answer>> ReadTextAnswers(std::string_view text);

}  // namespace lockstep::ras
