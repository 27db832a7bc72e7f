#pragma once
// Rank 0's agent takes the files of hosts that do not share its run directory (file_sender.h), and writes them there.
//
// A file is written under another name, in blocks, and gets its own once its length and digest are right. After a cut
// the next connection goes on where the last one ended. At most kWorkers connections are served at once, so that memory
// does not grow with the ranks; the others are told to wait. As long as the program of rank 0 runs, nothing is taken
// and no thread exists: its host's time and network are the program's. Only slots whose program failed (haste.h) are
// served at once; and, by an object of their own, quiet slots that give what they recorded so far (so_far.h).

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comms/clock/agent_link.h"
#include "comms/clock/clock_service.h"
#include "comms/clock/digest.h"
#include "core/file_lock.h"
#include "runtime/agent/send/file_blocks.h"
#include "runtime/agent/send/file_words.h"

namespace lockstep::agent {

enum class SenderState : std::uint8_t {
  kUnknown,  // Never heard of, or it shares the directory.
  kComing,
  kHere,  // All its files are.
  kGone,  // It was lost on the way, or refused.
};

// What has come so far.
struct Arrived {
  std::set<std::pair<std::string, std::string>> hosts;  // Whose slots are complete: name, boot id.
  std::set<std::int32_t> slots;
  std::uint64_t bytes = 0;       // Of the files.
  std::uint64_t sent_bytes = 0;  // That crossed the network for them.
  // Of all slots that have opened and do not see this directory, complete or not.
  std::vector<clock::ToldPlace> places;
  std::vector<std::string> troubles;  // "rank 5 of node3: No space left on device"
};

class FileReceiver {
 public:
  struct Setup {
    std::string run_dir;  // Absolute.
    std::int32_t slots = 0;
    std::string version;
    std::int64_t stall_ms = 30'000;
    int tell_ms = 1000;                    // Those who wait are told so this often.
    std::int64_t back_ns = 5'000'000'000;  // An agent whose connection was cut may be back within this time.
    // Takes what quiet slots recorded so far, at once, and replaces what it took of them before.
    bool so_far = false;
    // With `so_far`: whether a hang has been said of this run. Called on its own threads.
    std::function<bool()> hang_is_said;
    // The one that does. What it took of a slot gives way to the slot's files. It outlives this object.
    FileReceiver* before = nullptr;
  };
  static constexpr int kWorkers = 4;

  explicit FileReceiver(Setup setup) : setup_(std::move(setup)) {}
  ~FileReceiver();
  FileReceiver(const FileReceiver&) = delete;
  FileReceiver& operator=(const FileReceiver&) = delete;

  // A connection of an agent that has proved itself. From any thread; returns at once.
  void Take(clock::FilesPeer peer);
  // Rank 0's program has ended: those who wait are told so from now on.
  void ProgramEnded();
  // Rank 0's own file is complete, so that nobody's takes its room: begins to take.
  void Begin();

  SenderState StateOf(std::int32_t slot) const;
  // Somebody in haste is connected.
  bool hurried() const;
  // Grows while something arrives.
  std::uint64_t progress() const { return progress_.load(std::memory_order_relaxed); }
  Arrived arrived() const;
  // With `so_far`: something is here of another slot.
  bool holds_any() const;
  // Removes what is here of all slots, and takes nothing more.
  void Close();
  // Removes what is here of one.
  void Drop(std::int32_t slot);

 private:
  struct Part {
    std::string name, path;  // `path`: under another name.
    OwnedFd fd;
    std::uint64_t bytes = 0, done = 0;
    clock::Digest digest;
  };
  struct Sender {
    std::shared_ptr<clock::AgentLink> link;  // The last one; null once it was lost.
    std::int64_t lost_ns = 0;
    bool busy = false;  // A worker serves it, and only that one uses what follows.
    clock::FilesWhy why = clock::FilesWhy::kEnd;
    bool all = false, shared = false;
    Caller caller;        // Once it has opened.
    std::string address;  // clock::FilesPeer's.
    std::string refusal;
    std::set<std::string> taken;
    std::uint64_t bytes = 0, sent_bytes = 0;
    std::unique_ptr<Part> part;
  };
  struct Waiting {
    std::int32_t slot = -1;
    std::shared_ptr<clock::AgentLink> link;
    std::uint64_t protocol = 0;
    clock::FilesWhy why = clock::FilesWhy::kEnd;
    bool spoke = false;  // It has said what it wants.
  };

  bool AtOnce(clock::FilesWhy why) const { return setup_.so_far || why == clock::FilesWhy::kHaste; }
  bool Holds(std::int32_t slot, const std::string& name) const;
  bool Release(std::int32_t slot, const std::string& name);
  int Place(std::int32_t slot, Sender& sender);
  void StartDispatcher();
  void Dispatch();
  void Hand(std::vector<Waiting>& waiting);
  void Work();
  void Serve(const Waiting& peer);
  bool Open(const Waiting& peer, Sender& sender);
  bool Answer(const Waiting& peer, Sender& sender, const clock::Frame& frame);
  bool BeginFile(const Waiting& peer, Sender& sender, const clock::Frame& frame);
  bool TakeBlock(const Waiting& peer, Sender& sender, const clock::Frame& frame);
  bool EndFile(const Waiting& peer, Sender& sender, const clock::Frame& frame);
  bool Refuse(const Waiting& peer, Sender& sender, const std::string& why);
  static bool Say(const Waiting& peer, FileWord word, std::uint64_t a = 0, const std::string& text = "");
  void Lost(const Waiting& peer);
  void Wake();
  std::string PathOf(const std::string& name) const { return setup_.run_dir + "/ranks/" + name; }

  const Setup setup_;
  std::atomic<std::uint64_t> progress_{0};
  mutable std::mutex mutex_;  // Protects all below.
  std::condition_variable work_;
  bool ended_ = false, begun_ = false, stop_ = false;
  std::map<std::int32_t, Sender> senders_;
  std::vector<Waiting> arriving_, ready_;  // For the dispatcher; for the workers.
  int serving_ = 0;
  OwnedFd wake_;
  std::thread dispatcher_;
  std::vector<std::thread> workers_;
};

}  // namespace lockstep::agent
