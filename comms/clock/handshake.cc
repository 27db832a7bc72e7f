#include "comms/clock/handshake.h"

namespace lockstep::net {

Meeting MeetServer(int socket, const clock::RunKey& key, std::int32_t rank, std::int32_t server_rank, int limit_ms,
                   Hello& hello, Hello& challenge) {
  SetTimeouts(socket, limit_ms);
  hello = {};
  hello.rank = rank;
  if (!clock::RandomBytes(hello.nonce) || !SendAll(socket, &hello, sizeof hello)) return Meeting::kNobody;
  if (!ReceiveAll(socket, &challenge, sizeof challenge, limit_ms) || challenge.magic != kHelloMagic)
    return Meeting::kNobody;
  // The address may belong to another machine on which another rank of this run listens.
  if (challenge.rank != server_rank) return Meeting::kNobody;
  const auto ours = BytesOf(hello), theirs = BytesOf(challenge);
  const clock::Proof own = clock::Prove(key, clock::ProofOf::kClient, ours, theirs);
  clock::Proof proof{};
  if (!SendAll(socket, own.data(), own.size()) || !ReceiveAll(socket, proof.data(), proof.size(), limit_ms) ||
      !clock::SameSecret(proof, clock::Prove(key, clock::ProofOf::kServer, ours, theirs)))
    return Meeting::kUnproven;
  return Meeting::kProven;
}

}  // namespace lockstep::net
