#include "ingest/recorded/messages.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace lockstep::recorded {
namespace {

using hang::Operation;
using hang::OperationState;

// A message between two hosts takes less, if the network carries it.
constexpr std::int64_t kArrivesWithinNs = 5'000'000'000;

bool Fits(const MessageKey& wanted, const MessageKey& exact) {
  return wanted.comm == exact.comm && wanted.to == exact.to && (wanted.from < 0 || wanted.from == exact.from) &&
         (wanted.tag < 0 || wanted.tag == exact.tag) && wanted.partitioned == exact.partitioned;
}

class Matcher {
 public:
  explicit Matcher(std::vector<RankView>& views) : views_(views) {
    for (RankView& view : views_) {
      by_rank_[view.facts.rank] = &view;
      for (OpenMessage& message : view.open)
        if (message.number > 0) open_[{message.sends, message.key, message.number}] = &message;
    }
  }

  Messages Match() {
    for (RankView& view : views_)
      for (OpenMessage& message : view.open) Look(view, message);
    for (RankView& view : views_)
      if (!LeaveToNetwork(view)) SetAside(view);
    for (RankView& view : views_) {
      for (const OpenMessage& message : view.open) {
        Operation call = message.call;
        if (call.peer < 0 && call.waited) {
          view.elsewhere.push_back(call);
          // Who sends to anybody's receive finds it.
          call.waited = false;
        }
        found_[{message.key.comm, view.facts.rank}].push_back(std::move(call));
      }
    }
    return std::move(found_);
  }

 private:
  enum class OtherEnd : std::uint8_t { kUnknown, kMissing, kOpen, kEnded };

  RankView* ViewOf(std::int32_t rank) const {
    const auto at = by_rank_.find(rank);
    return at == by_rank_.end() ? nullptr : at->second;
  }

  std::int64_t Begun(const MessageKey& key, bool sends) const {
    const RankView* view = ViewOf(sends ? key.from : key.to);
    if (view == nullptr) return 0;
    const auto at = view->messages.find(key);
    return at == view->messages.end() ? 0 : sends ? at->second.sends : at->second.receives;
  }

  // One number for a message of two ranks, whatever its tag.
  std::int64_t SequenceOf(const MessageKey& key, std::int64_t number) {
    auto& numbers = sequences_[{key.comm, key.from, key.to}];
    number += key.partitioned << 32;
    return numbers.try_emplace({key.tag, number}, static_cast<std::int64_t>(numbers.size()) + 1).first->second;
  }

  // A receive with any tag from one rank takes what that rank sent first and nobody has asked for.
  bool TakeAnyTag(OpenMessage& message) {
    const RankView* sender = ViewOf(message.key.from);
    for (const auto& [key, sent] : sender->messages) {
      if (!Fits(message.key, key) || key.from != message.key.from || sent.sends <= Begun(key, false)) continue;
      message.key.tag = key.tag;
      message.number = Begun(key, false) + 1;
      return true;
    }
    return false;
  }

  OtherEnd Find(const RankView& view, OpenMessage& message) {
    const MessageKey& key = message.key;
    const std::int32_t peer = message.sends ? key.to : key.from;
    const RankView* other = ViewOf(peer);
    if (peer < 0) return OtherEnd::kUnknown;
    if (other == nullptr) return OtherEnd::kMissing;
    const bool whole = view.whole && other->whole;
    if (!message.sends && key.tag < 0 && !(whole && TakeAnyTag(message)))
      return whole ? OtherEnd::kMissing : OtherEnd::kUnknown;
    if (message.number > 0) {
      if (open_.contains({!message.sends, message.key, message.number})) return OtherEnd::kOpen;
      if (whole && message.number <= Begun(message.key, !message.sends)) return OtherEnd::kEnded;
    }
    if (message.sends)
      for (const OpenMessage& theirs : other->open)
        if (!theirs.sends && theirs.number == 0 && Fits(theirs.key, message.key)) return OtherEnd::kOpen;
    return whole ? OtherEnd::kMissing : OtherEnd::kUnknown;
  }

  void Look(const RankView& view, OpenMessage& message) {
    const OtherEnd end = Find(view, message);
    may_have_ended_[&message] = end == OtherEnd::kOpen || end == OtherEnd::kEnded;
    if (end == OtherEnd::kEnded) ended_.insert(&message);
    // Where the other end is through, nobody's call is missing, and who holds this one up is not known, unless all that
    // its call waits for is so (LeaveToNetwork).
    if (end == OtherEnd::kUnknown || end == OtherEnd::kEnded) {
      message.call.peer = -1;
    } else if (message.number > 0) {
      message.call.sequence = SequenceOf(message.key, message.number);
    }
  }

