#include "analysis/replay/host/host_messages.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "core/soon_after.h"

namespace lockstep::replay {
namespace {

using schema::kNoTime;
constexpr std::uint8_t kCompleted = schema::RequestOutcome::kCompleted;

struct Found {
  std::size_t rank;
  const MessageHalf* half;
  auto Key() const { return std::tie(half->comm, half->source, half->destination, half->tag, half->seq); }
};

bool CarriesMessages(const Stretch& stretch) {
  return stretch.kind == Stretch::kCall || stretch.kind == Stretch::kPost || stretch.kind == Stretch::kWait;
}
std::vector<Stretch>::iterator FirstFrom(RankStretches& rank, std::int64_t ns) {
  return std::lower_bound(rank.training.begin(), rank.training.end(), ns,
                          [](const Stretch& stretch, std::int64_t begin) { return stretch.begin_ns < begin; });
}

// Returns the call of a rank that began at this time, else the one in which this time is: calls of libraries begin
// before, and return after, what they carry.
Stretch* CallAt(RankStretches& rank, std::int64_t ns) {
  auto at = FirstFrom(rank, ns);
  for (auto same = at; same != rank.training.end() && same->begin_ns == ns; ++same)
    if (CarriesMessages(*same)) return &*same;
  while (at != rank.training.begin())
    if (--at; CarriesMessages(*at)) return ns <= at->end_ns ? &*at : nullptr;
  return nullptr;
}

// The call in which a rank moves what is there since `ns` and has come to the other rank at `moved_ns`: libraries move
// data while their rank is in one. That in which `ns` is may be about to return (from MPI_Isend), so that it is the
// next one, if that begins in time.
Stretch* MovesIn(RankStretches& rank, std::int64_t ns, std::int64_t moved_ns) {
  const auto is_call = [](const Stretch& stretch) {
    return CarriesMessages(stretch) || stretch.kind == Stretch::kBlocking;
  };
  auto next = FirstFrom(rank, ns);
  auto in = next;
  while (in != rank.training.begin() && !is_call(*--in)) {
  }
  while (next != rank.training.end() && !is_call(*next)) ++next;
  if (next != rank.training.end() && next->begin_ns < moved_ns) return &*next;
  return in != next && in != rank.training.end() && is_call(*in) && ns <= in->end_ns ? &*in : nullptr;
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

// A message with both its calls.
struct Pair {
  std::size_t from, to;
  const MessageHalf *send, *receive;
  Stretch *begins, *returns, *ends;  // Begins to send, returns when it is sent (null: not known), and received.
  // The first calls of receiver and sender in which it can move, if they are later than both posts.
  Stretch *takes = nullptr, *gives = nullptr;
  std::int64_t BothNs() const { return std::max(send->begin_ns, receive->begin_ns); }
};

// Messages that move only while the other rank is in a call (MovedSoonAfter).
class Progress {
 public:
  explicit Progress(const std::vector<Pair>& pairs) {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const MessageHalf &send = *pairs[i].send, &receive = *pairs[i].receive;
      ready_[{pairs[i].from, send.completing_ns, send.end_ns}].Add(2 * i, receive.begin_ns, send.end_ns);
      ready_[{pairs[i].to, receive.completing_ns, receive.end_ns}].Add(2 * i + 1, send.begin_ns, receive.end_ns);
    }
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const Pair& pair = pairs[i];
      const auto add = [&](std::size_t rank, const MessageHalf& half, const Stretch& came) {
        if (!ready_.at({rank, half.completing_ns, half.end_ns})
                 .Explains(2 * i + !half.send, pair.BothNs(), half.end_ns))
          moved_.Add(pair.receive->bytes, !half.send, pair.BothNs(), came.begin_ns, half.end_ns);
      };
      if (TakenLate(pair)) add(pair.from, *pair.send, *pair.takes);
      if (GivenLate(pair)) add(pair.to, *pair.receive, *pair.gives);
    }
  }
  bool WaitsToBeTaken(const Pair& pair) const {
    return TakenLate(pair) && moved_.Holds(pair.receive->bytes, false, pair.send->end_ns - pair.BothNs());
  }
  bool WaitsToBeGiven(const Pair& pair) const {
    return GivenLate(pair) && moved_.Holds(pair.receive->bytes, true, pair.receive->end_ns - pair.BothNs());
  }

