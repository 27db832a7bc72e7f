#include "merge/match/p2p.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "merge/parallel.h"

namespace lockstep {
namespace {

constexpr std::int64_t kNoTime = schema::kNoTime;

// Messages of one (communicator, partner, tag, direction) on one rank; seq grows
// with each, so rows need sorting only where threads were interleaved.
struct Channel {
  std::uint64_t comm;
  std::int32_t peer, tag;  // Partner's world rank.
  std::uint8_t direction;
  auto Key() const { return std::tie(direction, peer, comm, tag); }
  friend bool operator<(const Channel& a, const Channel& b) { return a.Key() < b.Key(); }
  friend bool operator==(const Channel& a, const Channel& b) { return a.Key() == b.Key(); }
};
struct ChannelHash {
  std::size_t operator()(const Channel& c) const {
    std::uint64_t h = c.comm ^ (static_cast<std::uint64_t>(static_cast<std::uint32_t>(c.peer)) << 32 |
                                static_cast<std::uint32_t>(c.tag)) *
                                   0x9e3779b97f4a7c15u;
    h ^= h >> 29;
    return static_cast<std::size_t>(h * 0xbf58476d1ce4e5b9u + c.direction);
  }
};
using Channels = std::map<Channel, std::vector<std::uint32_t>>;

// World rank of the partner, if the row or the communicator's shape says it.
std::int32_t PeerWorldRank(const schema::RankTables& tables, std::size_t row) {
  if (tables.p2p.peer_world_rank[row] >= 0) return tables.p2p.peer_world_rank[row];
  const std::uint32_t comm = tables.p2p.comm[row];
  const std::int32_t peer = tables.p2p.peer[row];
  const schema::Comms& comms = tables.comms;
  if (peer < 0 || comms.kind[comm] == 1 || comms.stride[comm] == 0 || comms.first_world_rank[comm] < 0) return -1;
  return comms.first_world_rank[comm] + peer * comms.stride[comm];
}

Channels Collect(const MatchRank& rank) {
  const schema::P2p& p2p = rank.tables->p2p;
  const schema::Comms& comms = rank.tables->comms;
  std::unordered_map<Channel, std::vector<std::uint32_t>, ChannelHash> found;
  std::vector<std::uint32_t>* recent = nullptr;
  Channel recent_channel{};
  for (std::uint32_t row = 0; row < p2p.rows(); ++row) {
    if (p2p.comm[row] >= comms.rows() || p2p.outcome[row] == 1) continue;
    const std::uint64_t id = comms.global_id[p2p.comm[row]];
    if (id == 0 || comms.unidentified[p2p.comm[row]]) continue;
    // A receive that never completed has no message to match.
    if (p2p.direction[row] == 1 && p2p.outcome[row] >= 3) continue;
    const std::int32_t peer = PeerWorldRank(*rank.tables, row);
    if (peer < 0) continue;
    const Channel channel{id, peer, p2p.tag[row], p2p.direction[row]};
    if (recent == nullptr || !(channel == recent_channel)) {
      recent = &found[channel];
      recent_channel = channel;
    }
    recent->push_back(row);
  }
  Channels channels;
  for (auto& [channel, rows] : found) {
    const auto by_seq = [&](std::uint32_t a, std::uint32_t b) { return p2p.seq[a] < p2p.seq[b]; };
    if (!std::is_sorted(rows.begin(), rows.end(), by_seq)) std::stable_sort(rows.begin(), rows.end(), by_seq);
    channels.emplace(channel, std::move(rows));
  }
  return channels;
}

}  // namespace

MatchedP2p MatchP2p(const std::vector<MatchRank>& ranks, unsigned jobs) {
  MatchedP2p out;
  out.send_post_ns.resize(ranks.size());
  std::vector<Channels> channels(ranks.size());
  std::map<std::int32_t, std::size_t> index;
  for (std::size_t r = 0; r < ranks.size(); ++r) index[ranks[r].rank] = r;
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    channels[r] = Collect(ranks[r]);
    out.send_post_ns[r].assign(ranks[r].tables->p2p.rows(), kNoTime);
  });

  std::vector<std::uint64_t> matched(ranks.size(), 0), unmatched(ranks.size(), 0);
  // Beyond a cut the partner's row is not expected.
  const auto expected = [&](std::size_t partner, std::int64_t begin_ns, std::int64_t end_ns) {
    return begin_ns >= ranks[partner].window.begin && end_ns <= ranks[partner].window.end &&
           !ranks[partner].cut_begin && !ranks[partner].cut_end;
  };
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    const schema::P2p& mine = ranks[r].tables->p2p;
    const auto alone = [&](std::uint32_t row, std::size_t partner) {
      const std::int64_t begin = ranks[r].clock->ToCluster(mine.begin_ns[row]);
      const std::int64_t end = mine.end_ns[row] == kNoTime ? begin : ranks[r].clock->ToCluster(mine.end_ns[row]);
      unmatched[r] += expected(partner, begin, end);
    };
    for (const auto& [channel, rows] : channels[r]) {
      const auto partner_at = index.find(channel.peer);
      if (partner_at == index.end()) continue;
      const std::size_t partner = partner_at->second;
      const schema::P2p& theirs = ranks[partner].tables->p2p;
      const Channel mirror{channel.comm, ranks[r].rank, channel.tag, static_cast<std::uint8_t>(channel.direction ^ 1)};
      const auto other = channels[partner].find(mirror);
      std::size_t at = 0;
      for (const std::uint32_t row : rows) {
        while (other != channels[partner].end() && at < other->second.size() &&
               theirs.seq[other->second[at]] < mine.seq[row])
          ++at;
        if (other == channels[partner].end() || at == other->second.size() ||
            theirs.seq[other->second[at]] != mine.seq[row]) {
          alone(row, partner);
          continue;
        }
        if (channel.direction != 1) continue;
        ++matched[r];
        out.send_post_ns[r][row] = ranks[partner].clock->ToCluster(theirs.begin_ns[other->second[at]]);
      }
    }
  });
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    out.matched += matched[r];
    out.unmatched += unmatched[r];
    if (unmatched[r] > 0) out.losses.push_back(MakeLoss(ranks[r].rank, Loss::kUnmatchedP2p, unmatched[r], ""));
  }
  return out;
}

}  // namespace lockstep
