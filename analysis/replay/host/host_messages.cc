#include "analysis/replay/host/host_messages.h"

#include <algorithm>
#include <tuple>

namespace lockstep::replay {
namespace {

using schema::kNoTime;
constexpr std::uint8_t kCompleted = schema::RequestOutcome::kCompleted;

struct Found {
  std::size_t rank;
  const MessageHalf* half;
  auto Key() const { return std::tie(half->comm, half->source, half->destination, half->tag, half->seq); }
};

// Returns the call of a rank that began at this time, else the one in which this time is: calls of libraries begin
// before, and return after, what they carry.
Stretch* CallAt(RankStretches& rank, std::int64_t ns) {
  const auto is_call = [](const Stretch& stretch) {
    return stretch.kind == Stretch::kCall || stretch.kind == Stretch::kPost || stretch.kind == Stretch::kWait;
  };
  auto at = std::lower_bound(rank.training.begin(), rank.training.end(), ns,
                             [](const Stretch& stretch, std::int64_t begin) { return stretch.begin_ns < begin; });
  for (auto same = at; same != rank.training.end() && same->begin_ns == ns; ++same)
    if (is_call(*same)) return &*same;
  while (at != rank.training.begin())
    if (--at; is_call(*at)) return ns <= at->end_ns ? &*at : nullptr;
  return nullptr;
}

// When the rank entered the call that completes a message, or posted it there.
void FindCompletion(RankStretches& rank, MessageHalf& half) {
  if (!half.in_library) return;
  if (const Stretch* call = CallAt(rank, half.end_ns)) half.completing_ns = std::max(call->begin_ns, half.begin_ns);
}

void Await(Stretch& stretch, std::uint32_t port, std::int64_t there_ns) {
  stretch.awaits.push_back(port);
  const std::int64_t after = std::max<std::int64_t>(0, stretch.end_ns - std::max(stretch.begin_ns, there_ns));
  if (stretch.after_ns >= 0 && stretch.after_ns <= after) return;
  stretch.after_ns = after;
  stretch.last_awaited = port;
}

}  // namespace

std::vector<MessageHalf> MessageHalves(const schema::RankTables& tables, const merge::ClockMap& clock,
                                       std::int32_t world_rank, std::uint32_t thread) {
  std::vector<MessageHalf> halves;
  const auto& p = tables.p2p;
  for (std::size_t i = 0; i < p.rows(); ++i) {
    if (p.outcome[i] != kCompleted || p.thread[i] != thread || p.peer_world_rank[i] < 0 ||
        p.peer_world_rank[i] == world_rank || p.end_ns[i] == kNoTime || p.wait_begin_ns[i] == kNoTime ||
        p.comm[i] >= tables.comms.rows() || p.kernel[i] != schema::kNone)
      continue;
    const bool send = p.direction[i] == schema::Direction::kSend;
    halves.push_back({tables.comms.global_id[p.comm[i]], p.seq[i], send ? world_rank : p.peer_world_rank[i],
                      send ? p.peer_world_rank[i] : world_rank, p.tag[i], p.bytes[i], send,
                      clock.ToCluster(p.begin_ns[i]), clock.ToCluster(p.wait_begin_ns[i]), clock.ToCluster(p.end_ns[i]),
                      tables.comms.kind[p.comm[i]] == schema::CommKind::kTorchGroup});
  }
  return halves;
}

std::vector<RunMessage> JoinMessages(const std::vector<std::int32_t>& ranks,
                                     std::vector<std::vector<MessageHalf>> halves,
                                     std::vector<RankStretches>& stretches) {
  std::vector<RunMessage> messages;
  std::vector<Found> sends, receives;
  for (std::size_t r = 0; r < halves.size() && r < ranks.size(); ++r)
    for (MessageHalf& half : halves[r]) {
      FindCompletion(stretches[r], half);
      (half.send ? sends : receives).push_back({r, &half});
    }
  const auto by_key = [](const Found& a, const Found& b) { return a.Key() < b.Key(); };
  std::stable_sort(sends.begin(), sends.end(), by_key);
  std::stable_sort(receives.begin(), receives.end(), by_key);
  for (std::size_t s = 0, d = 0; s < sends.size() && d < receives.size();) {
    if (sends[s].Key() < receives[d].Key()) {
      ++s;
      continue;
    }
    if (receives[d].Key() < sends[s].Key()) {
      ++d;
      continue;
    }
    const MessageHalf &send = *sends[s].half, &receive = *receives[d].half;
    const std::size_t from = sends[s].rank, to = receives[d].rank;
    RankStretches &sender = stretches[from], &receiver = stretches[to];
    ++s, ++d;
    Stretch* begins = CallAt(sender, send.begin_ns);
    Stretch* ends = CallAt(receiver, receive.completing_ns);
    // A receive that ended before its send began is the result of clock errors.
    if (begins == nullptr || ends == nullptr || send.begin_ns >= receive.end_ns) continue;
    const auto sent = static_cast<std::uint32_t>(2 * messages.size()), posted = sent + 1;
    messages.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to), receive.bytes, send.begin_ns,
                        send.completing_ns, send.end_ns, receive.begin_ns, receive.completing_ns, receive.end_ns});
    begins->offers.push_back(sent);
    Await(*ends, sent, send.begin_ns);
    Stretch* returns = CallAt(sender, send.completing_ns);
    if (returns != nullptr && receive.completing_ns <= send.completing_ns && send.completing_ns < receive.end_ns)
      returns->hands_over = sent / 2;
    if (send.completing_ns >= receive.begin_ns || send.end_ns <= receive.begin_ns) continue;
    Stretch* posts = CallAt(receiver, receive.begin_ns);
    if (posts == nullptr || returns == nullptr) continue;
    posts->offers.push_back(posted);
    Await(*returns, posted, receive.begin_ns);
  }
  return messages;
}

}  // namespace lockstep::replay
