#include "merge/match/message_numbers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>

#include "merge/saturated.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;

// What a rank recorded of a channel in one window, times in cluster time.
struct WindowOfChannel {
  Interval window;
  std::int64_t first_step;
  std::size_t begin, end;  // Positions in its rows.
  std::size_t size() const { return end - begin; }
};

std::vector<WindowOfChannel> WindowsOfChannel(const MessagesOfChannel& channel) {
  const schema::P2p& p2p = channel.rank.tables->p2p;
  std::vector<WindowOfChannel> parts;
  std::size_t at = 0;
  const std::size_t rows = channel.rows.size();
  const auto begins_before = [&](std::int64_t time) {
    std::size_t end = at;
    while (end < rows && p2p.begin_ns[channel.rows[end]] < time) ++end;
    return end;
  };
  if (channel.rank.windows == nullptr) return {{channel.rank.window, -1, 0, rows}};
  for (std::size_t w = 0; w < channel.rank.windows->size(); ++w) {
    const RecordedWindow& window = (*channel.rank.windows)[w];
    // A call that began before the window is recorded in it.
    const bool last = w + 1 == channel.rank.windows->size();
    const std::size_t end = last ? rows : begins_before(window.local.end);
    parts.push_back(
        {{channel.rank.clock->ToCluster(window.local.begin), channel.rank.clock->ToCluster(window.local.end)},
         window.first_step,
         at,
         end});
    at = end;
  }
  return parts;
}

bool ToItsEnd(const MatchRank& rank) {
  const schema::Collectives& c = rank.tables->collectives;
  return std::ranges::find(c.kind, static_cast<std::uint8_t>(CollectiveKind::kFinalize)) != c.kind.end();
}

// The send of the part's receive `i` is its send `i` + the shift.
std::optional<std::int64_t> ShiftOf(const MessagesOfChannel& sends, const WindowOfChannel& sent,
                                    const MessagesOfChannel& receives, const WindowOfChannel& received,
                                    bool to_the_end) {
  const schema::P2p &from = sends.rank.tables->p2p, &to = receives.rank.tables->p2p;
  std::vector<std::int64_t> begins;
  for (std::size_t s = sent.begin; s < sent.end; ++s)
    begins.push_back(sends.rank.clock->ToCluster(from.begin_ns[sends.rows[s]]));
  std::sort(begins.begin(), begins.end());
  std::int64_t most = static_cast<std::int64_t>(sent.size());
  std::size_t empty = 0;
  for (std::size_t r = 0; r < received.size(); ++r) {
    const std::int64_t local = to.end_ns[receives.rows[received.begin + r]];
    if (local == kNoTime) continue;
    const std::int64_t end = receives.rank.clock->ToCluster(local);
    if (end > sent.window.end) continue;  // What it got may have been sent after the sender's window.
    const std::int64_t error =
        Sum(receives.rank.clock->ErrorAt(local), sends.rank.clock->ErrorAt(sends.rank.clock->ToLocal(end)));
    const auto begun = std::upper_bound(begins.begin(), begins.end(), Sum(end, error)) - begins.begin();
    const std::int64_t bound = begun - 1 - static_cast<std::int64_t>(r);
    if (bound > most) continue;
    empty = bound == most ? empty + 1 : 1;
    most = bound;
  }
  if (empty == 0) return std::nullopt;
  const std::int64_t own =
      static_cast<std::int64_t>(to.seq[receives.rows[received.begin]] - from.seq[sends.rows[sent.begin]]);
  const std::int64_t at_the_end = static_cast<std::int64_t>(sent.size()) - static_cast<std::int64_t>(received.size());
  if (to_the_end && at_the_end <= most) return at_the_end;
  const bool same_step = sent.first_step >= 0 && sent.first_step == received.first_step;
  // A channel whose sender is always ahead is seldom as empty as it gets; one that is used once per step is so in each.
  if (own <= most && (same_step || empty < 2)) return std::nullopt;
  return most;
}

}  // namespace

