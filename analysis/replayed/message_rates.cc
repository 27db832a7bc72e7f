#include "analysis/replayed/message_rates.h"

#include <algorithm>
#include <array>
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
// Two directions of one way are alike but for what else is sent; data that come later by less say nothing of
// collectives either (link_ends.cc).
constexpr double kUnlike = 1.2;
constexpr double kMostMessages = 0.9, kSurelySlow = 0.01;
// As the definitions have it of collectives: a transfer is known if its begin is to a tenth of it.
constexpr std::int64_t kCertainParts = 10;

using replay::RunMessage;
using Way = std::pair<std::uint32_t, std::uint32_t>;  // From host to host.
// Bits of the size and of the transfers beside it; or, of a call's messages together, how many these are.
using MessageClass = std::array<int, 3>;
using MedianRates = std::pair<std::int64_t, double>;  // Median time, median bytes per ns.

Way Both(const Way& way) { return std::minmax(way.first, way.second); }
bool Touches(const Way& way, std::uint32_t host) { return way.first == host || way.second == host; }

// What is compared: a message, or the messages that one call receives where it waits for several ways.
struct Transfer {
  std::vector<std::size_t> messages;
  std::vector<std::size_t> received;  // By the same call within the host.
  std::vector<Way> ways;              // That the call may have waited for.
  MessageClass of;
  std::uint64_t bytes;
  // How long data moved, as far as it is known; the slowest of several ways took `least_ns` at least, and each of them
  // `most_ns` at most. Both 0: not known.
  std::int64_t least_ns = 0, most_ns = 0;
  bool timed() const { return most_ns > 0; }
  double rate() const { return static_cast<double>(bytes) / static_cast<double>(most_ns); }
};

// From when data can have moved at the earliest.
std::int64_t Earliest(const RunMessage& m) { return std::max(m.send_begin_ns, m.receive_call_ns); }

class MessageFinder {
 public:
  // `times`: by how much a slow message is slower.
  MessageFinder(const Context& context, const ReplayedRun& replayed, double times)
      : context_(context), run_(replayed.run()), times_(times) {
    for (const std::int32_t rank : run_.ranks)
      node_of_.push_back(context.tables().ranks.node[context.RankRow(context.Position(rank))]);
    for (std::size_t i = 0; i < run_.messages.size(); ++i)
      if (const Way way = WayOf(run_.messages[i]); way.first != way.second) crossing_.push_back(i);
  }

  std::optional<SlowMessages> Find() {
    if (crossing_.empty()) return std::nullopt;
    FindCalls();
    CountBeside();
    MakeTransfers();
    std::set<std::uint32_t> hosts;
    std::set<Way> pairs;
    for (const Transfer& each : transfers_)
      if (each.timed())
        for (const Way& way : each.ways) {
          hosts.insert({way.first, way.second});
          pairs.insert(Both(way));
        }
    asked_ = static_cast<double>(hosts.size() + pairs.size() + 2);
    if (hosts.size() < 2) return std::nullopt;
    std::optional<SlowMessages> found = hosts.size() == 2 ? OneDirection(*pairs.begin()) : AmongMany(hosts, pairs);
    if (found) found->rates = AllRates();
    return found;
  }

 private:
  using Of = std::function<bool(const Way&)>;
  struct Call {
    std::vector<std::size_t> all, messages;  // Within hosts, too; between hosts.
    std::set<Way> ways;                      // Both directions are one.
  };

  Way WayOf(const RunMessage& m) const { return {node_of_[m.from], node_of_[m.to]}; }

