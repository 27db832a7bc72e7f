#pragma once
// The identity's terms as merge's files have them, as the model's struct.

#include "analysis/core/model.h"
#include "merge/timeline/step_length.h"

namespace lockstep::analysis {

inline IdentityTerms IdentityOf(const merge::TermValues& values, bool device_unknown = false) {
  IdentityTerms terms;
  std::size_t next = 0;
#define LS_TERM_(name) terms.name = values[next++];
  LS_IDENTITY(LS_TERM_)
#undef LS_TERM_
  terms.device_unknown = device_unknown;
  return terms;
}

}  // namespace lockstep::analysis