  // Whether nothing but the way to this rank can hold up what the other end is through with: that end is inside an
  // MPI call that moves what it still has to send, and has been for long; and no other receive of this rank can have
  // taken it.
  bool IsOnItsWay(const RankView& view, const OpenMessage& message) const {
    if (!ended_.contains(&message)) return false;
    const RankView& other = *ViewOf(message.sends ? message.key.to : message.key.from);
    const auto comm = other.comms.find(message.key.comm);
    const bool moves = comm != other.comms.end() && comm->second.is_mpi && other.moves_messages;
    const bool able = view.facts.state != hang::RankState::kStopped && other.facts.state != hang::RankState::kStopped;
    const bool still = other.facts.moved_ns != hang::kNotKnown && view.facts.seen_ns != hang::kNotKnown &&
                       other.facts.moved_ns + kArrivesWithinNs <= view.facts.seen_ns;
    if (!moves || !able || !still) return false;
    const RankView& receiver = message.sends ? other : view;
    return std::none_of(receiver.open.begin(), receiver.open.end(), [&](const OpenMessage& each) {
      return !each.sends && each.number == 0 && Fits(each.key, message.key);
    });
  }

  bool CrossesHosts(const RankView& view, const OpenMessage& message) const {
    const RankView& other = *ViewOf(message.sends ? message.key.to : message.key.from);
    return !view.facts.host.empty() && !other.facts.host.empty() && view.facts.host != other.facts.host;
  }

  // A rank that waits for nothing but messages whose other ends are through: those between two hosts have not come, as
  // within one host nothing is left that could hold them up. Each keeps its other end, whose half is added as
  // completed.
  bool LeaveToNetwork(RankView& view) {
    bool crosses = false, creates = false;
    for (const OpenMessage& message : view.open) {
      if (!message.call.waited) continue;
      if (!IsOnItsWay(view, message)) return false;
      crosses |= CrossesHosts(view, message);
    }
    for (const auto& [id, comm] : view.comms) creates |= !comm.creation.kind.empty();
    if (!crosses || creates || !view.elsewhere.empty() || InsideCollective(view)) return false;
    for (OpenMessage& message : view.open) {
      if (!message.call.waited) continue;
      message.call.waited = CrossesHosts(view, message);
      if (!message.call.waited) continue;
      const std::int32_t peer = message.sends ? message.key.to : message.key.from;
      message.call.peer = peer;
      message.call.sequence = SequenceOf(message.key, message.number);
      Operation half = message.call;
      half.kind = message.sends ? "recv" : "send";
      half.peer = view.facts.rank;
      half.state = OperationState::kCompleted;
      found_[{message.key.comm, peer}].push_back(std::move(half));
    }
    return true;
  }

  static bool InsideCollective(const RankView& view) {
    return std::any_of(view.comms.begin(), view.comms.end(), [](const auto& comm) {
      return std::any_of(comm.second.calls.begin(), comm.second.calls.end(),
                         [](const Operation& call) { return call.waited && call.state != OperationState::kCompleted; });
    });
  }

  // Of several that a call waits for, those that nobody has answered hold it up.
  void SetAside(RankView& view) {
    const bool held = std::any_of(view.open.begin(), view.open.end(), [&](const OpenMessage& message) {
      return message.call.waited && !may_have_ended_[&message];
    });
    if (!held && !InsideCollective(view)) return;
    for (OpenMessage& message : view.open)
      if (message.one_of_many && may_have_ended_[&message]) message.call.waited = false;
  }

  std::vector<RankView>& views_;
  std::map<std::int32_t, RankView*> by_rank_;
  std::map<std::tuple<bool, MessageKey, std::int64_t>, OpenMessage*> open_;  // By direction: true is a send.
  std::map<std::tuple<std::uint64_t, std::int32_t, std::int32_t>,
           std::map<std::pair<std::int32_t, std::int64_t>, std::int64_t>>
      sequences_;
  std::map<const OpenMessage*, bool> may_have_ended_;
  std::set<const OpenMessage*> ended_;  // Their other ends are through.
  Messages found_;
};

}  // namespace

Messages MatchMessages(std::vector<RankView>& views) { return Matcher(views).Match(); }

}  // namespace lockstep::recorded
