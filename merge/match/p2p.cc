#include "merge/match/p2p.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/refused.h"
#include "ingest/rank_files/rank_source.h"
#include "merge/match/instance_key.h"
#include "merge/match/message_numbers.h"
#include "merge/match/p2p_progress.h"
#include "merge/parallel.h"

namespace lockstep::merge {
namespace {

using schema::kNoTime;
constexpr std::uint8_t kInterComm = schema::CommKind::kInter, kCancelled = schema::RequestOutcome::kCancelled,
                       kReceive = schema::Direction::kReceive;

// Messages of one (communicator, partner, tag, direction) on one rank; seq grows
// with each, so rows need sorting only where threads were interleaved.
struct Channel {
  std::uint64_t comm;
  std::int32_t peer, tag;  // Partner's world rank.
  std::uint8_t direction;
  auto Key() const { return std::tie(direction, peer, comm, tag); }
  // That of the partner, which knows this one as `rank`.
  Channel Mirror(std::int32_t rank) const { return {comm, rank, tag, static_cast<std::uint8_t>(direction ^ 1)}; }
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

// Members of inter-communicators: a rank file knows its own group only; the members of the other group are known from
// the files on the other side. The groups are disjoint, so the world rank of a group's first member distinguishes them.
struct InterMember {
  std::int32_t first_world_rank, world_rank;
};
using InterMembers = std::map<std::pair<std::uint64_t, std::int32_t>, std::vector<InterMember>>;

InterMembers FindInterMembers(const std::vector<MatchRank>& ranks) {
  InterMembers members;
  for (const MatchRank& rank : ranks) {
    const schema::Comms& comms = rank.tables->comms;
    for (std::size_t i = 0; i < comms.rows(); ++i)
      if (Identified(comms, i) && comms.kind[i] == kInterComm)
        members[{comms.global_id[i], comms.rank[i]}].push_back({comms.first_world_rank[i], rank.rank});
  }
  return members;
}

// NCCL gives each rank only its own number in a communicator.
using NcclMembers = std::map<std::pair<std::uint64_t, std::int32_t>, std::int32_t>;  // Id, its rank -> world rank.

NcclMembers FindNcclMembers(const std::vector<MatchRank>& ranks) {
  NcclMembers members;
  for (const MatchRank& rank : ranks) {
    const schema::Comms& comms = rank.tables->comms;
    for (std::size_t i = 0; i < comms.rows(); ++i)
      if (Identified(comms, i) && comms.kind[i] == kNcclCommKind && comms.rank[i] >= 0)
        members.emplace(std::pair(comms.global_id[i], comms.rank[i]), rank.rank);
  }
  return members;
}

struct Members {
  InterMembers inter;
  NcclMembers nccl;
};

// World rank of the partner, if the row or the communicator's shape determines it.
std::int32_t PeerWorldRank(const schema::RankTables& tables, const Members& members, std::size_t row) {
  if (tables.p2p.peer_world_rank[row] >= 0) return tables.p2p.peer_world_rank[row];
  const std::uint32_t comm = tables.p2p.comm[row];
  const std::int32_t peer = tables.p2p.peer[row];
  const schema::Comms& comms = tables.comms;
  if (peer < 0) return -1;
  if (comms.kind[comm] == kNcclCommKind) {
    const auto there = members.nccl.find({comms.global_id[comm], peer});
    return there == members.nccl.end() ? -1 : there->second;
  }
  if (comms.kind[comm] == kInterComm) {
    const auto there = members.inter.find({comms.global_id[comm], peer});
    if (there == members.inter.end()) return -1;
    for (const InterMember& member : there->second)
      if (member.first_world_rank != comms.first_world_rank[comm]) return member.world_rank;
    return -1;
  }
  if (comms.stride[comm] == 0 || comms.first_world_rank[comm] < 0) return -1;
  return ingest::ToldRank(comms.first_world_rank[comm] + static_cast<std::int64_t>(peer) * comms.stride[comm]);
}

// Receives from any source of which nothing tells who sent, by communicator and tag: of gloo, those that no wait() in
// Python ended.
using OpenReceives = std::map<std::pair<std::uint64_t, std::int32_t>, std::uint64_t>;

Channels Collect(const MatchRank& rank, const Members& members, std::uint64_t& unplaced, OpenReceives& open) {
  const schema::P2p& p2p = rank.tables->p2p;
  const schema::Comms& comms = rank.tables->comms;
  std::unordered_map<Channel, std::vector<std::uint32_t>, ChannelHash> found;
  std::vector<std::uint32_t>* recent = nullptr;
  Channel recent_channel{};
  for (std::uint32_t row = 0; row < p2p.rows(); ++row) {
    if (p2p.outcome[row] == kCancelled) continue;
    if (IsRefused(p2p, row)) continue;
    // A receive that never completed has no message to match.
    if (p2p.direction[row] == kReceive && p2p.outcome[row] >= schema::RequestOutcome::kNeverCompleted) continue;
    const std::int32_t peer = Identified(comms, p2p.comm[row]) ? PeerWorldRank(*rank.tables, members, row) : -1;
    if (peer < 0) {
      ++unplaced;
      if (p2p.direction[row] == kReceive && p2p.peer[row] < 0 && Identified(comms, p2p.comm[row]))
        ++open[{comms.global_id[p2p.comm[row]], p2p.tag[row]}];
      continue;
    }
    const Channel channel{comms.global_id[p2p.comm[row]], peer, p2p.tag[row], p2p.direction[row]};
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

// One rank's messages with one partner, by direction.
struct Side {
  std::uint64_t messages = 0, bytes = 0, matched = 0, unmatched = 0;
};
using Sides = std::map<std::pair<std::int32_t, std::uint8_t>, Side>;

schema::TlP2pPairs MakePairs(const std::vector<MatchRank>& ranks, const std::vector<Sides>& sides) {
  struct Both {
    Side send, receive;
    bool sent = false;
  };
  std::map<std::pair<std::int32_t, std::int32_t>, Both> pairs;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (const auto& [key, side] : sides[r]) {
      const auto [peer, direction] = key;
      if (direction == kReceive) {
        pairs[{peer, ranks[r].rank}].receive = side;
      } else {
        Both& both = pairs[{ranks[r].rank, peer}];
        both.send = side;
        both.sent = true;
      }
    }
  }
  schema::TlP2pPairs table;
  for (const auto& [key, both] : pairs) {
    schema::TlP2pPairs::Row row;
    row.source_rank = key.first;
    row.destination_rank = key.second;
    row.messages = both.sent ? both.send.messages : both.receive.messages;
    row.bytes = both.sent ? both.send.bytes : both.receive.bytes;
    row.matched = both.receive.matched;
    row.unmatched = both.send.unmatched + both.receive.unmatched;
    table.Append(row);
  }
  return table;
}

}  // namespace

MatchedP2p MatchP2p(const std::vector<MatchRank>& ranks, unsigned jobs) {
  MatchedP2p out;
  out.partner_begin_ns.resize(ranks.size());
  out.partner.resize(ranks.size());
  std::vector<std::vector<std::uint32_t>> partner_row(ranks.size());  // The row of the partner's p2p.
  std::vector<Channels> channels(ranks.size());
  std::vector<Sides> sides(ranks.size());
  std::vector<std::uint64_t> unplaced(ranks.size(), 0);
  std::vector<OpenReceives> open(ranks.size());
  std::map<std::int32_t, std::uint32_t> index;
  for (std::size_t r = 0; r < ranks.size(); ++r) index[ranks[r].rank] = static_cast<std::uint32_t>(r);
  const Members members{FindInterMembers(ranks), FindNcclMembers(ranks)};
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    channels[r] = Collect(ranks[r], members, unplaced[r], open[r]);
    out.partner_begin_ns[r].assign(ranks[r].tables->p2p.rows(), kNoTime);
    out.partner[r].assign(ranks[r].tables->p2p.rows(), schema::kNone);
    partner_row[r].assign(ranks[r].tables->p2p.rows(), schema::kNone);
  });

