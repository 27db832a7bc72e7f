#include "analysis/replayed/message_rates.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "analysis/core/binomial.h"
#include "analysis/core/statistics.h"
#include "analysis/passes.h"
#include "analysis/replayed/message_transfers.h"
#include "analysis/replayed/replayed_run.h"
#include "analysis/rules/network.h"
#include "core/rules/common.h"

namespace lockstep::analysis {
namespace {

using MessageClass = std::array<int, 3>;              // Transfer::of.
using MedianRates = std::pair<std::int64_t, double>;  // Median time, median bytes per ns.
using Of = std::function<bool(const Way&)>;

Way Both(const Way& way) { return std::minmax(way.first, way.second); }
bool Touches(const Way& way, std::uint32_t host) { return way.first == host || way.second == host; }
bool AnyOf(const std::vector<Way>& ways, const Of& of) { return std::any_of(ways.begin(), ways.end(), of); }
bool AllOf(const std::vector<Way>& ways, const Of& of) { return std::all_of(ways.begin(), ways.end(), of); }

// What may be slow.
struct Suspect {
  std::vector<std::uint32_t> hosts;
  SlowMessages::Direction direction;
  Of own, others;         // Its ways, and those it is compared with.
  std::vector<Of> parts;  // Of a host: each pair or way that must be slow by itself; two at least.
};

class MessageFinder {
 public:
  // `times`: by how much a slow message is slower.
  MessageFinder(const Context& context, const ReplayedRun& replayed, double times)
      : context_(context),
        run_(replayed.run()),
        times_(times),
        transfers_(TransfersBetweenHosts(context, replayed.run())) {
    std::erase_if(transfers_, [](const Transfer& transfer) { return !transfer.timed(); });
    for (const Transfer& each : transfers_) alike_[{each.of, each.ways, each.sent}].push_back(&each);
  }

  std::optional<SlowMessages> Find() {
    for (const auto& [key, transfers] : alike_)
      for (const Way& way : std::get<1>(key)) {
        hosts_.insert({way.first, way.second});
        ways_.insert(way);
        pairs_.insert(Both(way));
      }
    if (hosts_.size() < 2) return std::nullopt;
    asked_ = static_cast<double>(ways_.size() + pairs_.size() + 3 * hosts_.size());
    // From what explains the least to what explains the most.
    std::vector<std::vector<Suspect>> levels{OneWays()};
    if (hosts_.size() > 2) levels = {OneWays(), Pairs(), HostsOneWay(), Hosts()};
    std::vector<std::vector<Slow>> slow;
    double least = 1;
    for (const std::vector<Suspect>& suspects : levels) {
      slow.push_back(SlowOnes(suspects));
      for (const Slow& each : slow.back()) least = std::min(least, each.compared.Unexplained());
    }
    for (std::size_t level = 0; level < slow.size(); ++level) {
      std::vector<Slow>& ones = slow[level];
      std::erase_if(ones, [&](const Slow& one) {
        const auto is_part = [&](const Slow& whole) { return IsPartOf(*one.suspect, *whole.suspect); };
        return one.compared.Unexplained() > least + 1 - rules::kNearlyAll ||
               std::any_of(slow.begin() + static_cast<std::ptrdiff_t>(level) + 1, slow.end(),
                           [&](const auto& wider) { return std::any_of(wider.begin(), wider.end(), is_part); });
      });
      const Slow* single = Single(ones);
      if (single == nullptr) continue;
      SlowMessages found = Describe(*single);
      found.rates = AllRates();
      return found;
    }
    return std::nullopt;
  }

 private:
  using Direction = SlowMessages::Direction;

