#include "ingest/flight_recorder/member.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace lockstep::flight_recorder {
namespace {

using hang::kNotKnown;
using hang::OperationState;

// Completed operations that are kept, for comparison with what others did; the open ones are all kept.
constexpr std::size_t kKept = 64;

// The last entry of a batch, which has the batch's state; the entries before it of the same number never change theirs.
bool EndsBatch(const Entry& entry) { return entry.call.kind.ends_with("coalesced"); }

bool InOrder(const Entry& entry) { return entry.backend != "gloo"; }

bool Completed(const Entry& entry) { return entry.call.state == OperationState::kCompleted; }

// Each entry with the state that its batch or, on a queue, a later operation gives it.
std::vector<Entry> Settled(const std::vector<const Entry*>& entries) {
  std::vector<Entry> settled;
  for (const Entry* entry : entries) settled.push_back(*entry);
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, OperationState> batches;
  std::set<std::tuple<std::int32_t, std::int32_t>> done_messages;
  bool done_collective = false;
  for (std::size_t i = settled.size(); i-- > 0;) {
    Entry& entry = settled[i];
    const auto number = std::tuple(entry.collective, entry.message, entry.is_message);
    if (EndsBatch(entry))
      batches[number] = entry.call.state;
    else if (const auto batch = batches.find(number); batch != batches.end())
      entry.call.state = batch->second;
    if (!InOrder(entry)) continue;
    // A queue completes in the order of the calls.
    if (entry.is_message) {
      const auto ends = std::tuple(entry.from, entry.to);
      if (Completed(entry))
        done_messages.insert(ends);
      else if (done_messages.contains(ends))
        entry.call.state = OperationState::kCompleted;
    } else {
      if (Completed(entry))
        done_collective = true;
      else if (done_collective)
        entry.call.state = OperationState::kCompleted;
    }
  }
  return settled;
}

std::int32_t RankAt(const std::vector<std::int32_t>& order, std::int32_t place) {
  return place >= 0 && static_cast<std::size_t>(place) < order.size() ? order[static_cast<std::size_t>(place)] : -1;
}

void AddMessage(const Entry& entry, const Trust& trust, const std::vector<std::int32_t>& order, hang::Member& member) {
  hang::Operation call = entry.call;
  if (call.kind != "send" && call.kind != "recv") return;
  call.peer = RankAt(order, call.kind == "send" ? entry.to : entry.from);
  if (call.peer == member.rank) call.peer = -1;
  call.sequence = trust.numbered ? entry.message : kNotKnown;
  member.messages.push_back(std::move(call));
}

// Several entries of one number are one operation: a batch.
void AddCall(const Entry& entry, hang::Member& member) {
  if (!member.calls.empty() && member.calls.back().sequence == entry.collective) {
    hang::Operation& batch = member.calls.back();
    if (EndsBatch(entry)) {
      batch.state = entry.call.state;
      return;
    }
    if (batch.kind != entry.call.kind) batch.kind = "coalesced";
    for (auto hang::Operation::*part :
         {&hang::Operation::elements_in, &hang::Operation::elements_out, &hang::Operation::bytes})
      if (batch.*part == kNotKnown || entry.call.*part == kNotKnown ||
          __builtin_add_overflow(batch.*part, entry.call.*part, &(batch.*part)))
        batch.*part = kNotKnown;
    if (entry.call.state < batch.state) batch.state = entry.call.state;
    return;
  }
  member.calls.push_back(entry.call);
  member.calls.back().sequence = entry.collective;
}

void DropOld(std::vector<hang::Operation>& calls) {
  std::size_t completed = 0;
  for (const hang::Operation& call : calls) completed += call.state == OperationState::kCompleted;
  std::erase_if(calls, [&](const hang::Operation& call) {
    return call.state == OperationState::kCompleted && completed-- > kKept;
  });
}

// The count of completed operations, and those behind it that the ring shows as completed. An open one may have left
// the ring.
std::int64_t CompletedOf(const hang::Member& member, std::int64_t counted) {
  for (const hang::Operation& call : member.calls)
    if (call.sequence == counted + 1 && call.state == OperationState::kCompleted) ++counted;
  return std::min(counted, member.entered);
}

}  // namespace

Trust TrustOf(const std::vector<const MemberSource*>& members, std::size_t size) {
  bool collectives = false, messages = false, batches = false, agree = true;
  for (const MemberSource* member : members) {
    std::int64_t last_collective = kNotKnown, last_message = kNotKnown, ahead = 1;
    for (const Entry* entry : member->entries) {
      collectives |= !entry->is_message;
      messages |= entry->is_message;
      batches |= entry->is_message && EndsBatch(*entry);
      // The count goes up just before the entry is made; with gloo it is the operations without entries.
      if (!InOrder(*entry)) ahead = 0;
      (entry->is_message ? last_message : last_collective) = std::max(
          entry->is_message ? last_message : last_collective, entry->is_message ? entry->message : entry->collective);
    }
    if (!member->group->has_status) continue;
    const std::int64_t last = std::max(last_collective, last_message);
    if (last != kNotKnown) agree &= member->group->enqueued >= last && member->group->enqueued <= last + ahead;
    agree &= member->group->completed <= member->group->enqueued;
  }
  return {.collectives = agree && !messages,
          .messages = agree && messages && !collectives && size == 2 && !batches,
          .numbered = size == 2 && !batches};
}

hang::Member MemberOf(const MemberSource& source, const Trust& trust, const std::vector<std::int32_t>& order) {
  hang::Member member{.rank = source.rank};
  std::int64_t last = kNotKnown;
  for (const Entry& entry : source.dump->entries) member.shows_started |= entry.shows_start;
  const std::vector<Entry> settled = Settled(source.entries);
  std::vector<const Entry*> calls;
  for (const Entry& entry : settled) {
    // A message carries the number of collectives before it.
    last = std::max(last, entry.collective);
    if (entry.is_message)
      AddMessage(entry, trust, order, member);
    else if (entry.collective != kNotKnown)
      calls.push_back(&entry);
  }
  std::stable_sort(calls.begin(), calls.end(),
                   [](const Entry* a, const Entry* b) { return a->collective < b->collective; });
  for (const Entry* entry : calls) AddCall(*entry, member);
  const DumpGroup& group = *source.group;
  const bool believed = trust.collectives && group.has_status;
  const bool from_the_start = !source.dump->entries.empty() && source.dump->entries.front().record == 0;
  member.entered = std::max(last, believed ? group.enqueued : kNotKnown);
  if (member.entered == kNotKnown && source.dump->anything && !group.has_status &&
      (from_the_start || source.dump->status_is_whole))
    member.entered = 0;
  member.known = member.entered != kNotKnown;
  // What the ring does not hold any more is older than what it holds, and completed.
  member.completed = member.entered;
  for (const hang::Operation& call : member.calls)
    if (call.state != OperationState::kCompleted) {
      member.completed = std::min(member.completed, call.sequence - 1);
      break;
    }
  const bool open_shown = !member.calls.empty() && member.completed < member.calls.back().sequence;
  if (believed && group.completed != kNotKnown)
    member.completed = open_shown ? std::max(member.completed, group.completed) : CompletedOf(member, group.completed);
  if (trust.messages && group.has_status) member.messages_completed = group.completed;
  DropOld(member.calls);
  DropOld(member.messages);
  return member;
}

}  // namespace lockstep::flight_recorder
