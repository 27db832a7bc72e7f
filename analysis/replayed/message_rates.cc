#include "analysis/replayed/message_rates.h"

#include <algorithm>
#include <bit>
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
#include "analysis/replayed/replayed_run.h"

namespace lockstep::analysis {
namespace {

// Two messages that go through one cable at the same time have half of it each, so a healthy way may be slower by that
// where not all that was in flight was recorded.
constexpr double kTimes = 2;
constexpr double kMostMessages = 0.9, kSurelySlow = 0.01;
// As the definitions have it of collectives: a transfer is known if its begin is to a tenth of it.
constexpr std::int64_t kCertainParts = 10;

using replay::RunMessage;
using Way = std::pair<std::uint32_t, std::uint32_t>;  // From host to host.
using MessageClass = std::pair<int, int>;             // Bits of the size, and of the transfers beside it.
using MedianRates = std::pair<std::int64_t, double>;  // Median time, median bytes per ns.

Way Both(const Way& way) { return std::minmax(way.first, way.second); }
bool Touches(const Way& way, std::uint32_t host) { return way.first == host || way.second == host; }

struct TimedMessage {
  std::size_t message;
  Way way;
  MessageClass of;
  std::uint64_t bytes;
  std::int64_t ns;
  double rate() const { return static_cast<double>(bytes) / static_cast<double>(ns); }
};

// From when data can have moved at the earliest.
std::int64_t Earliest(const RunMessage& m) { return std::max(m.send_begin_ns, m.receive_call_ns); }

class MessageFinder {
 public:
  MessageFinder(const Context& context, const ReplayedRun& replayed) : context_(context), run_(replayed.run()) {
    for (const std::int32_t rank : run_.ranks)
      node_of_.push_back(context.tables().ranks.node[context.RankRow(context.Position(rank))]);
    for (std::size_t i = 0; i < run_.messages.size(); ++i)
      if (const Way way = WayOf(run_.messages[i]); way.first != way.second) crossing_.push_back(i);
  }

  std::optional<SlowMessages> Find() {
    if (crossing_.empty()) return std::nullopt;
    FindCalls();
    CountBeside();
    for (const std::size_t i : crossing_)
      if (const std::optional<TimedMessage> timed = TimedOf(i)) timed_.push_back(*timed);
    std::set<std::uint32_t> hosts;
    std::set<Way> pairs;
    for (const TimedMessage& each : timed_) {
      hosts.insert({each.way.first, each.way.second});
      pairs.insert(Both(each.way));
    }
    asked_ = static_cast<double>(hosts.size() + pairs.size() + 2);
    std::optional<SlowMessages> found = hosts.size() == 2 ? OneDirection(*pairs.begin()) : AmongMany(hosts, pairs);
    if (found) found->rates = AllRates();
    return found;
  }

 private:
  using Of = std::function<bool(const Way&)>;

  Way WayOf(const RunMessage& m) const { return {node_of_[m.from], node_of_[m.to]}; }

  // Which ways a call waits for: its end says of none of several which one it was.
  void FindCalls() {
    for (const std::size_t i : crossing_) {
      const RunMessage& m = run_.messages[i];
      for (const auto& [rank, call] : {std::pair(m.from, m.send_call_ns), std::pair(m.to, m.receive_call_ns)}) {
        auto& [messages, ways] = calls_[{rank, call}];
        ++messages;
        ways.insert(Both(WayOf(m)));
      }
    }
  }

  // How many others leave the same host or come to the same host in the middle of each transfer.
  void CountBeside() {
    std::map<std::pair<std::uint32_t, bool>, std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>> flights;
    for (const std::size_t i : crossing_) {
      const RunMessage& m = run_.messages[i];
      const Way way = WayOf(m);
      for (const auto& key : {std::pair(way.first, true), std::pair(way.second, false)}) {
        flights[key].first.push_back(Earliest(m));
        flights[key].second.push_back(m.receive_end_ns);
      }
    }
    for (auto& [key, times] : flights) {
      std::sort(times.first.begin(), times.first.end());
      std::sort(times.second.begin(), times.second.end());
    }
    beside_.assign(run_.messages.size(), 0);
    for (const std::size_t i : crossing_) {
      const RunMessage& m = run_.messages[i];
      const Way way = WayOf(m);
      const std::int64_t middle = Earliest(m) + (m.receive_end_ns - Earliest(m)) / 2;
      for (const auto& key : {std::pair(way.first, true), std::pair(way.second, false)}) {
        const auto& [begins, ends] = flights[key];
        const auto begun = std::upper_bound(begins.begin(), begins.end(), middle) - begins.begin();
        const auto ended = std::upper_bound(ends.begin(), ends.end(), middle) - ends.begin();
        beside_[i] += static_cast<unsigned>(std::max<std::ptrdiff_t>(0, begun - ended - 1));
      }
    }
  }

