#pragma once
// The verdict's tables: ranks and collectives.

#include "analysis/core/model.h"
#include "analysis/report/text_lines.h"

namespace lockstep::report {

void RanksTable(const analysis::Analysis& analysis, TextLines& out);
void CollectivesTable(const analysis::Analysis& analysis, TextLines& out);

}  // namespace lockstep::report
