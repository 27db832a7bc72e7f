#include "comms/clock/agent_link.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "comms/clock/handshake.h"

namespace lockstep::clock {
namespace {

constexpr int kCallMs = 500, kIntroductionMs = 1000;
// A host that was not heard of for so long is gone, or cut off; a new connection is then tried.
constexpr int kSilenceMs = 9000;

std::span<const std::uint8_t> TextBytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

}  // namespace

AgentLink::AgentLink(Side side, net::Fd fd, const RunKey& key, const net::Hello& hello, const net::Hello& challenge)
    : side_(side), fd_(std::move(fd)), key_(key), hello_(hello), challenge_(challenge) {
  net::NoticeSilence(fd_.get(), kSilenceMs);
  net::SetTimeouts(fd_.get(), kSilenceMs);
}

Proof AgentLink::ProofOfFrame(bool own, const FrameHead& head, std::string_view text) const {
  const bool by_client = (side_ == Side::kClient) == own;
  return Prove(key_, by_client ? ProofOf::kClientFrame : ProofOf::kServerFrame, net::BytesOf(hello_),
               net::BytesOf(challenge_), {net::BytesOf(head), TextBytes(text)});
}

bool AgentLink::Send(std::uint32_t kind, std::uint64_t a, std::uint64_t b, std::string_view text) {
  const FrameHead head{kind, static_cast<std::uint32_t>(text.size()), sent_++, a, b};
  const Proof proof = ProofOfFrame(true, head, text);
  return net::SendAll(fd_.get(), &head, sizeof head) && net::SendAll(fd_.get(), text.data(), text.size()) &&
         net::SendAll(fd_.get(), proof.data(), proof.size());
}

AgentLink::Got AgentLink::Receive(Frame& frame, std::size_t most, int limit_ms) {
  pollfd ready{fd_.get(), POLLIN, 0};
  const int polled = ::poll(&ready, 1, limit_ms);
  if (polled == 0 || (polled < 0 && errno == EINTR)) return Got::kNothing;
  FrameHead head;
  if (polled < 0 || !net::ReceiveAll(fd_.get(), &head, sizeof head) || head.bytes > most || head.number != received_++)
    return Got::kEnd;
  frame.text.resize(head.bytes);
  Proof proof{};
  if (!net::ReceiveAll(fd_.get(), frame.text.data(), frame.text.size()) ||
      !net::ReceiveAll(fd_.get(), proof.data(), proof.size()) ||
      !SameSecret(proof, ProofOfFrame(false, head, frame.text)))
    return Got::kEnd;
  frame.kind = head.kind;
  frame.a = head.a;
  frame.b = head.b;
  return Got::kFrame;
}

void AgentLink::SetStall(int stall_ms) { net::SetTimeouts(fd_.get(), stall_ms); }

bool AgentLink::Heard() const {
  pollfd ready{fd_.get(), POLLIN, 0};
  return ::poll(&ready, 1, 0) != 0;
}

void AgentLink::Cut() const { ::shutdown(fd_.get(), SHUT_RDWR); }

AgentCall CallForFiles(const std::string& addresses, const RunKey& key, std::int32_t rank, FilesWhy why,
                       const std::function<bool()>& stopped) {
  AgentCall call;
  net::Hello hello, challenge;
  net::Fd fd =
      net::ConnectAny(net::SortedForThisHost(net::SplitAddresses(addresses)), kCallMs, stopped, [&](int socket) {
        const net::Meeting met = net::MeetServer(socket, key, rank, 0, kIntroductionMs, hello, challenge);
        if (met == net::Meeting::kUnproven) call.end = CallEnd::kUnproven;
        return met == net::Meeting::kProven;
      });
  if (!fd.open()) return call;
  const net::Message begin{net::kFilesMagic, net::kFilesProtocol, static_cast<std::int64_t>(why), 0};
  if ((challenge.takes & net::kTakesFiles) == 0) {
    call.end = CallEnd::kTakesNone;
  } else if (net::SendAll(fd.get(), &begin, sizeof begin)) {
    call.end = CallEnd::kReached;
    call.link = std::make_unique<AgentLink>(AgentLink::Side::kClient, std::move(fd), key, hello, challenge);
  } else {
    call.end = CallEnd::kNobody;
  }
  return call;
}

}  // namespace lockstep::clock
