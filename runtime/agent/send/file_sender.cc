#include "runtime/agent/send/file_sender.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "comms/clock/digest.h"
#include "comms/clock/quiet_thread.h"
#include "core/event_clock.h"
#include "core/own_file.h"
#include "runtime/agent/send/file_blocks.h"

namespace lockstep::agent {
namespace {

constexpr auto kCallPause = std::chrono::milliseconds(200);
constexpr int kListenMs = 500;
constexpr std::int64_t kNsPerMs = 1'000'000;

bool Is(const clock::Frame& frame, FileWord word) { return frame.kind == static_cast<std::uint32_t>(word); }

}  // namespace

FileSender::FileSender(Setup setup) : setup_(std::move(setup)) {
  thread_ = clock::QuietThread([this] { Call(); });
}

FileSender::~FileSender() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void FileSender::Call() {
  const std::int64_t until_ns = RawNs() + setup_.reach_ms * kNsPerMs;
  do {
    clock::AgentCall call =
        clock::CallForFiles(setup_.addresses, setup_.key, setup_.slot, setup_.why, [this] { return stop_.load(); });
    called_ = call.end;
    link_ = std::move(call.link);
    // It is there and says no.
    if (link_ || called_ == clock::CallEnd::kTakesNone || called_ == clock::CallEnd::kUnproven) return;
    std::this_thread::sleep_for(kCallPause);
  } while (!stop_.load() && RawNs() < until_ns);
}

FileSender::Step FileSender::Over(SendEnd end, std::string why) {
  outcome_ = {end, std::move(why)};
  return Step::kOver;
}

std::string FileSender::StallText() const {
  if (heard_) return "the connection to rank 0's agent was lost";
  return "rank 0's agent took nothing within " + std::to_string(setup_.stall_ms / 1000) +
         " s (--after-wait); its program may still run";
}

SendOutcome FileSender::Send(const std::vector<FileToSend>& files) {
  thread_.join();
  if (!link_) {
    const std::string at = " at " + setup_.addresses.substr(0, setup_.addresses.find(',', 100));
    Over(SendEnd::kFailed, called_ == clock::CallEnd::kTakesNone ? "rank 0's agent takes none"
                           : called_ == clock::CallEnd::kUnproven
                               ? "what answers" + at + " is of another run"
                               : "rank 0's agent was not reached" + at + " (it has ended, or a firewall is between)");
    return outcome_;
  }
  moved_ns_ = RawNs();
  for (std::int64_t lost_ns = moved_ns_;;) {
    if (link_) {
      if (Deliver(files) == Step::kOver) return outcome_;
      lost_ns = RawNs();
    }
    link_.reset();
    if (RawNs() - moved_ns_ > setup_.stall_ms * kNsPerMs || RawNs() - lost_ns > setup_.reach_ms * kNsPerMs) {
      Over(SendEnd::kFailed, StallText());
      return outcome_;
    }
    std::this_thread::sleep_for(kCallPause);
    link_ = clock::CallForFiles(setup_.addresses, setup_.key, setup_.slot, setup_.why, [] { return false; }).link;
  }
}

bool FileSender::AskForHang() {
  thread_.join();
  if (!link_) return false;
  moved_ns_ = RawNs();
  link_->SetStall(static_cast<int>(setup_.stall_ms));
  clock::Frame answer;
  // As if one file came: a call without any takes back what is there.
  return Say(FileWord::kOpen, 1, 0, OpenText(setup_.caller)) && Await(answer) == Step::kDone &&
         Is(answer, FileWord::kGo) && Say(FileWord::kAsk, 0, 0, "") && Await(answer) == Step::kDone &&
         Is(answer, FileWord::kTaken) && answer.a != 0;
}

bool FileSender::Say(FileWord word, std::uint64_t a, std::uint64_t b, std::string_view text) {
  return link_->Send(static_cast<std::uint32_t>(word), a, b, text);
}

// The answer to what was said last. Returns kCut once nothing was heard for too long.
FileSender::Step FileSender::Await(clock::Frame& frame) {
  using Got = clock::AgentLink::Got;
  while (RawNs() - moved_ns_ <= setup_.stall_ms * kNsPerMs) {
    const Got got = link_->Receive(frame, kMostWordBytes, kListenMs);
    if (got == Got::kEnd) return Step::kCut;
    if (got == Got::kNothing) continue;
    moved_ns_ = RawNs();
    heard_ = true;
    if (Is(frame, FileWord::kWait)) continue;
    if (Is(frame, FileWord::kRefused)) return Over(SendEnd::kFailed, frame.text);
    return Step::kDone;
  }
  return Step::kCut;
}

// On the present connection.
FileSender::Step FileSender::Deliver(const std::vector<FileToSend>& files) {
  link_->SetStall(static_cast<int>(setup_.stall_ms));
  std::uint64_t bytes = 0;
  for (const FileToSend& file : files) {
    struct stat info {};
    if (::stat(file.path.c_str(), &info) == 0) bytes += static_cast<std::uint64_t>(info.st_size);
  }
  clock::Frame answer;
  if (!Say(FileWord::kOpen, files.size(), bytes, OpenText(setup_.caller))) return Step::kCut;
  if (const Step step = Await(answer); step != Step::kDone) return step;
  if (Is(answer, FileWord::kShared)) return Over(SendEnd::kShared, "");
  if (!Is(answer, FileWord::kGo)) return Over(SendEnd::kFailed, "rank 0's agent answered something else");
  for (const FileToSend& file : files)
    if (const Step step = SendFile(file); step != Step::kDone) return step;
  if (!Say(FileWord::kAll, 0, 0, "")) return Step::kCut;
  if (const Step step = Await(answer); step != Step::kDone) return step;
  return Over(SendEnd::kSent, "");
}

FileSender::Step FileSender::SendFile(const FileToSend& file) {
  const OwnedFd fd = OpenPlain(file.path, O_RDONLY);
  struct stat info {};
  if (!fd.open() || ::fstat(fd.get(), &info) != 0)
    return Over(SendEnd::kFailed, file.path + ": " + std::strerror(errno));
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  clock::Frame answer;
  if (!Say(FileWord::kFile, bytes, 0, file.name)) return Step::kCut;
  if (const Step step = Await(answer); step != Step::kDone) return step;
  if (Is(answer, FileWord::kHave)) return Step::kDone;
  if (!Is(answer, FileWord::kFrom) || answer.a > bytes)
    return Over(SendEnd::kFailed, "rank 0's agent answered something else");
  if (const Step step = SendBlocks(fd.get(), answer.a, bytes); step != Step::kDone) return step;
  return Await(answer);
}

// What is there already is read, too, as the digest is that of the whole file.
FileSender::Step FileSender::SendBlocks(int fd, std::uint64_t from, std::uint64_t bytes) {
  clock::Digest digest;
  BlockEncoder encoder;
  std::string block;
  for (std::uint64_t at = 0; at < bytes; at += block.size()) {
    const std::uint64_t end = at < from ? from : bytes;
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kFileBlockBytes, end - at)));
    if (!ReadAt(fd, at, block.data(), block.size()))
      return Over(SendEnd::kFailed, "a file could not be read: " + std::string(std::strerror(errno)));
    digest.Add(block);
    if (at < from) continue;
    const std::string_view encoded = encoder.Encode(block);
    if (encoded.empty() ? !Say(FileWord::kData, at, block.size(), block)
                        : !Say(FileWord::kDeflated, at, block.size(), encoded))
      return Step::kCut;
    moved_ns_ = RawNs();
  }
  const clock::Digest::Value value = digest.Take();
  return Say(FileWord::kEnd, 0, 0, {reinterpret_cast<const char*>(value.data()), value.size()}) ? Step::kDone
                                                                                                : Step::kCut;
}

}  // namespace lockstep::agent
