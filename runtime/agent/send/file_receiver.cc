#include "runtime/agent/send/file_receiver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comms/clock/quiet_thread.h"
#include "core/byte_text.h"
#include "core/event_clock.h"
#include "core/own_file.h"
#include "core/rank_name.h"
#include "runtime/agent/rundir/claim.h"

namespace lockstep::agent {
namespace {

constexpr int kTellStallMs = 100;  // Who does not read that he has to wait is not waited for.
constexpr int kOpenMs = 2000;

bool Has(const clock::Frame& frame, FileWord word) { return frame.kind == static_cast<std::uint32_t>(word); }

// Only this slot's own files, so that no name leads anywhere else.
bool IsFileOf(std::int32_t slot, const std::string& name) {
  const std::string stem = RankName(slot);
  return name.starts_with(stem) && IsRankFileSuffix(std::string_view(name).substr(stem.size()));
}

// Other ranks of this host may still compute. Not for those in haste: their time is short, and the job's is over.
void BeLowPriority() { ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10); }

}  // namespace

FileReceiver::~FileReceiver() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    for (const auto& [slot, sender] : senders_)
      if (sender.link) sender.link->Cut();
    Wake();
  }
  work_.notify_all();
  if (dispatcher_.joinable()) dispatcher_.join();
  for (std::thread& worker : workers_) worker.join();
  for (const auto& [slot, sender] : senders_)
    if (sender.part) ::unlink(sender.part->path.c_str());
}

void FileReceiver::Wake() {
  const std::uint64_t one = 1;
  if (wake_.open()) (void)!::write(wake_.get(), &one, sizeof one);
}

void FileReceiver::Take(clock::FilesPeer peer) {
  const std::int32_t slot = peer.link->client_rank();
  if (slot < 1 || slot >= setup_.slots) return;
  const std::lock_guard lock(mutex_);
  if (stop_) return;
  Sender& sender = senders_[slot];
  // The last connection counts: who calls again has lost the one before.
  if (sender.link) sender.link->Cut();
  sender.link = std::move(peer.link);
  sender.why = peer.why;
  sender.address = std::move(peer.address);
  arriving_.push_back({slot, sender.link, peer.protocol, peer.why});
  if (ended_ || AtOnce(peer.why)) StartDispatcher();
  Wake();
}

// Under the lock.
void FileReceiver::StartDispatcher() {
  if (dispatcher_.joinable()) return;
  wake_ = OwnedFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  dispatcher_ = clock::QuietThread([this] { Dispatch(); });
}

void FileReceiver::ProgramEnded() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  if (!arriving_.empty()) StartDispatcher();
}

void FileReceiver::Begin() {
  const std::lock_guard lock(mutex_);
  begun_ = true;
  Wake();
}

SenderState FileReceiver::StateOf(std::int32_t slot) const {
  const std::lock_guard lock(mutex_);
  const auto found = senders_.find(slot);
  if (found == senders_.end() || found->second.shared) return SenderState::kUnknown;
  const Sender& sender = found->second;
  if (sender.all) return SenderState::kHere;
  if (!sender.refusal.empty()) return SenderState::kGone;
  return sender.link || RawNs() - sender.lost_ns < setup_.back_ns ? SenderState::kComing : SenderState::kGone;
}

bool FileReceiver::hurried() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(senders_.begin(), senders_.end(), [](const auto& sender) {
    return sender.second.link && sender.second.why == clock::FilesWhy::kHaste;
  });
}

Arrived FileReceiver::arrived() const {
  const std::lock_guard lock(mutex_);
  Arrived arrived;
  for (const auto& [slot, sender] : senders_) {
    const std::string host = sender.caller.host();
    const std::string name = "rank " + std::to_string(slot) + (host.empty() ? "" : " of " + host);
    if (!host.empty() && !sender.shared) arrived.places.push_back({slot, sender.caller.place, sender.address});
    if (!sender.refusal.empty()) arrived.troubles.push_back(name + ": " + sender.refusal);
    if (!sender.all) continue;
    arrived.hosts.emplace(host, sender.caller.boot_id);
    arrived.slots.insert(slot);
    arrived.bytes += sender.bytes;
    arrived.sent_bytes += sender.sent_bytes;
  }
  return arrived;
}