 private:
  // Its sender was in the call that completes it, its receiver came to its next call, and after that it ended.
  static bool TakenLate(const Pair& pair) {
    return pair.takes != nullptr && pair.returns != nullptr && pair.takes->begin_ns < pair.returns->end_ns &&
           pair.BothNs() < pair.takes->begin_ns && pair.send->completing_ns < pair.takes->begin_ns &&
           pair.takes->begin_ns < pair.send->end_ns;
  }
  static bool GivenLate(const Pair& pair) {
    return pair.gives != nullptr && pair.gives->begin_ns < pair.ends->end_ns && pair.BothNs() < pair.gives->begin_ns &&
           pair.receive->completing_ns < pair.gives->begin_ns && pair.gives->begin_ns < pair.receive->end_ns;
  }
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t>, ReadyInCall> ready_;  // By rank, entry and return.
  MovedSoonAfter moved_;
};

// A receive that ended before its send began is the result of clock errors, and left out.
std::vector<Pair> PairsOf(const std::vector<std::int32_t>& ranks, std::vector<std::vector<MessageHalf>>& halves,
                          std::vector<RankStretches>& stretches) {
  std::vector<Found> sends, receives;
  for (std::size_t r = 0; r < halves.size() && r < ranks.size(); ++r)
    for (MessageHalf& half : halves[r]) {
      FindCompletion(stretches[r], half);
      (half.send ? sends : receives).push_back({r, &half});
    }
  const auto by_key = [](const Found& a, const Found& b) { return a.Key() < b.Key(); };
  std::stable_sort(sends.begin(), sends.end(), by_key);
  std::stable_sort(receives.begin(), receives.end(), by_key);
  std::vector<Pair> pairs;
  for (std::size_t s = 0, d = 0; s < sends.size() && d < receives.size();) {
    if (sends[s].Key() < receives[d].Key()) {
      ++s;
      continue;
    }
    if (receives[d].Key() < sends[s].Key()) {
      ++d;
      continue;
    }
    Pair pair{sends[s].rank, receives[d].rank, sends[s].half, receives[d].half, nullptr, nullptr, nullptr};
    ++s, ++d;
    RankStretches &sender = stretches[pair.from], &receiver = stretches[pair.to];
    pair.begins = CallAt(sender, pair.send->begin_ns);
    pair.returns = CallAt(sender, pair.send->completing_ns);
    pair.ends = CallAt(receiver, pair.receive->completing_ns);
    if (pair.begins == nullptr || pair.ends == nullptr || pair.send->begin_ns >= pair.receive->end_ns) continue;
    pair.takes = MovesIn(receiver, pair.BothNs(), pair.send->end_ns);
    if (pair.takes != nullptr)
      pair.gives = MovesIn(sender, std::max(pair.BothNs(), pair.takes->begin_ns), pair.receive->end_ns);
    pairs.push_back(pair);
  }
  return pairs;
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
  const std::vector<Pair> pairs = PairsOf(ranks, halves, stretches);
  const Progress progress(pairs);
  for (const Pair& pair : pairs) {
    const MessageHalf &send = *pair.send, &receive = *pair.receive;
    const auto sent = static_cast<std::uint32_t>(2 * messages.size()), posted = sent + 1;
    messages.push_back({static_cast<std::uint32_t>(pair.from), static_cast<std::uint32_t>(pair.to), receive.bytes,
                        send.begin_ns, send.completing_ns, send.end_ns, receive.begin_ns, receive.completing_ns,
                        receive.end_ns});
    const bool given = progress.WaitsToBeGiven(pair), taken = progress.WaitsToBeTaken(pair);
    (given ? pair.gives : pair.begins)->offers.push_back(sent);
    Await(*pair.ends, sent, given ? pair.gives->begin_ns : send.begin_ns);
    Stretch* returns = pair.returns;
    if (returns != nullptr && receive.completing_ns <= send.completing_ns && send.completing_ns < receive.end_ns)
      returns->hands_over = sent / 2;
    Stretch* posts = taken ? pair.takes : CallAt(stretches[pair.to], receive.begin_ns);
    const std::int64_t posts_ns = taken ? pair.takes->begin_ns : receive.begin_ns;
    if (posts == nullptr || returns == nullptr || send.completing_ns >= posts_ns || send.end_ns <= posts_ns) continue;
    posts->offers.push_back(posted);
    Await(*returns, posted, posts_ns);
  }
  return messages;
}

}  // namespace lockstep::replay
