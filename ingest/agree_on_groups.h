#pragma once
// Finds which of the ranks' communicators are the same.

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "ingest/foreign.h"

namespace lockstep::ingest {

// Members of a group must give it one identity. Where no two of them call it by the same
// name, names say nothing there: groups of the same members and description are
// counted instead, in the order of their names, which is the order they were made in.
// `ranks`: each with its file's summary, whose groups get what they are the same by (`as`). The ranks of which some
// group did.
std::set<std::int32_t> AgreeOnGroups(const std::vector<std::pair<std::int32_t, TraceSummary*>>& ranks);

}  // namespace lockstep::ingest
