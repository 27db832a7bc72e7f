#pragma once
// Where operations were called from, in words, as far as it was recorded (lockstep run --stacks calls).

#include <cstdint>
#include <map>
#include <string>

#include "core/schema.h"

namespace lockstep::recorded {

class CallSites {
 public:
  // Of a rank file's head, which must outlive it.
  explicit CallSites(const schema::RankTables& head) : head_(head) {}
  // Of a row of stacks: "train.py:88 step", the job's own function that lies nearest to the call, or the innermost one;
  // "" not known. Finding it again costs nothing.
  const std::string& Of(std::uint32_t caller);

 private:
  const schema::RankTables& head_;
  std::map<std::uint32_t, std::string> known_;
  const std::string none_;
};

}  // namespace lockstep::recorded
