#pragma once
// What readers of a rank file's tables rely on, whatever its spool looked like.

#include <string>

#include "core/schema.h"

namespace lockstep::fuzz {

// "" or what is wrong: a row number, string or thread that leads nowhere, a
// negative duration.
std::string CheckTables(const schema::RankTables& tables);

}  // namespace lockstep::fuzz
