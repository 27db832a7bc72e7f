#pragma once
// The secret that only the agents of one run know: 32 random bytes, made once per
// run. Each side of a connection to a port of Lockstep proves that it holds them;
// they are never sent over a connection.
//
// They travel in two ways: through a file that only this user can read, in the
// directory that the run's agents share, and through the application's processes
// (SegmentHeader::clock_key of rank 0 to ClockMailbox::reference_key; core/reference.h).

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/result.h"

namespace lockstep::clock {

using RunKey = std::array<std::uint8_t, 32>;

// Fills `bytes` from the kernel (getrandom). Returns false if that fails.
bool RandomBytes(std::span<std::uint8_t> bytes);

// Compares in a time that does not depend on the contents. Different lengths are different.
bool SameSecret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b);

// All zero: the key was never set.
bool IsEmpty(const RunKey& key);

// The key in DIRECTORY/.clock-key; the first caller makes it. A file is used only if
// it is regular, this user's, unreadable to all others, and complete.
// kIo, saying what is wrong with it. Thread, process and host: any number at once.
Result<RunKey> SharedRunKey(const std::string& directory);
// Removes the file.
void RemoveSharedRunKey(const std::string& directory);

// The side that proves, or what is said afterwards: the place of files, frames of either side (agent_link.h). A proof
// of one is not valid for another.
enum class ProofOf : std::uint8_t { kClient, kServer, kPlace, kClientFrame, kServerFrame };
inline constexpr std::size_t kProofBytes = 32;
using Proof = std::array<std::uint8_t, kProofBytes>;
// HMAC-SHA256 over the side's name, both sides' first messages, which hold nonces that are used once, and what is said.
Proof Prove(const RunKey& key, ProofOf side, std::span<const std::uint8_t> hello,
            std::span<const std::uint8_t> challenge, std::initializer_list<std::span<const std::uint8_t>> said = {});

}  // namespace lockstep::clock
