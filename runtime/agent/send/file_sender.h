#pragma once
// Sends a slot's files to rank 0's agent, where that writes them into its run directory (file_receiver.h).

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "comms/clock/agent_link.h"
#include "runtime/agent/send/file_words.h"

namespace lockstep::agent {

struct FileToSend {
  std::string name;  // In ranks/ there.
  std::string path;
};

enum class SendEnd : std::uint8_t {
  kSent,
  kShared,  // Rank 0's agent sees this slot's directory.
  kFailed,
};

struct SendOutcome {
  SendEnd end = SendEnd::kFailed;
  std::string why;  // With kFailed; a part of a sentence.
};

class FileSender {
 public:
  struct Setup {
    std::string addresses;  // Of rank 0's agent, as the clock service writes them.
    clock::RunKey key{};
    std::int32_t slot = -1;
    Caller caller;
    // Once nothing has moved for so long it is given up.
    std::int64_t stall_ms = 30'000;
    std::int64_t reach_ms = 5'000;  // Once rank 0's agent cannot be reached, or not again.
    clock::FilesWhy why = clock::FilesWhy::kEnd;
  };

  // Begins to call rank 0's agent, on a thread of its own, so that it knows of this slot while the files are made.
  explicit FileSender(Setup setup);
  ~FileSender();
  FileSender(const FileSender&) = delete;
  FileSender& operator=(const FileSender&) = delete;

  // Sends these, in this order; blocks. Once per object.
  SendOutcome Send(const std::vector<FileToSend>& files);
  // Instead of that: asks whether a hang has been said. False also if that is not known.
  bool AskForHang();

 private:
  enum class Step : std::uint8_t { kDone, kCut, kOver };  // kOver: outcome_ says how it ended.
  void Call();
  Step Deliver(const std::vector<FileToSend>& files);
  Step SendFile(const FileToSend& file);
  Step SendBlocks(int fd, std::uint64_t from, std::uint64_t bytes);
  Step Await(clock::Frame& frame);
  bool Say(FileWord word, std::uint64_t a, std::uint64_t b, std::string_view text);
  Step Over(SendEnd end, std::string why);
  std::string StallText() const;

  const Setup setup_;
  std::atomic<bool> stop_{false};
  clock::CallEnd called_ = clock::CallEnd::kNobody;
  std::unique_ptr<clock::AgentLink> link_;
  std::int64_t moved_ns_ = 0;  // When something was last taken there, or it was last said that it will be.
  bool heard_ = false;         // Rank 0's agent has said anything on any connection.
  SendOutcome outcome_;
  std::thread thread_;
};

}  // namespace lockstep::agent