bool FileReceiver::holds_any() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(senders_.begin(), senders_.end(), [](const auto& sender) { return !sender.second.taken.empty(); });
}

bool FileReceiver::Holds(std::int32_t slot, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = senders_.find(slot);
  return found != senders_.end() && found->second.taken.contains(name);
}

// Whether it was here. The file stays, and is another one's from now on.
bool FileReceiver::Release(std::int32_t slot, const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = senders_.find(slot);
  return found != senders_.end() && found->second.taken.erase(name) != 0;
}

void FileReceiver::Drop(std::int32_t slot) {
  const std::lock_guard lock(mutex_);
  const auto found = senders_.find(slot);
  if (found == senders_.end()) return;
  for (const std::string& name : std::exchange(found->second.taken, {})) RemoveOwn(PathOf(name));
}

void FileReceiver::Close() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  for (auto& [slot, sender] : senders_) {
    if (sender.link) sender.link->Cut();
    for (const std::string& name : std::exchange(sender.taken, {})) RemoveOwn(PathOf(name));
  }
  Wake();
  work_.notify_all();
}

void FileReceiver::Lost(const Waiting& peer) {
  const std::lock_guard lock(mutex_);
  Sender& sender = senders_[peer.slot];
  if (sender.link != peer.link) return;  // It has called again.
  sender.link.reset();
  sender.lost_ns = RawNs();
}

// Watches those who wait, tells them so, and hands them to workers.
void FileReceiver::Dispatch() {
  bool low = false;
  std::vector<Waiting> waiting;
  std::int64_t told_ns = 0;
  for (;;) {
    bool program_ended = false;
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      program_ended = ended_;
      if (program_ended && !std::exchange(low, true)) BeLowPriority();
      waiting.insert(waiting.end(), arriving_.begin(), arriving_.end());
      arriving_.clear();
      Hand(waiting);
    }
    std::vector<pollfd> polls{{wake_.get(), POLLIN, 0}};
    for (const Waiting& peer : waiting)
      polls.push_back({peer.link->fd(), static_cast<short>(peer.spoke ? POLLRDHUP : POLLIN | POLLRDHUP), 0});
    if (::poll(polls.data(), polls.size(), setup_.tell_ms) < 0 && errno != EINTR) return;
    std::uint64_t ignored = 0;
    (void)!::read(wake_.get(), &ignored, sizeof ignored);
    const bool tell = program_ended && RawNs() - told_ns >= std::int64_t{setup_.tell_ms} * 1'000'000;
    if (tell) told_ns = RawNs();
    std::vector<Waiting> left;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      Waiting& peer = waiting[i];
      const short events = polls[i + 1].revents;
      if ((events & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0) {
        Lost(peer);
        continue;
      }
      peer.spoke = peer.spoke || (events & POLLIN) != 0;
      if (tell) {
        peer.link->SetStall(kTellStallMs);
        if (!Say(peer, FileWord::kWait)) {
          peer.link->Cut();
          Lost(peer);
          continue;
        }
      }
      left.push_back(std::move(peer));
    }
    waiting = std::move(left);
  }
}

// Under the lock.
void FileReceiver::Hand(std::vector<Waiting>& waiting) {
  std::erase_if(waiting, [this](Waiting& peer) {
    Sender& sender = senders_[peer.slot];
    if (!(begun_ || AtOnce(peer.why)) || !peer.spoke || sender.busy || serving_ >= kWorkers) return false;
    sender.busy = true;
    ++serving_;
    ready_.push_back(std::move(peer));
    if (static_cast<int>(workers_.size()) < serving_)
      workers_.push_back(clock::QuietThread([this] { Work(); }));
    else
      work_.notify_one();
    return true;
  });
}

