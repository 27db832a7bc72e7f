#include "analysis/replayed/message_transfers.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "analysis/rules/network.h"
#include "core/rules/common.h"
#include "merge/timeline/timeline.h"

namespace lockstep::analysis {
namespace {

using replay::RunMessage;

// Errors beyond this are no bound, and cannot be added to times.
constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max() / 8;

// From when data can have moved at the earliest.
std::int64_t Earliest(const RunMessage& m) { return std::max(m.send_begin_ns, m.receive_call_ns); }

class Transfers {
 public:
  Transfers(const Context& context, const replay::RecordedRun& run) : run_(run), calls_of_(run.ranks.size()) {
    for (const std::int32_t rank : run.ranks) {
      const std::size_t row = context.RankRow(context.Position(rank));
      node_of_.push_back(context.tables().ranks.node[row]);
      domain_of_.push_back(context.tables().ranks.domain[row]);
      clocks_.emplace_back(context.tables().clock, rank);
    }
    for (std::size_t i = 0; i < run.messages.size(); ++i)
      if (const Way way = WayOf(run.messages[i]); way.first != way.second) crossing_.push_back(i);
  }

  std::vector<Transfer> Make() {
    if (crossing_.empty()) return {};
    FindCalls();
    CountBeside();
    std::vector<Transfer> transfers;
    for (const auto& [key, call] : calls_) {
      std::vector<std::size_t> received;
      for (const std::size_t i : call.messages)
        if (IsReceived(i, key)) received.push_back(i);
      if (received.empty()) continue;
      // Messages within the host that it waits for, too, may be what it waits for; so may what it sends.
      const bool alone = call.ways.size() == 1 && received.size() == call.all.size();
      if (!alone) {
        transfers.push_back(OfCall(key, call));
        continue;
      }
      for (const std::size_t i : received) transfers.push_back(OfMessage(i));
    }
    return transfers;
  }

 private:
  using CallKey = std::pair<std::uint32_t, std::int64_t>;  // Rank and entry.
  struct Call {
    std::vector<std::size_t> all, messages;  // Within hosts, too; between hosts.
    std::set<Way> ways;                      // Both directions are one.
  };

  Way WayOf(const RunMessage& m) const { return {node_of_[m.from], node_of_[m.to]}; }
  bool IsReceived(std::size_t i, const CallKey& key) const {
    return run_.messages[i].to == key.first && run_.messages[i].receive_call_ns == key.second;
  }

  // By how much times of its two ranks may differ from what they are; nothing without a bound.
  std::optional<std::int64_t> ErrorOf(const RunMessage& m) const {
    std::int64_t error = 0;
    if (domain_of_[m.from] == domain_of_[m.to]) return error;
    for (const auto& [rank, ns] : {std::pair(m.from, m.send_begin_ns), std::pair(m.to, m.receive_end_ns)}) {
      const std::int64_t own = clocks_[rank].ErrorAt(clocks_[rank].ToLocal(ns));
      if (own > kNoBound) return std::nullopt;
      error += own;
    }
    return error;
  }

