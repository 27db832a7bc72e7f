#include "rule_table.h"

#include <vector>

#include "analysis/rules/causes.h"
#include "analysis/rules/diff.h"
#include "analysis/rules/network.h"
#include "analysis/rules/replay.h"
#include "analysis/rules/run.h"
#include "analysis/rules/stragglers.h"
#include "core/rules/common.h"
#include "merge/rules/clock.h"
#include "merge/rules/match.h"

namespace lockstep::rules {

std::span<const Rule> Table() {
  static const std::vector<Rule> rows = {
#define LS_LIMIT(...)
#define LS_FACT(...)
#define LS_RULE(name, type, value, ...)                                                      \
  {LIST, #name, #type, __VA_ARGS__, static_cast<double>(value), &held::name, [](double to) { \
     held::name = static_cast<type>(to);                                                     \
   }},
#define LIST "common"
#include "core/rules/common.def"
#undef LIST
#define LIST "stragglers"
#include "analysis/rules/stragglers.def"
#undef LIST
#define LIST "network"
#include "analysis/rules/network.def"
#undef LIST
#define LIST "replay"
#include "analysis/rules/replay.def"
#undef LIST
#define LIST "causes"
#include "analysis/rules/causes.def"
#undef LIST
#define LIST "run"
#include "analysis/rules/run.def"
#undef LIST
#define LIST "diff"
#include "analysis/rules/diff.def"
#undef LIST
#define LIST "match"
#include "merge/rules/match.def"
#undef LIST
#define LIST "clock"
#include "merge/rules/clock.def"
#undef LIST
#undef LS_RULE
#undef LS_LIMIT
#undef LS_FACT
  };
  return rows;
}

}  // namespace lockstep::rules