  std::optional<TimedMessage> TimedOf(std::size_t i) const {
    const RunMessage& m = run_.messages[i];
    if (calls_.at({m.to, m.receive_call_ns}).ways.size() > 1) return std::nullopt;
    // Data that were sent before the receiver came may have come before it, unless the one call that sends them, and
    // does nothing else, is still waiting for it.
    const bool hands_over = m.send_call_ns == m.send_begin_ns && m.send_end_ns > m.receive_call_ns &&
                            calls_.at({m.from, m.send_call_ns}).messages == 1;
    if (m.receive_call_ns > m.send_begin_ns && !hands_over) return std::nullopt;
    const std::int64_t begin = Earliest(m), ns = m.receive_end_ns - begin;
    // A posted message may move from when its sender waits for it.
    const std::int64_t latest = m.send_call_ns < m.receive_end_ns ? std::max(begin, m.send_call_ns) : begin;
    if (ns <= 0 || m.bytes == 0 || (latest - begin) * kCertainParts > ns) return std::nullopt;
    return TimedMessage{i, WayOf(m), {std::bit_width(m.bytes), std::bit_width(beside_[i])}, m.bytes, ns};
  }

  static MedianRates RatesOf(const std::vector<const TimedMessage*>& messages) {
    std::vector<std::int64_t> ns;
    std::vector<double> rates;
    for (const TimedMessage* each : messages) {
      ns.push_back(each->ns);
      rates.push_back(each->rate());
    }
    return {LowerMedian(std::move(ns)), LowerMedian(std::move(rates))};
  }
  static bool IsSlow(const TimedMessage& message, const MedianRates& beside) {
    return static_cast<double>(message.ns) >= kTimes * static_cast<double>(beside.first) &&
           message.rate() * kTimes <= beside.second;
  }

  struct Compared {
    std::int64_t slow = 0, all = 0, others_slow = 0, others = 0;
    std::map<MessageClass, MedianRates> others_rates;
    bool Mostly() const {
      return slow >= kLeastInstances && static_cast<double>(slow) >= kMostMessages * static_cast<double>(all);
    }
  };
  Compared Compare(const Of& own, const Of& others) const {
    std::map<MessageClass, std::pair<std::vector<const TimedMessage*>, std::vector<const TimedMessage*>>> classes;
    for (const TimedMessage& each : timed_) {
      if (own(each.way)) classes[each.of].first.push_back(&each);
      if (others(each.way)) classes[each.of].second.push_back(&each);
    }
    Compared result;
    for (const auto& [of, both] : classes) {
      if (both.second.size() < static_cast<std::size_t>(kLeastInstances)) continue;
      const MedianRates rates = RatesOf(both.second);
      result.others_rates[of] = rates;
      for (const TimedMessage* each : both.first) ++result.all, result.slow += IsSlow(*each, rates);
      for (const TimedMessage* each : both.second) ++result.others, result.others_slow += IsSlow(*each, rates);
    }
    return result;
  }
  double ChanceOf(const Compared& compared) const {
    // One more than were seen: that none of few is slow does not say that none ever is.
    const double share = static_cast<double>(compared.others_slow + 1) / static_cast<double>(compared.others + 2);
    return std::min(
        1.0, asked_ * BinomialTail(static_cast<double>(compared.slow), static_cast<double>(compared.all), share));
  }

  std::optional<SlowMessages> AmongMany(const std::set<std::uint32_t>& hosts, const std::set<Way>& pairs) const {
    std::vector<SlowMessages> of_hosts, of_pairs;
    for (const std::uint32_t host : hosts) {
      const Of without = [&](const Way& way) { return !Touches(way, host); };
      std::int64_t slow = 0, judged = 0;
      for (const Way& pair : pairs) {
        if (!Touches(pair, host)) continue;
        const Compared compared = Compare([&](const Way& way) { return Both(way) == pair; }, without);
        judged += compared.all >= kLeastInstances;
        slow += compared.Mostly();
      }
      if (slow < 2 || slow < judged) continue;
      if (auto found = Judge([&](const Way& way) { return Touches(way, host); }, without)) {
        found->hosts = {host};
        of_hosts.push_back(std::move(*found));
      }
    }
    if (of_hosts.size() == 1) return of_hosts.front();
    for (const Way& pair : pairs) {
      const Of without = [&](const Way& way) { return Both(way) != pair; };
      const Way back{pair.second, pair.first};
      auto found = Judge([&](const Way& way) { return Both(way) == pair; }, without);
      if (found) found->hosts = {pair.first, pair.second};
      for (const Way& way : {pair, back}) {
        if (found) break;
        found = Judge([&](const Way& each) { return each == way; }, without);
        if (!found) continue;
        found->hosts = {way.first, way.second};
        found->one_way = true;
      }
      if (found) of_pairs.push_back(std::move(*found));
    }
    return of_pairs.size() == 1 ? std::optional(std::move(of_pairs.front())) : std::nullopt;
  }