std::vector<NumberedReceives> NumberReceives(const MessagesOfChannel& sends, const MessagesOfChannel& receives) {
  if (!sends.rank.in_parts && !receives.rank.in_parts) return {};
  if (sends.rows.empty() || receives.rows.empty()) return {};
  const schema::P2p &from = sends.rank.tables->p2p, &to = receives.rank.tables->p2p;
  // Partitioned messages have the numbers of their channels.
  if (from.seq[sends.rows.back()] >= schema::kPartitionedSeq || to.seq[receives.rows.back()] >= schema::kPartitionedSeq)
    return {};
  const std::vector<WindowOfChannel> sent = WindowsOfChannel(sends), received = WindowsOfChannel(receives);
  const bool to_the_end = ToItsEnd(sends.rank) && ToItsEnd(receives.rank);
  std::vector<NumberedReceives> numbered;
  bool changed = false;
  for (const WindowOfChannel& part : received) {
    if (part.size() == 0) continue;
    const std::uint64_t first_receive = to.seq[receives.rows[part.begin]];
    // Times of damaged files are anything.
    const auto overlap = [&](const WindowOfChannel& other) {
      const std::int64_t begin = std::max(part.window.begin, other.window.begin);
      const std::int64_t end = std::min(part.window.end, other.window.end);
      return other.size() == 0 || end <= begin ? 0
                                               : static_cast<std::uint64_t>(end) - static_cast<std::uint64_t>(begin);
    };
    const auto mirror = std::ranges::max_element(sent, {}, overlap);
    if (mirror == sent.end() || overlap(*mirror) == 0) {
      numbered.push_back({first_receive, 0, 0});
      changed = true;
      continue;
    }
    const std::uint64_t first_send = from.seq[sends.rows[mirror->begin]];
    const bool last = part.end == receives.rows.size() && mirror->end == sends.rows.size();
    const std::optional<std::int64_t> found = ShiftOf(sends, *mirror, receives, part, to_the_end && last);
    const std::int64_t shift = found.value_or(static_cast<std::int64_t>(first_receive - first_send));
    const std::int64_t begin = std::max<std::int64_t>(0, -shift);
    const std::int64_t end =
        std::min(static_cast<std::int64_t>(part.size()), static_cast<std::int64_t>(mirror->size()) - shift);
    changed |= shift != static_cast<std::int64_t>(first_receive - first_send);
    numbered.push_back({first_receive + static_cast<std::uint64_t>(begin),
                        static_cast<std::uint64_t>(std::max<std::int64_t>(0, end - begin)),
                        first_send + static_cast<std::uint64_t>(begin + shift)});
  }
  return changed ? numbered : std::vector<NumberedReceives>();
}

std::uint64_t SendOf(const std::vector<NumberedReceives>& numbered, std::uint64_t receive) {
  for (const NumberedReceives& part : numbered)
    if (part.first <= receive && receive - part.first < part.count) return part.send + (receive - part.first);
  return kUnrecordedSend;
}

void ApplyMessageNumbers(const schema::TlMessageNumbers& numbers, std::int32_t rank, schema::RankTables& tables) {
  // Communicator, source and tag.
  std::map<std::tuple<std::uint64_t, std::int32_t, std::int32_t>, std::vector<NumberedReceives>> channels;
  for (std::size_t i = 0; i < numbers.rows(); ++i)
    if (numbers.destination_rank[i] == rank)
      channels[{numbers.comm_id[i], numbers.source_rank[i], numbers.tag[i]}].push_back(
          {numbers.first[i], numbers.messages[i], numbers.send[i]});
  if (channels.empty()) return;
  schema::P2p& p2p = tables.p2p;
  for (std::size_t i = 0; i < p2p.rows(); ++i) {
    if (p2p.direction[i] != schema::Direction::kReceive || p2p.comm[i] >= tables.comms.rows()) continue;
    const auto channel = channels.find({tables.comms.global_id[p2p.comm[i]], p2p.peer_world_rank[i], p2p.tag[i]});
    if (channel != channels.end()) p2p.seq[i] = SendOf(channel->second, p2p.seq[i]);
  }
}

}  // namespace lockstep::merge
