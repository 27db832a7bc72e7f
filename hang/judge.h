#pragma once
// Who holds a job up, from how far each rank is.

#include <cstdint>
#include <string>
#include <vector>

#include "hang/progress.h"

namespace lockstep::hang {

enum class Cause : std::uint8_t {
  kDidNotEnter,         // Its host did not come to the call.
  kStopped,             // Its process is stopped.
  kEarlyExit,           // Its process ended by itself while others still call.
  kKilled,              // Its process was killed.
  kUnreachable,         // Its machine does not answer.
  kNoDump,              // Nothing is known about it, and all that wait, wait for it.
  kBehindOnGpu,         // It called; others have completed or started what its GPU has not.
  kOtherOperation,      // The ranks' calls of one number are different operations.
  kMismatch,            // The same operation, of another size, type or root.
  kExtraOrMissingCall,  // One side made a call more or less than the other.
  kAllInside,           // Everybody called, and nothing moves.
  kCircularWait,        // Ranks wait for one another.
  kCannotTell,          // Somebody waits, and the facts do not say for whom.
};

// The word for programs: "did_not_enter".
const char* NameOf(Cause cause);

// Ranks whose calls of one number are the same.
struct Side {
  Operation call;
  std::vector<std::int32_t> ranks;
};

// In a circular wait: these ranks wait in an operation that those have not entered.
struct Link {
  std::size_t group = 0;
  Operation call;
  std::vector<std::int32_t> waiting, missing;
};

struct Verdict {
  Cause cause = Cause::kCannotTell;
  // Who is named. Empty: the facts name nobody.
  std::vector<std::int32_t> culprits;
  // Who may be it, where nobody can be named: those that did not enter, those without a dump, those outside.
  std::vector<std::int32_t> candidates;
  std::size_t group = 0;               // Index: where others wait.
  Operation call;                      // What they wait in.
  bool message = false;                // It is a message of two ranks.
  std::vector<std::int32_t> waiting;   // Ranks inside it.
  std::vector<std::int32_t> joined;    // Of them, those that came to it less than the least wait ago.
  std::int64_t waited_ns = kNotKnown;  // The longest of them.
  Operation last;                      // The only culprit's latest call in this group; `kind` is "" if there is none.
  std::vector<Side> sides;             // Where calls differ, the largest side first.
  std::vector<Link> cycle;             // Also of kOtherOperation, where the calls have no number in common.
  bool made_one_less = false, made_one_more = false;  // kExtraOrMissingCall, where the calls themselves show it.
  bool in_message = false;                            // kCannotTell: a candidate may be inside a message.
  bool outside = false;                               // kCannotTell: the candidates are inside nothing, all others are.
  bool nobody_outside = false;                        // kCannotTell: every rank of the job is inside something.
  bool hides_messages = false;                        // kDidNotEnter: messages of a culprit would not be seen.
  bool began = false;                                 // kDidNotEnter: the culprits began it and do not wait for it.
  bool not_started = false;                           // kBehindOnGpu: others have started it, none has completed it.
};

struct Judgement {
  std::vector<Verdict> verdicts;      // The one with most waiting ranks first. Empty: see `known`.
  std::vector<std::int32_t> no_dump;  // Ranks about which nothing is known.
  std::vector<std::int32_t> blind;    // These, and those of which it is not known whether they wait.
  std::size_t waiting = 0;            // Ranks inside any operation that is not complete.
  std::size_t young = 0;              // Operations that were open for a shorter time than JudgeOptions asks.
  std::int64_t oldest_young_ns = kNotKnown;
  bool known = false;  // Without a verdict: nothing hangs. Otherwise whether anything does is not known.
};

// What is open for less is work under way, if nobody says otherwise.
inline constexpr std::int64_t kLeastWaitNs = 5'000'000'000;

struct JudgeOptions {
  // What was open for less is not a wait. Operations whose age is not known count.
  std::int64_t least_wait_ns = 0;
};

// The time it takes grows with the number of calls and members, whatever the facts say.
Judgement Judge(const Progress& progress, const JudgeOptions& options);

}  // namespace lockstep::hang