  // The numbers by which halves are matched, receives by those of their sends.
  std::vector<std::vector<std::uint64_t>> numbers(ranks.size());
  std::vector<schema::TlMessageNumbers> renumbered(ranks.size());
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    numbers[r] = ranks[r].tables->p2p.seq;
    for (auto& [channel, rows] : channels[r]) {
      const auto sender = index.find(channel.peer);
      if (channel.direction != kReceive || sender == index.end()) continue;
      const auto sends = channels[sender->second].find(channel.Mirror(ranks[r].rank));
      if (sends == channels[sender->second].end()) continue;
      const auto parts = NumberReceives({ranks[sender->second], sends->second}, {ranks[r], rows});
      for (const NumberedReceives& part : parts)
        renumbered[r].Append(
            {channel.peer, ranks[r].rank, channel.comm, channel.tag, part.first, part.count, part.send});
      if (parts.empty()) continue;
      for (const std::uint32_t row : rows) numbers[r][row] = SendOf(parts, numbers[r][row]);
      std::ranges::stable_sort(rows, {}, [&](std::uint32_t row) { return numbers[r][row]; });
    }
  });
  for (const schema::TlMessageNumbers& of_rank : renumbered)
    for (std::size_t i = 0; i < of_rank.rows(); ++i) out.numbers.Append(of_rank.Get(i));

  // Outside of what was recorded, the partner's row is not expected.
  const auto expected = [&](std::size_t partner, std::int64_t begin_ns, std::int64_t end_ns) {
    return begin_ns >= ranks[partner].window.begin && end_ns <= ranks[partner].window.end &&
           !ranks[partner].cut_begin && !ranks[partner].cut_end;
  };
  ParallelFor(jobs, ranks.size(), [&](std::size_t r) {
    const schema::P2p& mine = ranks[r].tables->p2p;
    for (const auto& [channel, rows] : channels[r]) {
      Side& side = sides[r][{channel.peer, channel.direction}];
      side.messages += rows.size();
      for (const std::uint32_t row : rows) side.bytes += mine.bytes[row];
      const auto partner_at = index.find(channel.peer);
      if (partner_at == index.end()) continue;
      const std::uint32_t partner = partner_at->second;
      const schema::P2p& theirs = ranks[partner].tables->p2p;
      const auto other = channels[partner].find(channel.Mirror(ranks[r].rank));
      const std::vector<std::uint32_t> none;
      const std::vector<std::uint32_t>& others = other == channels[partner].end() ? none : other->second;
      // One of these may have taken it.
      const bool taken = channel.direction != kReceive && open[partner].contains({channel.comm, channel.tag});
      std::size_t at = 0;
      for (const std::uint32_t row : rows) {
        const auto& there = numbers[partner];
        while (at < others.size() && there[others[at]] < numbers[r][row]) ++at;
        if (at < others.size() && there[others[at]] == numbers[r][row]) {
          ++side.matched;
          // A partner whose kernel was not found came at an unknown time.
          if (!WithoutGpuTimes(theirs.mode[others[at]], theirs.end_ns[others[at]]))
            out.partner_begin_ns[r][row] = ranks[partner].clock->ToCluster(theirs.begin_ns[others[at]]);
          out.partner[r][row] = partner;
          partner_row[r][row] = others[at];
          continue;
        }
        const std::int64_t begin = ranks[r].clock->ToCluster(mine.begin_ns[row]);
        const std::int64_t end = mine.end_ns[row] == kNoTime ? begin : ranks[r].clock->ToCluster(mine.end_ns[row]);
        side.unmatched += !taken && expected(partner, begin, end);
      }
    }
  });
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::uint64_t unmatched = 0;
    for (const auto& [key, side] : sides[r]) {
      unmatched += side.unmatched;
      if (key.second == kReceive) out.matched += side.matched;
    }
    out.unmatched += unmatched;
    out.unplaced += unplaced[r];
    if (unmatched > 0) out.losses.push_back(MakeLoss(ranks[r].rank, Loss::kUnmatchedP2p, unmatched, ""));
    std::uint64_t from_any = 0;
    for (const auto& [key, count] : open[r]) from_any += count;
    if (from_any > 0) out.losses.push_back(MakeLoss(ranks[r].rank, Loss::kP2pAnySource, from_any, ""));
  }
  out.pairs = MakePairs(ranks, sides);
  WaitForProgress(ranks, partner_row, out, jobs);
  return out;
}

}  // namespace lockstep::merge