  // Which messages and ways a call waits for: its end says of none of several ways which one it was.
  void FindCalls() {
    for (std::size_t i = 0; i < run_.messages.size(); ++i) {
      const RunMessage& m = run_.messages[i];
      const Way way = WayOf(m);
      for (const auto& [rank, call] : {std::pair(m.from, m.send_call_ns), std::pair(m.to, m.receive_call_ns)}) {
        Call& one = calls_[{rank, call}];
        one.all.push_back(i);
        if (way.first == way.second) continue;
        one.messages.push_back(i);
        one.ways.insert(Both(way));
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

  void MakeTransfers() {
    for (const auto& [key, call] : calls_) {
      std::vector<Transfer> each;
      for (const std::size_t i : call.messages)
        if (run_.messages[i].to == key.first && run_.messages[i].receive_call_ns == key.second)
          each.push_back(TransferOf(i));
      if (each.empty()) continue;
      const auto timed = [](const Transfer& transfer) { return transfer.timed(); };
      // Messages within the host that it waits for, too, may be what it waits for.
      const bool alone = call.ways.size() == 1 && call.all.size() == call.messages.size();
      if (alone && std::any_of(each.begin(), each.end(), timed))
        transfers_.insert(transfers_.end(), each.begin(), each.end());
      else
        transfers_.push_back(TransferOf(key.first, key.second, call));
    }
  }

  Transfer TransferOf(std::size_t i) const {
    const RunMessage& m = run_.messages[i];
    Transfer transfer{{i},
                      {},
                      {WayOf(m)},
                      {static_cast<int>(std::bit_width(m.bytes)), static_cast<int>(std::bit_width(beside_[i])), 0},
                      m.bytes};
    // Data that were sent before the receiver came may have come before it, unless the one call that sends them, and
    // does nothing else, is still waiting for it.
    const bool hands_over = m.send_call_ns == m.send_begin_ns && m.send_end_ns > m.receive_call_ns &&
                            calls_.at({m.from, m.send_call_ns}).messages.size() == 1;
    if (m.receive_call_ns > m.send_begin_ns && !hands_over) return transfer;
    const std::int64_t begin = Earliest(m), ns = m.receive_end_ns - begin;
    // A posted message may move from when its sender waits for it.
    const std::int64_t latest = m.send_call_ns < m.receive_end_ns ? std::max(begin, m.send_call_ns) : begin;
    if (ns <= 0 || m.bytes == 0 || (latest - begin) * kCertainParts > ns) return transfer;
    transfer.least_ns = transfer.most_ns = ns;
    return transfer;
  }

  // Of all that a call receives, where it waits for several ways, as an exchange with all neighbours of a grid does, or
  // posts were made before: one of its messages decides when it returns. All can have moved from the first post on, and
  // did when all of their callers were there.
  Transfer TransferOf(std::uint32_t rank, std::int64_t call_ns, const Call& call) const {
    Transfer transfer{{}, {}, {}, {}, 0};
    std::int64_t first = INT64_MAX, last = INT64_MIN, end = INT64_MIN;
    for (const std::size_t i : call.all) {
      const RunMessage& m = run_.messages[i];
      const Way way = WayOf(m);
      first = std::min(first, m.send_begin_ns);
      last = std::max({last, Earliest(m), m.send_call_ns});
      const bool received = m.to == rank && m.receive_call_ns == call_ns;
      if (way.first == way.second && received) transfer.received.push_back(i);
      if (way.first == way.second) continue;
      if (std::find(transfer.ways.begin(), transfer.ways.end(), way) == transfer.ways.end())
        transfer.ways.push_back(way);
      if (!received) continue;
      transfer.messages.push_back(i);
      transfer.bytes += m.bytes;
      end = m.receive_end_ns;
    }
    transfer.of = {static_cast<int>(std::bit_width(transfer.bytes)), 0, static_cast<int>(call.messages.size())};
    if (transfer.bytes == 0 || end <= std::max(first, call_ns)) return transfer;
    transfer.least_ns = std::max<std::int64_t>(0, end - last);
    transfer.most_ns = end - first;
    return transfer;
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
  void Count(const std::vector<const Transfer*>& transfers, const MedianRates& beside, std::int64_t& slow,
             std::int64_t& all) const {
    for (const Transfer* each : transfers) {
      const bool surely = IsSlow(*each, each->least_ns, beside);
      slow += surely;
      all += surely || !IsSlow(*each, each->most_ns, beside);
    }
  }

  struct Compared {
    std::int64_t slow = 0, all = 0, others_slow = 0, others = 0;
    std::map<MessageClass, MedianRates> others_rates;
    bool Mostly() const {
      return slow >= kLeastInstances && static_cast<double>(slow) >= kMostMessages * static_cast<double>(all);
    }
  };
  // A call that waits for several ways is as slow as the slowest: it is of `own` if one of its ways is, of the others
  // if all of its ways are.
  static bool AnyOf(const Transfer& transfer, const Of& of) {
    return std::any_of(transfer.ways.begin(), transfer.ways.end(), of);
  }
  // `one_way`: a call that receives and sends says nothing of a direction.
  Compared Compare(const Of& own, const Of& others, bool one_way = false) const {
    std::map<MessageClass, std::pair<std::vector<const Transfer*>, std::vector<const Transfer*>>> classes;
    for (const Transfer& each : transfers_) {
      if (!each.timed() || (one_way && each.of[2] > 0)) continue;
      if (AnyOf(each, own)) classes[each.of].first.push_back(&each);
      if (std::all_of(each.ways.begin(), each.ways.end(), others)) classes[each.of].second.push_back(&each);
    }
    Compared result;
    for (const auto& [of, both] : classes) {
      // What the others take is told by those of which it is known better than what is asked.
      std::vector<const Transfer*> known = both.second;
      std::erase_if(known, [&](const Transfer* each) {
        return static_cast<double>(each->most_ns) >= times_ * static_cast<double>(each->least_ns);
      });
      if (known.size() < static_cast<std::size_t>(kLeastInstances)) continue;
      const MedianRates rates = RatesOf(known);
      result.others_rates[of] = rates;
      Count(both.first, rates, result.slow, result.all);
      Count(both.second, rates, result.others_slow, result.others);
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
        found = Judge([&](const Way& each) { return each == way; }, without, true);
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
      auto found =
          Judge([&](const Way& each) { return each == way; }, [&](const Way& each) { return each == back; }, true);
      if (!found) continue;
      found->hosts = {way.first, way.second};
      found->one_way = found->beside_the_way_back = true;
      return found;
    }
    return std::nullopt;
  }

  std::optional<SlowMessages> Judge(const Of& own, const Of& others, bool one_way = false) const {
    const Compared compared = Compare(own, others, one_way);
    SlowMessages found;
    found.slow = compared.slow;
    found.compared = compared.all;
    if (!compared.Mostly() || (found.p_value = ChanceOf(compared)) >= kSurelySlow) return std::nullopt;
    found.ordinary_ns.assign(run_.messages.size(), -1);
    std::map<MessageClass, std::pair<std::int64_t, std::vector<const Transfer*>>> lost;  // Beyond the others' rate.
    std::map<std::uint32_t, std::int64_t> of_rank;
    for (const Transfer& each : transfers_) {
      const auto rates = compared.others_rates.find(each.of);
      if (!AnyOf(each, own) || rates == compared.others_rates.end()) continue;
      const std::int64_t ordinary_ns = std::llround(static_cast<double>(each.bytes) / rates->second.second);
      for (const std::size_t i : each.messages) found.ordinary_ns[i] = ordinary_ns;
      // The replay has one duration of the call, by whichever message was there last.
      for (const std::size_t i : each.received) found.ordinary_ns[i] = ordinary_ns;
      if (!each.timed()) continue;
      const std::int64_t beyond = std::max<std::int64_t>(0, each.least_ns - ordinary_ns);
      lost[each.of].first += beyond;
      lost[each.of].second.push_back(&each);
      of_rank[run_.messages[each.messages.front()].to] += beyond;
    }
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

  Evidence AllRates() const {
    std::map<std::tuple<std::set<std::uint32_t>, std::uint32_t, int>, std::vector<const Transfer*>> classes;
    for (const Transfer& each : transfers_) {
      if (!each.timed()) continue;
      std::set<std::uint32_t> from;
      for (const std::size_t i : each.messages) from.insert(WayOf(run_.messages[i]).first);
      classes[{from, WayOf(run_.messages[each.messages.front()]).second, each.of[0]}].push_back(&each);
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
  std::vector<std::uint32_t> node_of_;  // By position in the replayed run.
  std::vector<std::size_t> crossing_;   // Messages between hosts.
  std::vector<unsigned> beside_;
  std::map<std::pair<std::uint32_t, std::int64_t>, Call> calls_;  // By rank and entry.
  std::vector<Transfer> transfers_;
  double asked_ = 1;
};

}  // namespace

std::optional<SlowMessages> FindSlowMessages(const Context& context, const Summary& summary) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().messages.empty()) return std::nullopt;
  std::optional<SlowMessages> found = MessageFinder(context, *replayed, kTimes).Find();
  const double least = kWorthShare * static_cast<double>(summary.terms.Sum());
  if (found && static_cast<double>(found->behind_ns) < least) found.reset();
  return found;
}

std::optional<SlowMessages> FindUnlikeDirections(const Context& context) {
  const ReplayedRun* replayed = context.Replayed();
  if (replayed == nullptr || replayed->run().messages.empty()) return std::nullopt;
  std::optional<SlowMessages> found = MessageFinder(context, *replayed, kUnlike).Find();
  if (found && !found->beside_the_way_back) found.reset();
  return found;
}

}  // namespace lockstep::analysis