void FileReceiver::Work() {
  bool low = false;
  for (;;) {
    Waiting peer;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stop_ || !ready_.empty(); });
      if (stop_) return;
      peer = std::move(ready_.front());
      ready_.erase(ready_.begin());
    }
    if (peer.why != clock::FilesWhy::kHaste && !std::exchange(low, true)) BeLowPriority();
    Serve(peer);
    peer.link->Cut();
    Lost(peer);
    const std::lock_guard lock(mutex_);
    senders_[peer.slot].busy = false;
    --serving_;
    Wake();
  }
}

bool FileReceiver::Say(const Waiting& peer, FileWord word, std::uint64_t a, const std::string& text) {
  return peer.link->Send(static_cast<std::uint32_t>(word), a, 0, text);
}

bool FileReceiver::Refuse(const Waiting& peer, Sender& sender, const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    sender.refusal = why.substr(0, kMostWordBytes);
  }
  if (sender.part) ::unlink(sender.part->path.c_str());
  sender.part.reset();
  Say(peer, FileWord::kRefused, 0, why.substr(0, kMostWordBytes));
  return false;
}

void FileReceiver::Serve(const Waiting& peer) {
  Sender* sender = nullptr;
  {
    const std::lock_guard lock(mutex_);
    sender = &senders_[peer.slot];
  }
  peer.link->SetStall(static_cast<int>(setup_.stall_ms));
  if (!Open(peer, *sender)) return;
  clock::Frame frame;
  while (peer.link->Receive(frame, kFileBlockBytes, static_cast<int>(setup_.stall_ms)) ==
             clock::AgentLink::Got::kFrame &&
         Answer(peer, *sender, frame)) {
  }
}

bool FileReceiver::Open(const Waiting& peer, Sender& sender) {
  clock::Frame frame;
  if (peer.link->Receive(frame, kMostWordBytes, kOpenMs) != clock::AgentLink::Got::kFrame) return false;
  const std::optional<Caller> caller = ReadOpenText(frame.text);
  if (peer.protocol != net::kFilesProtocol || !Has(frame, FileWord::kOpen) || !caller)
    return Refuse(peer, sender, "its Lockstep is of another version than rank 0's, " + setup_.version);
  {
    const std::lock_guard lock(mutex_);
    sender.caller = *caller;
  }
  if (setup_.so_far) {
    // Each call is one for itself. Without files: what was here of the slot is true no longer.
    if (frame.a == 0) Drop(peer.slot);
    const std::lock_guard lock(mutex_);
    sender.refusal.clear();
  }
  if (!sender.refusal.empty()) return Refuse(peer, sender, sender.refusal);
  if (caller->version != setup_.version)
    return Refuse(peer, sender, "its Lockstep is version " + caller->version + ", and rank 0's is " + setup_.version);
  if (ReadClaim(ClaimPath(setup_.run_dir, peer.slot)).state != ClaimState::kAbsent) {
    {
      const std::lock_guard lock(mutex_);
      sender.shared = true;
    }
    Say(peer, FileWord::kShared);
    return false;
  }
  struct statvfs room {};
  if (::statvfs(PathOf("").c_str(), &room) == 0) {
    const std::uint64_t there = (sender.part ? sender.part->done : 0) + sender.bytes,
                        free = std::uint64_t{room.f_bavail} * room.f_frsize;
    if (frame.b > there && frame.b - there > free)
      return Refuse(
          peer, sender,
          "there is no room on rank 0's host for " + ByteText(static_cast<double>(frame.b)) + " in " + setup_.run_dir);
  }
  return Say(peer, FileWord::kGo);
}

bool FileReceiver::Answer(const Waiting& peer, Sender& sender, const clock::Frame& frame) {
  sender.sent_bytes += frame.text.size();
  if (Has(frame, FileWord::kFile)) return BeginFile(peer, sender, frame);
  if (Has(frame, FileWord::kData) || Has(frame, FileWord::kDeflated)) return TakeBlock(peer, sender, frame);
  if (Has(frame, FileWord::kEnd)) return EndFile(peer, sender, frame);
  if (Has(frame, FileWord::kAsk) && setup_.hang_is_said) {
    Say(peer, FileWord::kTaken, setup_.hang_is_said() ? 1 : 0);
    return false;
  }
  if (!Has(frame, FileWord::kAll)) return Refuse(peer, sender, "it said what this version does not know");
  {
    const std::lock_guard lock(mutex_);
    sender.all = true;
  }
  if (setup_.before != nullptr) setup_.before->Drop(peer.slot);
  Say(peer, FileWord::kTaken);
  return false;
}