  // Which messages and ways a call waits for: its end says of none of several ways which one it was.
  void FindCalls() {
    for (std::size_t i = 0; i < run_.messages.size(); ++i) {
      const RunMessage& m = run_.messages[i];
      const Way way = WayOf(m);
      for (const auto& [rank, call, end] :
           {std::tuple(m.from, m.send_call_ns, m.send_end_ns), std::tuple(m.to, m.receive_call_ns, m.receive_end_ns)}) {
        std::int64_t& returned = calls_of_[rank].try_emplace(call, end).first->second;
        returned = std::max(returned, end);
        Call& one = calls_[{rank, call}];
        one.all.push_back(i);
        if (way.first == way.second) continue;
        one.messages.push_back(i);
        one.ways.insert(std::minmax(way.first, way.second));
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

  // Since when a rank is in calls that move a message which it posted then, and waits for in the call that begins at
  // `call_ns`; the message has moved at `end_ns`.
  std::int64_t ThereSince(std::uint32_t rank, std::int64_t posted_ns, std::int64_t call_ns, std::int64_t end_ns) const {
    const std::map<std::int64_t, std::int64_t>& calls = calls_of_[rank];
    auto at = calls.find(call_ns);
    std::int64_t since = call_ns, away_ns = 0;
    for (int i = 0; i < rules::kMessageCalls && at != calls.end() && at != calls.begin(); ++i) {
      const auto before = std::prev(at);
      away_ns += std::max<std::int64_t>(0, at->first - before->second);
      if (posted_ns >= before->second || !LittleOf(away_ns, end_ns - before->first)) break;
      since = std::max(posted_ns, before->first);
      at = before;
    }
    return since;
  }
  std::int64_t SenderThere(const RunMessage& m) const {
    return ThereSince(m.from, m.send_begin_ns, m.send_call_ns, m.receive_end_ns);
  }
  std::int64_t ReceiverThere(const RunMessage& m) const {
    return ThereSince(m.to, m.receive_begin_ns, m.receive_call_ns, m.receive_end_ns);
  }
  // A call that found everything done says nothing of when it was.
  static bool Waited(std::int64_t since_ns, std::int64_t call_ns, std::int64_t end_ns) {
    return !LittleOf(end_ns - call_ns, end_ns - since_ns);
  }

  Transfer OfMessage(std::size_t i) const {
    const RunMessage& m = run_.messages[i];
    Transfer transfer{.messages = {i}, .within_host = {}, .ways = {WayOf(m)}, .sent = {}, .bytes = m.bytes};
    transfer.of = {static_cast<int>(std::bit_width(m.bytes)), static_cast<int>(std::bit_width(beside_[i])), 0};
    const std::optional<std::int64_t> error = ErrorOf(m);
    if (!error || m.bytes == 0) return transfer;
    const std::int64_t sender = SenderThere(m), receiver = ReceiverThere(m);
    const bool sends_alone = calls_.at({m.from, m.send_call_ns}).all.size() == 1;
    // Data that were sent before the receiver came may have come before it, unless the one call that sends them, and
    // does nothing else, is still waiting for it.
    const bool hands_over =
        sends_alone && m.send_call_ns == m.send_begin_ns && m.send_end_ns - *error > m.receive_call_ns;
    const std::int64_t first = m.send_begin_ns - *error;
    transfer.most_ns = m.receive_end_ns - (hands_over ? std::max(first, receiver) : first);
    if (Waited(receiver, m.receive_call_ns, m.receive_end_ns))
      transfer.least_ns = m.receive_end_ns - std::max(receiver, sender + *error);
    if (sends_alone && Waited(sender, m.send_call_ns, m.send_end_ns))
      transfer.least_ns = std::max(transfer.least_ns, m.send_end_ns - std::max(sender, receiver + *error));
    transfer.least_ns = std::clamp<std::int64_t>(transfer.least_ns, 0, std::max<std::int64_t>(0, transfer.most_ns));
    return transfer;
  }

  // Of all that a call receives, where it waits for several ways, as an exchange with all neighbours of a grid does, or
  // sends, too, as MPI_Sendrecv does: one of its messages decides when it returns. All can have moved from the first
  // post on, and did when all of their callers were there.
  Transfer OfCall(const CallKey& key, const Call& call) const {
    Transfer transfer;
    std::int64_t first = INT64_MAX, last = INT64_MIN, end = INT64_MIN, since = key.second;
    const auto add = [](std::vector<Way>& ways, const Way& way) {
      if (std::find(ways.begin(), ways.end(), way) == ways.end()) ways.push_back(way);
    };
    bool known = true;
    for (const std::size_t i : call.all) {
      const RunMessage& m = run_.messages[i];
      const Way way = WayOf(m);
      const bool received = IsReceived(i, key), crosses = way.first != way.second;
      const std::optional<std::int64_t> error = ErrorOf(m);
      known &= error.has_value();
      const std::int64_t sender = SenderThere(m), receiver = ReceiverThere(m), of_other = error.value_or(0);
      first = std::min(first, m.send_begin_ns - (received ? of_other : 0));
      last = std::max({last, sender + (received ? of_other : 0), receiver + (received ? 0 : of_other)});
      since = std::min(since, received ? receiver : sender);
      if (received && !crosses) transfer.within_host.push_back(i);
      if (!crosses) continue;
      add(received ? transfer.ways : transfer.sent, way);
      if (!received) continue;
      transfer.messages.push_back(i);
      transfer.bytes += m.bytes;
      end = std::max(end, m.receive_end_ns);
    }
    transfer.of = {static_cast<int>(std::bit_width(transfer.bytes)), 0, static_cast<int>(call.messages.size())};
    if (!known || transfer.bytes == 0 || end <= std::max(first, key.second)) return transfer;
    if (Waited(since, key.second, end)) transfer.least_ns = std::max<std::int64_t>(0, end - last);
    transfer.most_ns = end - first;
    return transfer;
  }

  const replay::RecordedRun& run_;
  std::vector<std::uint32_t> node_of_, domain_of_;  // By position in the replayed run: texts of `ranks`.
  std::vector<merge::ClockMap> clocks_;
  std::vector<std::size_t> crossing_;  // Messages between hosts.
  std::vector<unsigned> beside_;
  std::map<CallKey, Call> calls_;
  std::vector<std::map<std::int64_t, std::int64_t>> calls_of_;  // Of each rank: entries and returns.
};

}  // namespace

std::vector<Transfer> TransfersBetweenHosts(const Context& context, const replay::RecordedRun& run) {
  return Transfers(context, run).Make();
}

}  // namespace lockstep::analysis
