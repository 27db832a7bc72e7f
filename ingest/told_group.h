#pragma once
// A process group as a trace names it.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::ingest {

struct ToldGroup {
  std::string name;
  std::vector<std::int32_t> ranks;  // World ranks, ascending.
};

}  // namespace lockstep::ingest
