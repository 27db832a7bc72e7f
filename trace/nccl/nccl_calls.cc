#include "trace/nccl/nccl_calls.h"

#include <algorithm>

#include "trace/file/strings.h"

namespace lockstep::trace {
namespace {

using schema::kNone;

}  // namespace

NcclCalls::NcclCalls(const schema::RankTables& texts, std::span<const NcclCallRow> calls)
    : calls_(calls), group_end_(calls.size(), kNone), group_of_end_(calls.size(), kNone) {
  std::uint32_t threads = 0;
  for (const NcclCallRow& call : calls) threads = std::max(threads, call.thread + 1);
  std::vector<std::vector<std::uint32_t>> all(threads);
  for (std::uint32_t i = 0; i < calls.size(); ++i) all[calls[i].thread].push_back(i);
  operations_of_.resize(threads);
  ends_of_.resize(threads);
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    // Calls are written when they return, so outer ones come after those inside.
    std::stable_sort(all[thread].begin(), all[thread].end(), [&](std::uint32_t a, std::uint32_t b) {
      if (calls[a].begin_ns != calls[b].begin_ns) return calls[a].begin_ns < calls[b].begin_ns;
      return calls[a].end_ns > calls[b].end_ns;
    });
    const NcclCallRow* outer = nullptr;
    std::uint32_t depth = 0;
    std::vector<std::uint32_t> open;
    for (const std::uint32_t i : all[thread]) {
      const NcclCallRow& call = calls[i];
      if (outer != nullptr && call.end_ns <= outer->end_ns && call.begin_ns < outer->end_ns) continue;
      if (call.function != 0) {
        outer = &call;
        operations_of_[thread].push_back(i);
        if (depth > 0) open.push_back(i);
        continue;
      }
      const std::string_view name = TextOf(texts, call.name);
      if (name == "ncclGroupStart") {
        outer = &call;
        ++depth;
      } else if (name == "ncclGroupEnd" || name == "ncclGroupSimulateEnd") {
        outer = &call;
        ends_of_[thread].push_back(i);
        // There is one more end than starts: the group began before recording did.
        if (depth > 0) --depth;
        if (depth > 0) continue;
        if (name == "ncclGroupSimulateEnd") {  // The simulated group did not run.
          std::vector<std::uint32_t>& known = operations_of_[thread];
          std::erase_if(known, [&](std::uint32_t at) { return std::find(open.begin(), open.end(), at) != open.end(); });
          open.clear();
          continue;
        }
        group_of_end_[i] = static_cast<std::uint32_t>(groups_.size());
        for (const std::uint32_t member : open) group_end_[member] = i;
        groups_.push_back(std::move(open));
        open = {};
      }
    }
    operations_.insert(operations_.end(), operations_of_[thread].begin(), operations_of_[thread].end());
  }
}

std::uint32_t NcclCalls::Find(const std::vector<std::vector<std::uint32_t>>& threads, std::uint32_t thread,
                              std::int64_t ns) const {
  if (thread >= threads.size()) return kNone;
  const auto after = std::upper_bound(threads[thread].begin(), threads[thread].end(), ns,
                                      [&](std::int64_t t, std::uint32_t i) { return t < calls_[i].begin_ns; });
  if (after == threads[thread].begin() || calls_[after[-1]].end_ns < ns) return kNone;
  return after[-1];
}

std::uint32_t NcclCalls::Around(std::uint32_t thread, std::int64_t ns) const {
  return Find(operations_of_, thread, ns);
}

std::uint32_t NcclCalls::GroupEndAround(std::uint32_t thread, std::int64_t ns) const {
  return Find(ends_of_, thread, ns);
}

std::span<const std::uint32_t> NcclCalls::GroupOf(std::uint32_t group_end) const {
  if (group_of_end_[group_end] == kNone) return {};
  return groups_[group_of_end_[group_end]];
}

}  // namespace lockstep::trace
