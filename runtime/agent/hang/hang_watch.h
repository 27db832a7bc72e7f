#pragma once
// `lockstep run --hang-after SECONDS`: when this rank has recorded nothing for so long inside a call, its agent asks
// `lockstep hang` (a process of its own, at idle priority) who holds the job up, and prints the answer and leaves it in
// the run directory. The agents of a run agree by a lock on one file of it that only one of them asks at a time. The
// application is not involved, and while it moves this costs a look at its rings ten times a second.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/file_lock.h"
#include "core/ring_layout.h"
#include "runtime/agent/hang/hang_stacks.h"
#include "runtime/agent/send/so_far.h"

namespace lockstep::agent {

struct OnHang {
  int signal = 0;      // Sent to the program; 0: it is only reported.
  bool every = false;  // To the programs of all ranks, else to that of one: its launcher ends the others.
};

// "report", "abort" (one rank's program gets SIGABRT, and its launcher ends the others) or "signal:N" (all of them get
// it); nothing for anything else.
std::optional<OnHang> OnHangOf(std::string_view text);

// Whether a hang has been said of this run, and nothing has moved since.
bool HangIsSaid(const std::string& run_dir);

class HangWatch {
 public:
  struct Setup {
    std::string run_dir;               // Absolute.
    std::int32_t slot = 0, slots = 1;  // Of the job's agents.
    std::string host;                  // This one's name.
    std::int64_t after_ns = 0;
    OnHang action;
    std::function<void(const std::string&)> say;
    std::function<void(int)> signal;        // To this agent's program.
    std::function<void()> restore_signals;  // In a new process, before it executes: as this process was started with.
    HangStacks* stacks = nullptr;           // Null: none are taken.
    std::string program;                    // That answers; "": this one.
    SoFarSender* so_far = nullptr;          // Null on rank 0.
    std::function<bool()> others_quiet;     // On rank 0: slots of other hosts have given what they recorded so far.
  };
  explicit HangWatch(Setup setup);
  HangWatch(const HangWatch&) = delete;
  HangWatch& operator=(const HangWatch&) = delete;
  ~HangWatch();

  struct Seen {
    // So far; `polls` of them asked for an operation in vain, `blocks` are of calls of libc in which a thread waited.
    std::uint64_t records = 0, polls = 0, blocks = 0;
    std::uint64_t spool_bytes = 0;
    bool blocked = false;  // A process of this slot sleeps in a system call.
  };
  // Ten times a second. Thread: the agent's main loop.
  void Look(const SegmentView& segment, std::int64_t now_ns, const Seen& seen);
  // The program has ended well, with so many records.
  void Ended(std::int64_t now_ns, std::uint64_t records);

 private:
  void SayItMoved();
  void Forget();    // What was found out and said: the job moves.
  void EndAsked();  // The process that looks for an answer, if there is one.
  bool SomeElsewhere() const;
  bool MayAsk(const SegmentView& segment, bool waits, bool others) const;
  void ForgetStacks();
  // Who asks for several operations in turn makes records, and waits all the same.
  bool PollsInVain(std::int64_t now_ns, const Seen& seen);
  // What another host's agent has said may be heard by nobody, if the network between the hosts is what stopped.
  void RepeatOthers();
  void HearOthers(const SegmentView& segment, std::int64_t now_ns);
  bool TakeTurn(std::int64_t now_ns);
  void Ask();
  void TakeAnswer(std::int64_t now_ns);
  void Publish(std::int64_t now_ns);
  void SayText(std::string_view text) const;
  void FollowOthers(std::int64_t now_ns);
  std::string Path(const char* name) const { return setup_.run_dir + "/" + name; }

  Setup setup_;
  std::uint64_t records_ = 0, work_ = 0;         // `work_`: those that are neither polls nor blocks.
  std::int64_t worked_ns_ = 0;                   // When there was another one of them.
  std::int64_t quiet_since_ns_ = 0;              // And inside the same call; 0: it moves.
  std::uint64_t inside_since_ticks_ = 0;         // Of that call; 0: inside none.
  std::int64_t moved_ns_ = 0;                    // When it did first after a hang was said; 0: it has not.
  std::size_t stage_ = 0;                        // Of kStages: the next question.
  std::int64_t again_ns_ = 0;                    // When it is asked before that; 0: it is not.
  std::optional<bool> elsewhere_;                // Slots of this job do not see this directory.
  OwnedFd turn_;                                 // Locked while this agent is the one that asks.
  std::int64_t next_try_ns_ = 0, pause_ns_ = 0;  // For the turn, which another one has.
  bool no_locks_ = false;                        // On the run directory's file system.
  pid_t asked_ = -1;                             // The process that looks for an answer.
  std::int64_t asked_ns_ = 0;
  bool asked_again_ = false;
  bool said_ = false, signalled_ = false, repeated_ = false;
  std::int64_t next_word_ns_ = 0;  // When to look next whether another agent has said a hang.
  bool asked_for_stacks_ = false;  // It has, and this agent's stacks were taken for that.
};

}  // namespace lockstep::agent
