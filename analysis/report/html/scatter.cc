#include "analysis/report/html/scatter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "core/collective.h"

namespace lockstep::report {
namespace {

// Bins per factor of two; a bin is narrower than a drawn point.
constexpr double kBinsOfSize = 8, kBinsOfTime = 12;

struct Kind {
  std::uint8_t kind = 0;
  std::uint32_t members = 0;
  std::vector<std::int64_t> bytes, transfer_ns, step;
};

PageJson Bins(const Kind& kind) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts;
  for (std::size_t i = 0; i < kind.bytes.size(); ++i)
    ++counts[{std::llround(kBinsOfSize * std::log2(static_cast<double>(kind.bytes[i]))),
              std::llround(kBinsOfTime * std::log2(static_cast<double>(kind.transfer_ns[i])))}];
  std::vector<std::int64_t> bytes, transfer_ns, count;
  for (const auto& [bin, n] : counts) {
    bytes.push_back(std::llround(std::exp2(static_cast<double>(bin.first) / kBinsOfSize)));
    transfer_ns.push_back(std::llround(std::exp2(static_cast<double>(bin.second) / kBinsOfTime)));
    count.push_back(n);
  }
  return {{"bytes", Packed(bytes)}, {"transfer_ns", Packed(transfer_ns)}, {"count", Packed(count)}};
}

}  // namespace

PageJson ScatterOf(const analysis::Context& context, std::size_t most_points) {
  const auto& t = context.tables().collectives;
  std::map<std::pair<std::uint8_t, std::uint32_t>, Kind> kinds;
  std::int64_t left_out = 0;
  for (std::size_t c = 0; c < t.rows(); ++c) {
    if (!context.Counts(c) || t.bytes[c] == 0) continue;
    // As in the table of collectives: sound, certain, and of this operation alone.
    const bool sound = !t.mismatch[c] && !t.violation[c] && t.seen[c] == t.expected[c];
    if (!sound || t.transfer_ns[c] <= 0 || t.censored[c] || t.uneven[c] || t.operations[c] > 1) {
      ++left_out;
      continue;
    }
    Kind& kind = kinds[{t.kind[c], t.expected[c]}];
    kind.kind = t.kind[c];
    kind.members = t.expected[c];
    kind.bytes.push_back(static_cast<std::int64_t>(std::min<std::uint64_t>(t.bytes[c], INT64_MAX)));
    kind.transfer_ns.push_back(t.transfer_ns[c]);
    kind.step.push_back(t.step[c] < 0 ? kUnknownCell : t.step[c]);
  }
  std::vector<const Kind*> order;
  for (const auto& [key, kind] : kinds) order.push_back(&kind);
  std::stable_sort(order.begin(), order.end(),
                   [](const Kind* a, const Kind* b) { return a->bytes.size() > b->bytes.size(); });
  PageJson json{{"left_out", left_out}, {"kinds", PageJson::array()}};
  for (const Kind* kind : order) {
    PageJson one{{"op", Name(static_cast<CollectiveKind>(kind->kind))},
                 {"members", kind->members},
                 {"count", kind->bytes.size()}};
    if (kind->bytes.size() > most_points)
      one["bins"] = Bins(*kind);
    else
      one["points"] = {
          {"bytes", Packed(kind->bytes)}, {"transfer_ns", Packed(kind->transfer_ns)}, {"step", Packed(kind->step)}};
    json["kinds"].push_back(std::move(one));
  }
  return json;
}

}  // namespace lockstep::report
