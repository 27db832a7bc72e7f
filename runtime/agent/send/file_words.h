#pragma once
// What the agents of a host that does not share rank 0's run directory and rank 0's agent say to each other when files
// are sent: kinds of frames (comms/clock/agent_link.h). Nothing else is taken from a connection.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::agent {

enum class FileWord : std::uint32_t {
  // By the one who sends.
  kOpen = 1,      // a: files; b: their bytes; text: who (Caller).
  kFile = 2,      // a: bytes of the file that follows; text: its name.
  kData = 3,      // a: where in the file; b: bytes; text: these.
  kDeflated = 4,  // The same; text: a zlib stream of them.
  kEnd = 5,       // Of the file; text: its SHA-256.
  kAll = 6,       // Of the files.
  kAsk = 7,       // By a quiet slot, instead of a file: whether a hang has been said.
  // By rank 0's agent.
  kWait = 16,     // It is there, and it is not this one's turn.
  kGo = 17,       // To kOpen.
  kShared = 18,   // To kOpen: this slot's files are in rank 0's directory.
  kFrom = 19,     // To kFile; a: what is there of it already.
  kHave = 20,     // To kFile: all of it.
  kTaken = 21,    // To kEnd and kAll. To kAsk; a: 1 if it has.
  kRefused = 22,  // To any; text: why.
};

// Bytes of a file in one frame, and of all other texts.
inline constexpr std::size_t kFileBlockBytes = 256 << 10, kMostWordBytes = 4096;

// Who sends, as the text of kOpen.
struct Caller {
  std::string place;  // PlaceText (rundir/places.h).
  std::string version, boot_id;
  // The first word of `place`.
  std::string host() const { return place.substr(0, place.find('\0')); }
};
std::string OpenText(const Caller& caller);
// Empty if it is no such text.
std::optional<Caller> ReadOpenText(const std::string& text);

}  // namespace lockstep::agent