  std::vector<Suspect> OneWays() const {
    std::vector<Suspect> suspects;
    for (const Way& way : ways_)
      suspects.push_back({{way.first, way.second},
                          Direction::kFrom,
                          [way](const Way& each) { return each == way; },
                          [way](const Way& each) { return each != way; },
                          {}});
    return suspects;
  }
  std::vector<Suspect> Pairs() const {
    std::vector<Suspect> suspects;
    for (const Way& pair : pairs_)
      suspects.push_back({{pair.first, pair.second},
                          Direction::kBoth,
                          [pair](const Way& each) { return Both(each) == pair; },
                          [pair](const Way& each) { return Both(each) != pair; },
                          {}});
    return suspects;
  }
  // What a host sends; what it receives.
  std::vector<Suspect> HostsOneWay() const {
    std::vector<Suspect> suspects;
    for (const std::uint32_t host : hosts_)
      for (const Direction direction : {Direction::kFrom, Direction::kTo}) {
        const auto own = [host, direction](const Way& way) {
          return (direction == Direction::kFrom ? way.first : way.second) == host;
        };
        Suspect suspect{{host}, direction, own, [own](const Way& way) { return !own(way); }, {}};
        for (const Way& way : ways_)
          if (own(way)) suspect.parts.push_back([way](const Way& each) { return each == way; });
        if (suspect.parts.size() > 1) suspects.push_back(std::move(suspect));
      }
    return suspects;
  }
  std::vector<Suspect> Hosts() const {
    std::vector<Suspect> suspects;
    for (const std::uint32_t host : hosts_) {
      Suspect suspect{{host},
                      Direction::kBoth,
                      [host](const Way& way) { return Touches(way, host); },
                      [host](const Way& way) { return !Touches(way, host); },
                      {}};
      for (const Way& pair : pairs_)
        if (Touches(pair, host)) suspect.parts.push_back([pair](const Way& each) { return Both(each) == pair; });
      if (suspect.parts.size() > 1) suspects.push_back(std::move(suspect));
    }
    return suspects;
  }

  struct Compared {
    std::size_t slow = 0, all = 0, others_slow = 0, others = 0;
    std::map<MessageClass, MedianRates> others_rates;
    bool Mostly() const { return all >= rules::kFewest && NearlyAllOf(slow, all); }
    // The share of the others that are slow as well.
    double Unexplained() const {
      return others > 0 ? static_cast<double>(others_slow) / static_cast<double>(others) : 0;
    }
  };
  struct Slow {
    const Suspect* suspect;
    Compared compared;
    double p_value;
  };
  std::vector<Slow> SlowOnes(const std::vector<Suspect>& suspects) const {
    std::vector<Slow> slow;
    for (const Suspect& suspect : suspects) {
      Compared compared = Compare(suspect.own, suspect.others);
      if (!compared.Mostly()) continue;
      const double p_value = ChanceOf(compared);
      if (p_value < rules::kChance && AllSlow(suspect)) slow.push_back({&suspect, std::move(compared), p_value});
    }
    return slow;
  }
  // Whether the rest of `whole` is slow, too. A call that sends on a way of `part` may have waited for that.
  bool IsPartOf(const Suspect& part, const Suspect& whole) const {
    const auto of_part = [&](const Way& way) { return part.own(way); };
    const auto of_rest = [&](const Way& way) { return whole.own(way) && !part.own(way); };
    const bool within =
        std::all_of(ways_.begin(), ways_.end(), [&](const Way& way) { return !part.own(way) || whole.own(way); });
    return within && Compare(of_rest, whole.others, of_part).Mostly();
  }
  bool AllSlow(const Suspect& suspect) const {
    std::size_t slow = 0, judged = 0;
    for (const Of& part : suspect.parts) {
      const Compared compared = Compare(part, suspect.others);
      judged += compared.all >= rules::kFewest;
      slow += compared.Mostly();
    }
    return suspect.parts.empty() || (slow > 1 && slow == judged);
  }
  // The one that leaves less unexplained than any other does; null if several explain as much.
  static const Slow* Single(std::vector<Slow>& ones) {
    if (ones.empty()) return nullptr;
    std::stable_sort(ones.begin(), ones.end(),
                     [](const Slow& a, const Slow& b) { return a.compared.others_slow < b.compared.others_slow; });
    if (ones.size() == 1) return &ones[0];
    const std::size_t least = ones[0].compared.others_slow, next = ones[1].compared.others_slow;
    return next >= rules::kFewest && !HalfOf(least, next) ? &ones[0] : nullptr;
  }

