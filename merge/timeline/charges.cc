#include "merge/timeline/charges.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "core/uneven.h"
#include "merge/parallel.h"
#include "merge/rules/match.h"
#include "merge/saturated.h"

namespace lockstep::merge {

class Charges::Awaited {
 public:
  Awaited(const Timeline& timeline, std::size_t collective, std::span<const std::uint32_t> order,
          std::span<const double> share_ns)
      : members_(timeline.tables.collective_ranks), order_(order), share_ns_(share_ns) {
    const auto& t = timeline.tables.collectives;
    whole_ = t.seen[collective] >= t.expected[collective];
    resolution_ns_ = Sum(t.error_ns[collective], t.error_ns[collective]);
  }

  bool whole() const { return whole_; }
  std::int64_t resolution_ns() const { return resolution_ns_; }
  std::size_t size() const { return order_.size(); }
  std::uint32_t member(std::size_t k) const { return order_[k]; }
  std::int32_t RankOf(std::size_t k) const { return members_.rank[order_[k]]; }
  std::int64_t ArrivalNs(std::size_t k) const { return members_.arrival_ns[order_[k]]; }
  double ShareNs(std::size_t k) const { return share_ns_[k]; }

  std::int64_t WaitNs(std::size_t member) const { return std::max<std::int64_t>(0, members_.wait_ns[member]); }
  std::int64_t UntilNs(std::size_t member) const { return members_.arrival_ns[member] + WaitNs(member); }

  std::size_t FirstFrom(std::int64_t ns) const {
    const auto at = std::lower_bound(order_.begin(), order_.end(), ns, [&](std::uint32_t one, std::int64_t from) {
      return members_.arrival_ns[one] < from;
    });
    return static_cast<std::size_t>(at - order_.begin());
  }
  // The one that a member waited for, where it does not wait for all: it left while others were missing, when this one
  // came (libraries let members wait for some of the others only). size() where it waits for all.
  std::size_t OnlyFor(std::size_t member) const {
    const std::int64_t until = UntilNs(member);
    if (size() == 0 || until >= ArrivalNs(size() - 1) || until >= members_.end_high_ns[member]) return size();
    const std::size_t at = FirstFrom(until);
    return ArrivalNs(at) == until ? at : size();
  }
  // Of a rank that waits from the first arrival until then.
  double ShareAt(std::int64_t ns) const {
    const std::size_t after = FirstFrom(ns + 1);
    const auto left = static_cast<double>(size() - after);
    if (left == 0) return size() == 0 ? 0 : share_ns_.back();
    // Before the first one all are missing.
    if (after == 0) return static_cast<double>(ns - ArrivalNs(0)) / left;
    return share_ns_[after - 1] + static_cast<double>(ns - ArrivalNs(after - 1)) / left;
  }
  // What a rank that came at `from_ns` and waits until `until_ns` charges.
  double Between(std::int64_t from_ns, std::int64_t until_ns, std::size_t k) const {
    if (ArrivalNs(k) - from_ns <= resolution_ns_) return 0;
    return std::max(0.0, (until_ns < ArrivalNs(k) ? ShareAt(until_ns) : ShareNs(k)) - ShareAt(from_ns));
  }

 private:
  const schema::TlCollectiveRanks& members_;
  std::span<const std::uint32_t> order_;
  std::span<const double> share_ns_;
  bool whole_;
  std::int64_t resolution_ns_;
};

Charges::Charges(const Timeline& timeline, unsigned jobs)
    : timeline_(timeline),
      order_(timeline.tables.collective_ranks.rows()),
      share_ns_(order_.size(), 0),
      awaited_(timeline.tables.collectives.rows(), 0) {
  const auto& members = timeline.tables.collective_ranks;
  ParallelChunks(jobs, awaited_.size(), rules::kChargesPerTask, [&](std::size_t begin, std::size_t end) {
    for (std::size_t c = begin; c < end; ++c) {
      const std::size_t first = timeline_.FirstMember(c);
      std::size_t n = 0;
      for (std::size_t m = first; m < timeline_.FirstMember(c + 1); ++m)
        if ((members.exempt[m] & kAwaitedByNobody) == 0) order_[first + n++] = static_cast<std::uint32_t>(m);
      const std::span<std::uint32_t> order = std::span(order_).subspan(first, n);
      std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(members.arrival_ns[a], a) < std::pair(members.arrival_ns[b], b);
      });
      for (std::size_t k = 1; k < n; ++k)
        share_ns_[first + k] = share_ns_[first + k - 1] +
                               static_cast<double>(members.arrival_ns[order[k]] - members.arrival_ns[order[k - 1]]) /
                                   static_cast<double>(n - k);
      awaited_[c] = static_cast<std::uint32_t>(n);
    }
  });
}

