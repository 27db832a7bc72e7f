#pragma once
// How far each rank of a job is in each of its groups, at one moment: what the judge of hangs (judge.h) works on,
// whoever found it out. A reader of dumps fills it; so may whoever sees a running job, or what a killed one left.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::hang {

// Of sequences, counts and times.
inline constexpr std::int64_t kNotKnown = -1;

// A call on a thread's stack.
struct Frame {
  std::string function, file;  // "" unknown.
  std::int32_t line = 0;       // 0 unknown.
  bool python = false;
  bool library = false;  // Of the system, of Python or of an installed package: not what somebody wrote for this job.
  auto operator<=>(const Frame&) const = default;
};

struct Thread {
  std::int64_t number = 0;  // The kernel's.
  std::string name;
  bool main = false;
  std::string missing;        // What is not known of its stack; "" nothing.
  std::string waits_for;      // "Python's GIL", "a lock"; "" none that is known.
  std::int64_t held_by = 0;   // Number of the thread of this process that has it; 0 not known.
  std::vector<Frame> frames;  // Innermost first.
};

enum class RankState : std::uint8_t {
  kUnknown,  // There are facts about its calls, and none about its process.
  kAlive,
  kStopped,  // By a signal or a debugger.
  kExited,   // By itself.
  kKilled,
  kSilent,   // Neither it nor its machine answers.
  kMissing,  // There are no facts about it at all: no dump.
};

struct RankFacts {
  std::int32_t rank = -1;  // In the world of the job.
  std::int64_t pid = 0;    // Of its process, as its host counts; 0 unknown.
  RankState state = RankState::kUnknown;
  std::string host;                          // "" unknown.
  std::string process;                       // Which one it is, if its rank tells too little: "process 47, GPU 3".
  std::string doing;                         // What it does now, as part of a sentence; "" unknown.
  std::int64_t seen_ns = kNotKnown;          // When these facts were taken, on the clock of its operations' times.
  double cpu_share = -1;                     // Of one core, its main thread in its last seconds; -1 not known.
  std::string asleep_in, asleep_on;          // The system call that its main thread sleeps in, its file; "" not known.
  std::vector<Thread> threads;               // Where they stood when nothing moved; empty: not known.
  std::string stacks_file;                   // The same as text, below the run directory; "" there is none.
  std::string no_stacks;                     // Why not; "" nobody looked.
  std::int64_t moved_ns = kNotKnown;         // When it last completed an operation.
  std::int64_t longest_wait_ns = kNotKnown;  // The longest operation that it has completed.
  // Its facts hold no messages (gloo's dumps): where it seems to wait for nobody, it may be inside one.
  bool hides_messages = false;
  bool makes_messages = false;  // And it is known to have made some.
  bool counts_only = false;     // Its facts are counts of calls: what it is inside of besides is not known.
  bool blind = false;           // Whether it was inside any call at all is not known.
  // The libraries whose calls its dump shows ("NCCL"), ascending: of calls of others it shows nothing. Empty: it is no
  // dump, or does not say.
  std::vector<std::string> shows;
  // It exited with code 0 between MPI_Init and MPI_Finalize: whoever waits for it waits for ever, however short that
  // was when the launcher ended it.
  bool without_finalize = false;
};

enum class OperationState : std::uint8_t { kScheduled, kStarted, kCompleted };

// A call of one rank.
struct Operation {
  // A collective: its number in the group, the same on all ranks. A message: its number between the two, if both ends
  // count alike; kNotKnown if they do not, and then the order of calls counts.
  std::int64_t sequence = kNotKnown;
  std::string kind;  // "all_reduce", "send", "recv"; "" not known.
  std::string type;  // Of elements, as the program calls it; "" unknown.
  std::int64_t elements_in = kNotKnown, elements_out = kNotKnown;
  std::int64_t bytes = kNotKnown;
  std::int32_t peer = -1;  // Root of a collective, other end of a message; -1 none, unknown or any.
  bool numbered = true;    // False: the sequence is good for comparing and tells people nothing.
  OperationState state = OperationState::kScheduled;
  std::int64_t created_ns = kNotKnown;
  std::string site;    // "train.py:88 step"; "" unknown.
  bool waited = true;  // False: the rank began it, went on, and is known not to wait for it.
};

// One rank in one group.
struct Member {
  std::int32_t rank = -1;
  bool known = false;  // False: what this rank did in this group is not known.
  // Every collective up to this one was entered, completed; 0 before the first.
  std::int64_t entered = kNotKnown, completed = kNotKnown;
  // What this rank began moves only while it is inside a call (MPI without a thread of its own).
  bool moves_in_calls = false;
  // Whether it is recorded when the GPU starts an operation: otherwise kScheduled may be started.
  bool shows_started = false;
  // The latest collectives, ascending, one per number; older ones may be left out.
  std::vector<Operation> calls;
  // The latest messages in the order of calls; all that have not completed are there.
  std::vector<Operation> messages;
  // As above, of messages whose number both ends know.
  std::int64_t messages_completed = kNotKnown;
};

// A group is its name and its set of ranks.
struct Group {
  std::string name, label;      // The label is for people; "" none.
  std::vector<Member> members;  // Ascending by rank.
  bool complete = true;         // False: there may be more members than these.
  bool on_host = false;         // Hosts carry its operations (MPI, gloo), not GPUs.
};

// What a rank's facts come from.
enum class Source : std::uint8_t { kDump, kRankFile, kAnswer };

// What the facts leave open where no rank is seen to wait.
enum class Open : std::uint8_t {
  kNothing,
  kWhoIsBehind,  // Ranks are behind whose numbers in the job are not known.
  kWhoIsInside,  // Whether all are inside an operation.
  kNoCounts,     // How much any rank has called.
  kUnreadFiles,  // What ranks did whose files could not be read, and which these are.
};

struct Progress {
  Source source = Source::kDump;
  bool own_ranks = false;  // Its ranks are numbers of its own: those of the job are not known.
  Open open = Open::kNothing;
  bool whole = false;            // What every rank of the job is inside of is there.
  std::vector<RankFacts> ranks;  // Ascending.
  std::vector<Group> groups;
};

// Null: the job has no such rank.
inline const RankFacts* FactsOf(const Progress& progress, std::int32_t rank) {
  const auto at = std::lower_bound(progress.ranks.begin(), progress.ranks.end(), rank,
                                   [](const RankFacts& facts, std::int32_t wanted) { return facts.rank < wanted; });
  return at == progress.ranks.end() || at->rank != rank ? nullptr : &*at;
}

}  // namespace lockstep::hang
