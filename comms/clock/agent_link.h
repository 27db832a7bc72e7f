#pragma once
// A connection between two agents of one run that proved themselves to each other (run_key.h), over which frames go.
// Each frame has a number and a proof over all of it, so that nothing can be changed, left out, repeated or added on
// the way. It is made by the handshake of the clock service and through its port: there is one secret and one port.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "comms/clock/run_key.h"
#include "comms/clock/socket_util.h"

namespace lockstep::clock {

struct FrameHead {
  std::uint32_t kind = 0;
  std::uint32_t bytes = 0;  // Of the text that follows, before the proof.
  std::uint64_t number = 0;
  std::uint64_t a = 0, b = 0;  // What they mean depends on the kind.
};
static_assert(sizeof(FrameHead) == 32);

struct Frame {
  std::uint32_t kind = 0;
  std::uint64_t a = 0, b = 0;
  std::string text;
};

// Thread: one at a time, but for Cut.
class AgentLink {
 public:
  enum class Side : std::uint8_t { kClient, kServer };
  enum class Got : std::uint8_t {
    kFrame,
    kNothing,  // Within the time.
    kEnd,      // The other side is gone, or said something that it could not prove.
  };

  AgentLink(Side side, net::Fd fd, const RunKey& key, const net::Hello& hello, const net::Hello& challenge);

  // Returns false if the other side is gone, or takes nothing for `stall_ms` (SetStall).
  bool Send(std::uint32_t kind, std::uint64_t a, std::uint64_t b, std::string_view text);
  // Waits `limit_ms` for the begin of a frame. A frame with a text of more than `most` bytes ends the connection before
  // any memory is used for it.
  Got Receive(Frame& frame, std::size_t most, int limit_ms);
  void SetStall(int stall_ms);
  // Whether the other side has said something, or is gone; does not wait.
  bool Heard() const;
  // Ends the connection; from any thread, while this object exists.
  void Cut() const;
  int fd() const { return fd_.get(); }
  std::int32_t client_rank() const { return hello_.rank; }

 private:
  Proof ProofOfFrame(bool own, const FrameHead& head, std::string_view text) const;

  Side side_;
  net::Fd fd_;
  RunKey key_;
  net::Hello hello_, challenge_;
  std::uint64_t sent_ = 0, received_ = 0;
};

// Why a slot's agent calls rank 0's with files.
enum class FilesWhy : std::uint8_t {
  kEnd,    // Its program has ended well.
  kHaste,  // Its program failed: what is not taken at once is lost.
  kQuiet,  // It has recorded nothing for long: what it recorded so far, for whoever looks for a hang.
};

// What a client that was proven wants of a server besides clocks: see ClockServiceConfig::take_files.
struct FilesPeer {
  std::unique_ptr<AgentLink> link;
  std::uint64_t protocol = 0;  // Of its frames.
  FilesWhy why = FilesWhy::kEnd;
  std::string address;  // At which its host has called; "" of this host, or not known.
};

enum class CallEnd : std::uint8_t { kReached, kNobody, kUnproven, kTakesNone };
struct AgentCall {
  CallEnd end = CallEnd::kNobody;
  std::unique_ptr<AgentLink> link;  // With kReached.
};
// Calls rank 0's agent at the first of its addresses that answers, to give it files. `addresses` as the clock service
// writes them. Takes a second or two at most; less once `stopped` returns true.
AgentCall CallForFiles(const std::string& addresses, const RunKey& key, std::int32_t rank, FilesWhy why,
                       const std::function<bool()>& stopped);

}  // namespace lockstep::clock