Charges::Awaited Charges::In(std::size_t collective) const {
  const std::size_t first = timeline_.FirstMember(collective), n = awaited_[collective];
  return Awaited(timeline_, collective, std::span(order_).subspan(first, n), std::span(share_ns_).subspan(first, n));
}

double Charges::Of(std::size_t member, std::size_t charged) const {
  const auto& members = timeline_.tables.collective_ranks;
  const Awaited awaited = In(members.collective[member]);
  if (!awaited.whole() || awaited.WaitNs(member) == 0 || member == charged) return 0;
  if (const std::size_t only = awaited.OnlyFor(member); only < awaited.size())
    return awaited.member(only) == charged && awaited.WaitNs(member) > awaited.resolution_ns()
               ? static_cast<double>(awaited.WaitNs(member))
               : 0;
  for (std::size_t k = awaited.FirstFrom(members.arrival_ns[charged]);
       k < awaited.size() && awaited.ArrivalNs(k) == members.arrival_ns[charged]; ++k)
    if (awaited.member(k) == charged) return awaited.Between(members.arrival_ns[member], awaited.UntilNs(member), k);
  return 0;
}

void Charges::EachOf(std::size_t member, const std::function<void(std::int32_t, double)>& f) const {
  const auto& members = timeline_.tables.collective_ranks;
  const Awaited awaited = In(members.collective[member]);
  const auto wait = static_cast<double>(awaited.WaitNs(member));
  if (wait == 0) return;
  if (!awaited.whole()) return f(kNotRecorded, wait);
  if (const std::size_t only = awaited.OnlyFor(member); only < awaited.size())
    return f(awaited.WaitNs(member) > awaited.resolution_ns() ? awaited.RankOf(only) : kClocks, wait);
  const std::int64_t from = members.arrival_ns[member];
  std::size_t k = awaited.FirstFrom(from + 1);
  if (k == awaited.size()) return f(kNobodyKnown, wait);
  double rest = wait;
  for (; k < awaited.size(); ++k) {
    const double ns = awaited.Between(from, awaited.UntilNs(member), k);
    if (ns <= 0) continue;
    rest -= ns;
    f(awaited.RankOf(k), ns);
  }
  if (rest > 0) f(kClocks, rest);
}

// Of ranks that wait for all others, what each of these is charged with follows from how many of them came before it,
// and when.
void Charges::EachOfAll(std::size_t collective, const std::function<void(std::int32_t, double)>& f) const {
  const auto& members = timeline_.tables.collective_ranks;
  const Awaited awaited = In(collective);
  std::vector<std::pair<std::int64_t, double>> waiting;  // When it came, and its share then.
  double rest = 0;
  for (std::size_t m = timeline_.FirstMember(collective); m < timeline_.FirstMember(collective + 1); ++m) {
    if (awaited.WaitNs(m) == 0) continue;
    if (!awaited.whole() || awaited.size() == 0 || awaited.UntilNs(m) != awaited.ArrivalNs(awaited.size() - 1)) {
      EachOf(m, f);
      continue;
    }
    rest += static_cast<double>(awaited.WaitNs(m));
    waiting.emplace_back(members.arrival_ns[m], awaited.ShareAt(members.arrival_ns[m]));
  }
  std::sort(waiting.begin(), waiting.end());
  std::size_t before = 0;
  double shares = 0;
  for (std::size_t k = 0; k < awaited.size(); ++k) {
    for (; before < waiting.size() && awaited.ArrivalNs(k) - waiting[before].first > awaited.resolution_ns(); ++before)
      shares += waiting[before].second;
    const double ns = static_cast<double>(before) * awaited.ShareNs(k) - shares;
    if (ns <= 0) continue;
    rest -= ns;
    f(awaited.RankOf(k), ns);
  }
  if (rest > 0) f(kClocks, rest);
}

}  // namespace lockstep::merge
