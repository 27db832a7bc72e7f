#include "ingest/recorded/call_sites.h"

#include <string_view>

#include "trace/file/strings.h"

namespace lockstep::recorded {

const std::string& CallSites::Of(std::uint32_t caller) {
  const schema::Stacks& stacks = head_.stacks;
  if (caller >= stacks.rows()) return none_;
  const auto [at, fresh] = known_.try_emplace(caller);
  if (!fresh) return at->second;
  std::uint32_t found = caller;
  // A caller comes before what it calls: damage must not make a ring of them.
  for (std::uint32_t row = caller; row < stacks.rows();
       row = stacks.parent[row] < row ? stacks.parent[row] : schema::kNone) {
    if (stacks.library[row] != 0 || stacks.line[row] == 0) continue;
    found = row;
    break;
  }
  std::string& site = at->second;
  if (stacks.file[found] != schema::kNone) site = trace::TextOf(head_, stacks.file[found]);
  if (stacks.line[found] != 0) site += ":" + std::to_string(stacks.line[found]);
  const std::string function(trace::TextOf(head_, stacks.function[found]));
  if (!function.empty()) site += (site.empty() ? "" : " ") + function;
  return site;
}

}  // namespace lockstep::recorded
