#pragma once
// Who holds up a job whose hosts share no directory: an agent whose slot has recorded nothing for long gives rank 0's
// agent what it recorded so far, which writes it into its run directory (file_receiver.h), so that `lockstep hang`
// there sees all ranks (hang_watch.h). Once the slot records again, what was given is true no longer, and is taken
// back.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runtime/agent/send/file_sender.h"

namespace lockstep::agent {

// Thread: one. Nothing blocks; what takes time is left to threads that end with this process.
class SoFarSender {
 public:
  struct Setup {
    // How rank 0's agent is reached; nothing while that is not known, or if it sees this slot's directory.
    std::function<std::optional<FileSender::Setup>()> call;
    FileToSend spool;
    std::int64_t stall_ms = 10'000;
    // Writes into the spool what threads are inside of: without that a rank that waits in MPI counts as computing. May
    // be empty.
    std::function<void()> write_open;
  };
  // A larger spool stays here: the network may be what everybody waits for.
  static constexpr std::uint64_t kMostBytes = std::uint64_t{64} << 20;

  explicit SoFarSender(Setup setup) : setup_(std::move(setup)) {}

  // The slot is quiet: gives the spool, of so many bytes. Tried again now and then, and done again ever more seldom:
  // who has it may have ended.
  void Offer(std::int64_t now_ns, std::uint64_t spool_bytes);
  // It records again. To be called now and then while it does.
  void TakeBack(std::int64_t now_ns);
  // Rank 0's agent has it.
  bool there() const;
  // Whether a hang had been said on rank 0's host when rank 0's agent was asked last; while what was given is there,
  // and once in some seconds, of thousands of slots in a minute.
  bool SaidElsewhere(std::int64_t now_ns, std::int32_t slots);

 private:
  struct State;
  enum class Call : std::uint8_t { kGive, kBack, kAsk };
  bool Begin(Call what);

  Setup setup_;
  std::shared_ptr<State> state_;
  std::int64_t next_give_ns_ = 0, next_back_ns_ = 0, next_ask_ns_ = 0, again_ns_ = 0;
};

}  // namespace lockstep::agent
