#include "export/common/cluster.h"

#include <algorithm>
#include <queue>

namespace lockstep::exporters {

using schema::kNoTime;

namespace {

std::int64_t EndOf(const schema::TlCollectives& c, std::size_t row) {
  const std::int64_t last = c.last_arrival_ns[row] == kNoTime ? c.first_arrival_ns[row] : c.last_arrival_ns[row];
  return std::max({c.first_arrival_ns[row], last, c.end_ns[row]});
}

}  // namespace

std::vector<std::uint32_t> InstancesIn(const merge::Timeline& timeline, const Interval& window,
                                       const std::vector<std::int32_t>* ranks) {
  const schema::TlCollectives& c = timeline.tables.collectives;
  const schema::TlCollectiveRanks& members = timeline.tables.collective_ranks;
  std::vector<std::uint32_t> rows;
  for (std::uint32_t row = 0; row < c.rows(); ++row) {
    if (c.first_arrival_ns[row] == kNoTime) continue;
    if (EndOf(c, row) < window.begin || c.first_arrival_ns[row] >= window.end) continue;
    if (ranks != nullptr) {
      bool mine = false;
      for (std::size_t m = timeline.FirstMember(row); m < timeline.FirstMember(row + 1) && !mine; ++m)
        mine = std::binary_search(ranks->begin(), ranks->end(), members.rank[m]);
      if (!mine) continue;
    }
    rows.push_back(row);
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return c.first_arrival_ns[a] < c.first_arrival_ns[b]; });
  return rows;
}

std::vector<std::pair<std::uint32_t, std::uint64_t>> ChooseFlows(const merge::Timeline& timeline,
                                                                 const std::vector<std::uint32_t>& instances,
                                                                 const std::vector<std::int32_t>& ranks,
                                                                 std::size_t most, Selection& selection) {
  const schema::TlCollectives& c = timeline.tables.collectives;
  const schema::TlCollectiveRanks& members = timeline.tables.collective_ranks;
  selection.flows.clear();
  selection.flow_target.assign(c.rows(), false);
  // (wait, member): the smallest of those kept is on top. Of equal waits the earlier row stays.
  struct Wait {
    std::int64_t wait_ns;
    std::uint32_t member;
    bool operator>(const Wait& other) const {
      return wait_ns != other.wait_ns ? wait_ns > other.wait_ns : member < other.member;
    }
  };
  std::priority_queue<Wait, std::vector<Wait>, std::greater<>> kept;
  for (const std::uint32_t row : instances) {
    if (c.last_rank[row] < 0 || !std::binary_search(ranks.begin(), ranks.end(), c.last_rank[row])) continue;
    for (std::size_t m = timeline.FirstMember(row); m < timeline.FirstMember(row + 1); ++m) {
      // A wait below the clocks' error is not shown.
      if (members.wait_ns[m] <= c.error_ns[row] || members.rank[m] == c.last_rank[row]) continue;
      if (!std::binary_search(ranks.begin(), ranks.end(), members.rank[m])) continue;
      const Wait wait{members.wait_ns[m], static_cast<std::uint32_t>(m)};
      if (kept.size() < most) {
        kept.push(wait);
      } else if (most > 0 && wait > kept.top()) {
        kept.pop();
        kept.push(wait);
      }
    }
  }
  std::vector<std::uint32_t> chosen;
  for (; !kept.empty(); kept.pop()) chosen.push_back(kept.top().member);
  std::sort(chosen.begin(), chosen.end());
  std::vector<std::pair<std::uint32_t, std::uint64_t>> ends;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const std::uint32_t instance = members.collective[chosen[i]];
    selection.flows.emplace(chosen[i], i + 1);
    selection.flow_target[instance] = true;
    ends.emplace_back(instance, i + 1);
  }
  return ends;
}

Status WalkCluster(const merge::Timeline& timeline, const std::vector<std::uint32_t>& instances, const Interval& window,
                   const std::vector<Finding>& findings, const std::function<Status(const Event&)>& f) {
  const schema::TlSteps& steps = timeline.tables.steps;
  std::vector<std::int64_t> begins;  // Of steps that count.
  for (std::size_t row = 0; row < steps.rows(); ++row) {
    const std::int64_t begin = steps.begin_ns[row], end = std::max(begin, steps.end_ns[row]);
    if (begin == kNoTime || end < window.begin || begin >= window.end) continue;
    if (steps.complete[row] && !steps.warmup[row]) begins.push_back(begin);
    const schema::TlSteps::Row values = steps.Get(row);
    Event event{EventKind::kJobStep, begin, end, &values, row};
    LS_CHECK(f(event));
  }
  // A finding holds for all steps. Each is shown at the begin of another step, so that they do not cover each other.
  for (std::size_t i = 0; i < findings.size(); ++i) {
    std::int64_t at = begins.empty() ? window.begin : begins[i * begins.size() / findings.size()];
    at = std::clamp(at, window.begin, std::max(window.begin, window.end - 1));
    Event event{EventKind::kFinding, at, at, &findings[i], i};
    LS_CHECK(f(event));
  }
  const schema::TlCollectives& c = timeline.tables.collectives;
  for (const std::uint32_t row : instances) {
    const schema::TlCollectives::Row values = c.Get(row);
    Event event{EventKind::kInstance, c.first_arrival_ns[row], EndOf(c, row), &values, row};
    event.instance.instance = row;
    LS_CHECK(f(event));
    if (!c.splits[row]) continue;
    const std::int64_t last = c.last_arrival_ns[row], end = event.end_ns;
    if (last > event.begin_ns) {
      Event wait{EventKind::kWait, event.begin_ns, last, &values, row};
      wait.instance.instance = row;
      LS_CHECK(f(wait));
    }
    if (end > last) {
      Event transfer{EventKind::kTransfer, last, end, &values, row};
      transfer.instance.instance = row;
      LS_CHECK(f(transfer));
    }
  }
  return Ok();
}

}  // namespace lockstep::exporters