  // Two hosts have no other way to be compared with, but the one back.
  std::optional<SlowMessages> OneDirection(const Way& pair) const {
    for (const Way& way : {pair, Way{pair.second, pair.first}}) {
      const Way back{way.second, way.first};
      auto found = Judge([&](const Way& each) { return each == way; }, [&](const Way& each) { return each == back; });
      if (!found) continue;
      found->hosts = {way.first, way.second};
      found->one_way = found->beside_the_way_back = true;
      return found;
    }
    return std::nullopt;
  }

  std::optional<SlowMessages> Judge(const Of& own, const Of& others) const {
    const Compared compared = Compare(own, others);
    SlowMessages found;
    found.slow = compared.slow;
    found.compared = compared.all;
    if (!compared.Mostly() || (found.p_value = ChanceOf(compared)) >= kSurelySlow) return std::nullopt;
    found.ordinary_ns.assign(run_.messages.size(), -1);
    std::map<MessageClass, std::pair<std::int64_t, std::vector<const TimedMessage*>>> lost;  // Beyond the others' rate.
    std::map<std::uint32_t, std::int64_t> of_rank;
    for (const std::size_t i : crossing_) {
      const RunMessage& m = run_.messages[i];
      const auto rates = compared.others_rates.find({std::bit_width(m.bytes), std::bit_width(beside_[i])});
      if (!own(WayOf(m)) || rates == compared.others_rates.end()) continue;
      found.ordinary_ns[i] = std::llround(static_cast<double>(m.bytes) / rates->second.second);
    }
    for (const TimedMessage& each : timed_) {
      if (found.ordinary_ns[each.message] < 0) continue;
      const std::int64_t beyond = std::max<std::int64_t>(0, each.ns - found.ordinary_ns[each.message]);
      lost[each.of].first += beyond;
      lost[each.of].second.push_back(&each);
      of_rank[run_.messages[each.message].to] += beyond;
    }
    for (const auto& [rank, ns] : of_rank)
      found.behind_ns =
          std::max(found.behind_ns, ns / static_cast<std::int64_t>(std::max<std::size_t>(1, run_.steps.size())));
    const auto worst = std::max_element(lost.begin(), lost.end(),
                                        [](const auto& a, const auto& b) { return a.second.first < b.second.first; });
    const MedianRates slow = RatesOf(worst->second.second), ordinary = compared.others_rates.at(worst->first);
    std::vector<std::uint64_t> bytes;
    for (const TimedMessage* each : worst->second.second) bytes.push_back(each->bytes);
    found.bytes = LowerMedian(std::move(bytes));
    found.slow_ns = slow.first;
    found.slow_rate = 1e9 * slow.second;
    found.others_ns = ordinary.first;
    found.others_rate = 1e9 * ordinary.second;
    return found;
  }

  Evidence AllRates() const {
    std::map<std::tuple<Way, int>, std::vector<const TimedMessage*>> classes;
    for (const TimedMessage& each : timed_) classes[{each.way, each.of.first}].push_back(&each);
    Evidence rows{{"bytes_from", "messages", "transfer_ns_median", "bytes_per_s_median"}, {}};
    for (const auto& [key, messages] : classes) {
      const auto& [way, bits] = key;
      const MedianRates rates = RatesOf(messages);
      rows.rows.push_back({std::int64_t{1} << (bits - 1), static_cast<std::int64_t>(messages.size()), rates.first,
                           std::llround(1e9 * rates.second)});
      rows.names.push_back(std::string(context_.timeline().Text(way.first)) + " to " +
                           std::string(context_.timeline().Text(way.second)));
    }
    return rows;
  }

  struct Call {
    std::size_t messages = 0;
    std::set<Way> ways;  // Both directions are one.
  };

  const Context& context_;
  const replay::RecordedRun& run_;
  std::vector<std::uint32_t> node_of_;  // By position in the replayed run.
  std::vector<std::size_t> crossing_;   // Messages between hosts.
  std::vector<unsigned> beside_;
  std::map<std::pair<std::uint32_t, std::int64_t>, Call> calls_;  // By rank and entry.
  std::vector<TimedMessage> timed_;
  double asked_ = 1;
};

}  // namespace

std::optional<SlowMessages> FindSlowMessages(const Context& context, const Summary& summary) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().messages.empty()) return std::nullopt;
  std::optional<SlowMessages> found = MessageFinder(context, *replayed).Find();
  const double least = kWorthShare * static_cast<double>(summary.terms.Sum());
  if (found && static_cast<double>(found->behind_ns) < least) found.reset();
  return found;
}

}  // namespace lockstep::analysis
