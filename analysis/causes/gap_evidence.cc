#include "analysis/causes/gap_evidence.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "analysis/causes/sync_site.h"
#include "analysis/rules/causes.h"
#include "analysis/words/render.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

// Parts that the trace does not explain are one column.
constexpr auto kGroups = std::to_array<std::string_view>(
    {"input_ns", "before_forward_ns", "sync_ns", "memory_ns", "copy_ns", "load_ns", "communication_ns", "launch_ns",
     "call_ns", "operator_ns", "between_ns", "stream_wait_ns", "start_ns", "unexplained_ns"});
std::size_t GroupOf(gpu::PartKind kind) {
  if (gpu::Unexplained(kind)) return kGroups.size() - 1;
  const std::string column = std::string(gpu::PartKindName(kind)) + "_ns";
  return static_cast<std::size_t>(std::find(kGroups.begin(), kGroups.end(), column) - kGroups.begin());
}

}  // namespace

void GapEvidence::Look(const RankEvents& events,
                       const std::function<bool(const gpu::Gap&, std::size_t, const gpu::GapPart&, std::int64_t)>& f) {
  std::vector<std::pair<std::int64_t, const gpu::Gap*>> found;
  std::map<std::uint32_t, std::int64_t> after_call;
  for (const gpu::Gap& gap : events.gaps().gaps) {
    if (gap.device != events.device()) continue;
    std::int64_t own = 0;
    events.ForEachPart(gap, [&](std::size_t stretch, const gpu::GapPart& part, std::int64_t ns) {
      if (f(gap, stretch, part, ns)) own += ns;
    });
    if (own <= 0) continue;
    found.emplace_back(own, &gap);
    if (gaps_++ == 0) first_gap_ns_ = gap.at.begin;
    last_gap_ns_ = gap.at.begin;
    ns_ += own;
    if (gap.follows != schema::kNone) after_call[gap.follows] += own;
  }
  const auto where = [&](std::uint32_t blocking) {
    return Rendered(Where(SiteOf(events, events.gaps().blocking[blocking])));
  };
  for (const auto& [blocking, ns] : after_call) after_wait_[where(blocking)] += ns;
  const std::size_t kept = std::min(rules::kGapsListed, found.size());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(kept), found.end(),
                    [](const auto& a, const auto& b) {
                      return std::pair(-a.first, a.second->at.begin) < std::pair(-b.first, b.second->at.begin);
                    });
  found.resize(kept);
  const auto& ops = events.activity().timeline.ops;
  for (const auto& [own, gap] : found) {
    const gpu::RankView::Step* step = events.view().StepAt(gap->at.begin);
    Row row{events.view().rank,
            step != nullptr ? step->index : -1,
            gap->at.begin - events.origin_ns(),
            gap->at.end - gap->at.begin,
            own,
            std::vector<std::int64_t>(kGroups.size(), 0),
            {}};
    const gpu::GapPart* longest = nullptr;
    for (const gpu::GapPart& part : events.gaps().PartsOf(*gap)) {
      row.parts_ns[GroupOf(part.kind)] += part.at.end - part.at.begin;
      if (longest == nullptr || part.at.end - part.at.begin > longest->at.end - longest->at.begin) longest = &part;
    }
    const std::string name = longest != nullptr ? events.NameOf(*longest) : std::string();
    row.name = Told(Word::kGapRow,
                    {{"after", gap->follows != schema::kNone ? where(gap->follows) : std::string()},
                     {"mostly", name},
                     {"until", gap->after != schema::kNone ? ShortName(gpu::OpName(events.view(), ops[gap->after]))
                                                           : std::string()}});
    rows_.push_back(std::move(row));
  }
}

void GapEvidence::Look(const RankEvents& events, IdleKind kind, RankCost& cost,
                       const std::function<void(const gpu::GapPart& part, std::int64_t ns)>& f) {
  Look(events, [&](const gpu::Gap& gap, std::size_t stretch, const gpu::GapPart& part, std::int64_t ns) {
    if (RankEvents::KindOf(gap, part) != kind) return false;
    cost.ns[stretch] += ns;
    f(part, ns);
    return true;
  });
}

void GapEvidence::Add(GapEvidence&& next) {
  if (next.gaps_ == 0) return;
  if (gaps_ == 0) {
    *this = std::move(next);
    return;
  }
  const bool shared = next.first_gap_ns_ == last_gap_ns_;
  gaps_ += next.gaps_ - shared;
  ns_ += next.ns_;
  last_gap_ns_ = next.last_gap_ns_;
  for (const auto& [where, ns] : next.after_wait_) after_wait_[where] += ns;
  for (Row& row : next.rows_) {
    const auto same =
        std::find_if(rows_.begin(), rows_.end(), [&](const Row& mine) { return mine.at_ns == row.at_ns; });
    if (shared && same != rows_.end())
      same->own_ns += row.own_ns;
    else
      rows_.push_back(std::move(row));
  }
  std::sort(rows_.begin(), rows_.end(),
            [](const Row& a, const Row& b) { return std::pair(-a.own_ns, a.at_ns) < std::pair(-b.own_ns, b.at_ns); });
  rows_.resize(std::min(rows_.size(), rules::kGapsListed));
}

std::vector<Clause> GapEvidence::AfterWaits(const std::vector<const GapEvidence*>& ranks) {
  std::map<std::string, std::int64_t> sums;
  std::int64_t total = 0;
  for (const GapEvidence* rank : ranks) {
    total += rank->ns_;
    for (const auto& [where, ns] : rank->after_wait_) sums[where] += ns;
  }
  const auto most =
      std::max_element(sums.begin(), sums.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == sums.end() || LittleOf(most->second, total)) return {};
  return {Say(Word::kAfterWaits, {{"share", Share{static_cast<double>(most->second) / static_cast<double>(total)}},
                                  {"call", most->first}})};
}

Evidence GapEvidence::Rows(const std::vector<const GapEvidence*>& ranks) {
  std::vector<const Row*> rows;
  for (const GapEvidence* rank : ranks)
    for (const Row& row : rank->rows_) rows.push_back(&row);
  std::stable_sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
    return std::tuple(-a->own_ns, a->rank, a->at_ns) < std::tuple(-b->own_ns, b->rank, b->at_ns);
  });
  rows.resize(std::min(rows.size(), rules::kGapsListed));
  Evidence evidence{{"rank", "step", "at_ns", "length_ns", "of_this_ns"}, {}};
  std::vector<std::size_t> shown;
  for (std::size_t group = 0; group < kGroups.size(); ++group)
    if (std::any_of(rows.begin(), rows.end(), [&](const Row* row) { return row->parts_ns[group] > 0; })) {
      shown.push_back(group);
      evidence.columns.emplace_back(kGroups[group]);
    }
  for (const Row* row : rows) {
    std::vector<std::int64_t>& values = evidence.rows.emplace_back(
        std::vector<std::int64_t>{row->rank, Evidence::OrUnknown(row->step), row->at_ns, row->length_ns, row->own_ns});
    for (const std::size_t group : shown) values.push_back(row->parts_ns[group]);
    evidence.names.push_back(row->name);
  }
  return evidence;
}

}  // namespace lockstep::analysis