  static MedianRates RatesOf(const std::vector<const Transfer*>& transfers) {
    std::vector<std::int64_t> ns;
    std::vector<double> rates;
    for (const Transfer* each : transfers) {
      ns.push_back(each->most_ns);
      rates.push_back(each->rate());
    }
    return {LowerMedian(std::move(ns)), LowerMedian(std::move(rates))};
  }
  bool IsSlow(const Transfer& transfer, std::int64_t ns, const MedianRates& beside) const {
    return static_cast<double>(ns) >= times_ * static_cast<double>(beside.first) &&
           static_cast<double>(transfer.bytes) * times_ <= beside.second * static_cast<double>(ns);
  }
  // One that is slow at most and not at least says nothing, and is not counted.
  void Count(const std::vector<const Transfer*>& transfers, const MedianRates& beside, std::size_t& slow,
             std::size_t& all) const {
    for (const Transfer* each : transfers) {
      const bool surely = IsSlow(*each, each->least_ns, beside);
      slow += surely;
      all += surely || !IsSlow(*each, each->most_ns, beside);
    }
  }

  // A call that waits for several ways is as slow as the slowest: it is of `own` if it receives something on one of
  // these, of the others if all its ways are. One that only sends on a way of `own` may have waited for that: it says
  // how fast the others are only where nothing else does.
  // `without`: calls that receive or send on such a way are left out.
  Compared Compare(
      const Of& own, const Of& others, const Of& without = [](const Way&) { return false; }) const {
    struct Class {
      std::vector<const Transfer*> own, others, senders;
    };
    std::map<MessageClass, Class> classes;
    for (const auto& [key, transfers] : alike_) {
      const auto& [of, ways, sent] = key;
      if (AnyOf(ways, without) || AnyOf(sent, without) || !(AnyOf(ways, own) || AllOf(ways, others))) continue;
      Class& one = classes[of];
      std::vector<const Transfer*>& part = AnyOf(ways, own) ? one.own : AllOf(sent, others) ? one.others : one.senders;
      part.insert(part.end(), transfers.begin(), transfers.end());
    }
    Compared result;
    for (auto& [of, both] : classes) {
      if (both.others.size() < rules::kFewest)
        both.others.insert(both.others.end(), both.senders.begin(), both.senders.end());
      // What the others take is told by those of which it is known better than what is asked.
      std::vector<const Transfer*> known = both.others;
      std::erase_if(known, [&](const Transfer* each) {
        return static_cast<double>(each->most_ns) >= times_ * static_cast<double>(each->least_ns);
      });
      if (known.size() < rules::kFewest) continue;
      const MedianRates rates = RatesOf(known);
      result.others_rates[of] = rates;
      Count(both.own, rates, result.slow, result.all);
      Count(both.others, rates, result.others_slow, result.others);
    }
    return result;
  }
  double ChanceOf(const Compared& compared) const {
    // One more than were seen: that none of few is slow does not say that none ever is.
    const double share = static_cast<double>(compared.others_slow + 1) / static_cast<double>(compared.others + 2);
    return std::min(
        1.0, asked_ * BinomialTail(static_cast<double>(compared.slow), static_cast<double>(compared.all), share));
  }

