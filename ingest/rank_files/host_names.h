#pragma once
// What to call the hosts of a run's ranks. The name that a host gives itself need not be its own: hosts out of one
// image may all be "localhost". A host is its name and its boot together, as several containers of one boot are hosts
// of their own too.

#include <map>
#include <string>
#include <vector>

#include "core/schema.h"

namespace lockstep::ingest {

class HostNames {
 public:
  // `heads`: of all ranks, in their order; they are not kept. Hosts that share a name are NAME#1, NAME#2, .. in the
  // order of their first ranks. A file that does not say the boot (an imported trace) is of the only host with its
  // name, or, if there are several, of none of these.
  explicit HostNames(const std::vector<const schema::RankTables*>& heads);

  // Of one of these heads; "" if its host is not known.
  const std::string& Of(const schema::RankTables& head) const;

 private:
  std::map<std::string, std::map<std::string, std::string>> names_;  // By what the host calls itself, by boot.
};

}  // namespace lockstep::ingest
