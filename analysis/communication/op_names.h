#pragma once
// How a kind of collectives is named in a sentence.

#include <cstdint>
#include <string>

#include "analysis/core/format.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// Of `n` of them: "all-reduce of 4.19 MB" of one, "all-reduces of 4.19 MB" of more.
inline std::string NameOfCollectives(const CollectiveRow& row, std::int64_t n) {
  const char* end = n == 1 ? "" : "s";
  if (row.op == "barrier" && row.bytes.value_or(0) == 0) return row.op + end;
  return (row.op == "none" ? "collective" + std::string(end) + " of unknown kind" : row.op + end) + " of " +
         (row.bytes ? Bytes(*row.bytes) : "a size that is not known");
}

}  // namespace lockstep::analysis