  SlowMessages Describe(const Slow& slow_one) const {
    const Suspect& suspect = *slow_one.suspect;
    const Compared& compared = slow_one.compared;
    SlowMessages found;
    found.slow = static_cast<std::int64_t>(compared.slow);
    found.compared = static_cast<std::int64_t>(compared.all);
    found.p_value = slow_one.p_value;
    found.hosts = suspect.hosts;
    found.direction = suspect.direction;
    found.beside_the_way_back = hosts_.size() == 2;
    found.ordinary_ns.assign(run_.messages.size(), -1);
    std::map<MessageClass, std::pair<std::int64_t, std::vector<const Transfer*>>> lost;  // Beyond the others' rate.
    std::map<std::uint32_t, std::int64_t> of_rank;
    std::vector<std::size_t> slow_messages;
    for (const Transfer& each : transfers_) {
      const auto rates = compared.others_rates.find(each.of);
      if (rates == compared.others_rates.end() || !AnyOf(each.ways, suspect.own)) continue;
      const std::int64_t ordinary_ns = std::llround(static_cast<double>(each.bytes) / rates->second.second);
      for (const std::size_t i : each.messages) found.ordinary_ns[i] = ordinary_ns;
      slow_messages.insert(slow_messages.end(), each.messages.begin(), each.messages.end());
      for (const std::size_t i : each.within_host) found.ordinary_ns[i] = ordinary_ns;
      const std::int64_t beyond = std::max<std::int64_t>(0, each.least_ns - ordinary_ns);
      lost[each.of].first += beyond;
      lost[each.of].second.push_back(&each);
      of_rank[run_.messages[each.messages.front()].to] += beyond;
    }
    PriceSendersCalls(slow_messages, found.ordinary_ns);
    for (const auto& [rank, ns] : of_rank)
      found.behind_ns =
          std::max(found.behind_ns, ns / static_cast<std::int64_t>(std::max<std::size_t>(1, run_.steps.size())));
    const auto worst = std::max_element(lost.begin(), lost.end(),
                                        [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    const MedianRates slow = RatesOf(worst->second.second), ordinary = compared.others_rates.at(worst->first);
    std::vector<std::uint64_t> bytes;
    for (const Transfer* each : worst->second.second) bytes.push_back(each->bytes);
    found.bytes = LowerMedian(std::move(bytes));
    found.slow_ns = slow.first;
    found.slow_rate = 1e9 * slow.second;
    found.others_ns = ordinary.first;
    found.others_rate = 1e9 * ordinary.second;
    found.several_ways = worst->first[2] > 0;
    return found;
  }

  // The replay has one duration of a call, by whichever of its messages was there last: a call that sends one of these
  // messages takes no longer than that for what it receives.
  void PriceSendersCalls(const std::vector<std::size_t>& slow_messages, std::vector<std::int64_t>& ordinary_ns) const {
    std::map<std::pair<std::uint32_t, std::int64_t>, std::int64_t> calls;
    for (const std::size_t i : slow_messages) {
      std::int64_t& longest_ns = calls[{run_.messages[i].from, run_.messages[i].send_call_ns}];
      longest_ns = std::max(longest_ns, ordinary_ns[i]);
    }
    for (std::size_t i = 0; i < ordinary_ns.size(); ++i) {
      if (ordinary_ns[i] >= 0) continue;
      const auto call = calls.find({run_.messages[i].to, run_.messages[i].receive_call_ns});
      if (call != calls.end()) ordinary_ns[i] = call->second;
    }
  }

  Evidence AllRates() const {
    std::map<std::tuple<std::set<std::uint32_t>, std::uint32_t, int>, std::vector<const Transfer*>> classes;
    for (const Transfer& each : transfers_) {
      std::set<std::uint32_t> from;
      for (const Way& way : each.ways) from.insert(way.first);
      classes[{from, each.ways.front().second, each.of[0]}].push_back(&each);
    }
    Evidence rows{{"bytes_from", "messages", "transfer_ns_median", "bytes_per_s_median"}, {}};
    for (const auto& [key, transfers] : classes) {
      const auto& [from, to, bits] = key;
      const MedianRates rates = RatesOf(transfers);
      rows.rows.push_back({std::int64_t{1} << (bits - 1), static_cast<std::int64_t>(transfers.size()), rates.first,
                           std::llround(1e9 * rates.second)});
      std::string name;
      for (const std::uint32_t host : from)
        name += (name.empty() ? "" : ", ") + std::string(context_.timeline().Text(host));
      rows.names.push_back(name + " to " + std::string(context_.timeline().Text(to)));
    }
    return rows;
  }

  const Context& context_;
  const replay::RecordedRun& run_;
  const double times_;
  std::vector<Transfer> transfers_;  // Those of which something is known, ...
  // ... by class, ways on which they were received, and ways on which their call sends.
  std::map<std::tuple<MessageClass, std::vector<Way>, std::vector<Way>>, std::vector<const Transfer*>> alike_;
  std::set<std::uint32_t> hosts_;
  std::set<Way> ways_, pairs_;
  double asked_ = 1;
};

}  // namespace

std::optional<SlowMessages> FindSlowMessages(const Context& context, const Summary& summary) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().messages.empty()) return std::nullopt;
  std::optional<SlowMessages> found = MessageFinder(context, *replayed, rules::kNetworkSharedTimes).Find();
  const double least = rules::kWorthShare * static_cast<double>(summary.terms.Sum());
  if (found && static_cast<double>(found->behind_ns) < least) found.reset();
  return found;
}

std::optional<SlowMessages> FindUnlikeDirections(const Context& context) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().messages.empty()) return std::nullopt;
  std::optional<SlowMessages> found = MessageFinder(context, *replayed, rules::kMessageUnlikeTimes).Find();
  if (found && !found->beside_the_way_back) found.reset();
  return found;
}

}  // namespace lockstep::analysis