bool FileReceiver::BeginFile(const Waiting& peer, Sender& sender, const clock::Frame& frame) {
  const std::string& name = frame.text;
  if (!IsFileOf(peer.slot, name))
    return Refuse(peer, sender, "it named a file that is none of rank " + std::to_string(peer.slot));
  const bool here = Holds(peer.slot, name);
  if (here && !setup_.so_far) return Say(peer, FileWord::kHave);
  const bool replaced = here || (setup_.before != nullptr && setup_.before->Holds(peer.slot, name));
  struct stat info {};
  if (!replaced && ::lstat(PathOf(name).c_str(), &info) == 0)
    return Refuse(peer, sender, "another file of the name " + name + " is in " + setup_.run_dir);
  if (sender.part && (sender.part->name != name || sender.part->bytes != frame.a)) {
    ::unlink(sender.part->path.c_str());
    sender.part.reset();
  }
  if (!sender.part) {
    auto part = std::make_unique<Part>();
    part->name = name;
    part->bytes = frame.a;
    part->fd = CreateBeside(PathOf(name), 0644, &part->path);
    if (!part->fd.open())
      return Refuse(peer, sender, "it cannot be written on rank 0's host: " + std::string(std::strerror(errno)));
    sender.part = std::move(part);
  }
  return Say(peer, FileWord::kFrom, sender.part->done);
}

bool FileReceiver::TakeBlock(const Waiting& peer, Sender& sender, const clock::Frame& frame) {
  Part* part = sender.part.get();
  const bool fits = part != nullptr && frame.a == part->done && frame.b > 0 && frame.b <= kFileBlockBytes &&
                    frame.b <= part->bytes - part->done;
  std::string inflated;
  if (fits && Has(frame, FileWord::kDeflated)) {
    inflated.resize(frame.b);
    if (!BlockDecoder().Decode(frame.text, inflated.data(), inflated.size())) inflated.clear();
  }
  const std::string& block = Has(frame, FileWord::kDeflated) ? inflated : frame.text;
  if (!fits || block.size() != frame.b) return Refuse(peer, sender, "it sent other bytes than those of its file");
  if (const int error = WriteAll(part->fd.get(), block); error != 0)
    return Refuse(peer, sender, "it cannot be written on rank 0's host: " + std::string(std::strerror(error)));
  part->digest.Add(block);
  part->done += block.size();
  progress_.fetch_add(block.size(), std::memory_order_relaxed);
  return true;
}

// Gives the part its name. Returns 0 or errno.
int FileReceiver::Place(std::int32_t slot, Sender& sender) {
  const Part& part = *sender.part;
  const bool replaces = Holds(slot, part.name) || (setup_.before != nullptr && setup_.before->Release(slot, part.name));
  return replaces ? MoveOver(part.path, PathOf(part.name)) : MoveNew(part.path, PathOf(part.name));
}

bool FileReceiver::EndFile(const Waiting& peer, Sender& sender, const clock::Frame& frame) {
  Part* part = sender.part.get();
  if (part == nullptr || part->done != part->bytes) return Refuse(peer, sender, "it sent less than its file");
  const clock::Digest::Value value = part->digest.Take();
  if (frame.text != std::string_view(reinterpret_cast<const char*>(value.data()), value.size()))
    return Refuse(peer, sender, "its file changed while it was sent");
  if (const int error = Place(peer.slot, sender); error != 0)
    return Refuse(peer, sender, "it cannot be written on rank 0's host: " + std::string(std::strerror(error)));
  {
    const std::lock_guard lock(mutex_);
    sender.taken.insert(part->name);
    sender.bytes += part->bytes;
  }
  progress_.fetch_add(1, std::memory_order_relaxed);
  sender.part.reset();
  return Say(peer, FileWord::kTaken);
}

}  // namespace lockstep::agent
