#pragma once
// What a slot has to know of rank 0's agent to compare clocks with it and to send it files, where no run directory that
// both see says so: where it listens, whose clock it has, and the run's key. The application's process learns it from
// rank 0's by ways that the job has anyway, and leaves it in the segment for its agent.

#include <cinttypes>
#include <cstdio>
#include <cstring>

#include "core/ring_layout.h"

namespace lockstep {

// SegmentHeader::anchors_wanted.
inline constexpr std::uint32_t kAnchorsWanted = 1;    // To agree with the others on clock exchanges over MPI.
inline constexpr std::uint32_t kReferenceByName = 2;  // To tell or ask where rank 0's agent is, by MPI's name service.
inline constexpr std::uint32_t kOtherHosts = 4;       // Ranks may be on other hosts than rank 0's.
inline constexpr std::uint32_t kElsewhere = 8;        // This rank may be.

// ClockMailbox::state: of the mailbox only reference, reference_address, reference_key and domain are valid; the last
// is the clock domain of rank 0.
inline constexpr std::uint32_t kReferenceOnly = 3;

// The ranks have told each other their clock domains and where rank 0's agent is: all of the mailbox is valid, even if
// what followed was abandoned.
inline bool HaveMet(const ClockMailbox& mailbox) {
  const std::uint32_t state = mailbox.state.load(std::memory_order_acquire);
  return state == 1 || (state == 2 && mailbox.domains != 0);
}
// An exchange that the ranks had agreed to was given up, in MPI_Init or MPI_Finalize.
inline bool Abandoned(const ClockMailbox& mailbox) {
  const std::uint32_t state = mailbox.state.load(std::memory_order_acquire);
  return state == 2 ||
         (state == kReferenceOnly && mailbox.agreement.load(std::memory_order_relaxed) == AnchorAgreement::kAgreed);
}

struct Reference {
  char address[kAddressListBytes] = {};  // SegmentHeader::agent_address of rank 0, as are the others.
  std::uint8_t key[32] = {};
  std::uint64_t domain = 0;

  bool complete() const {
    for (const std::uint8_t byte : key)
      if (byte != 0) return address[0] != 0;
    return false;
  }
};

inline Reference OwnReference(const SegmentHeader& header) {
  Reference own;
  std::memcpy(own.address, header.agent_address, sizeof own.address - 1);
  std::memcpy(own.key, header.clock_key, sizeof own.key);
  own.domain = header.clock_domain;
  return own;
}

// As text without blanks: the key's digits, the domain's, the address.
inline constexpr std::size_t kReferenceKeyDigits = 2 * sizeof Reference::key, kReferenceDomainDigits = 16;
inline constexpr std::size_t kReferenceTextBytes = kReferenceKeyDigits + kReferenceDomainDigits + kAddressListBytes;
// Returns the text's length; `text` has room for kReferenceTextBytes.
inline std::size_t WriteReference(const Reference& reference, char* text) {
  std::size_t at = 0;
  for (const std::uint8_t byte : reference.key)
    at += static_cast<std::size_t>(std::snprintf(text + at, kReferenceTextBytes - at, "%02x", byte));
  return at + static_cast<std::size_t>(std::snprintf(text + at, kReferenceTextBytes - at, "%016" PRIx64 "%s",
                                                     reference.domain, reference.address));
}
// False if it is no such text, or nothing can be reached by it.
inline bool ReadReference(const char* text, Reference& reference) {
  reference = {};
  for (std::size_t i = 0; i < kReferenceKeyDigits + kReferenceDomainDigits; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return false;  // This includes the end of the text.
    if (i >= kReferenceKeyDigits)
      reference.domain = reference.domain << 4 | static_cast<unsigned>(digit);
    else
      reference.key[i / 2] = static_cast<std::uint8_t>(reference.key[i / 2] << 4 | digit);
  }
  const char* address = text + kReferenceKeyDigits + kReferenceDomainDigits;
  const std::size_t bytes = std::strlen(address);
  if (bytes >= sizeof reference.address) return false;
  std::memcpy(reference.address, address, bytes + 1);
  return reference.complete();
}

// What LeaveReference left.
inline Reference MailedReference(const ClockMailbox& mailbox) {
  Reference reference;
  std::memcpy(reference.address, mailbox.reference_address, sizeof reference.address - 1);
  std::memcpy(reference.key, mailbox.reference_key, sizeof reference.key);
  reference.domain = mailbox.domain;
  return reference;
}

// Does nothing if the mailbox has one already. Thread: one at a time.
inline void LeaveReference(ClockMailbox& mailbox, const Reference& reference) {
  if (HaveMet(mailbox) || mailbox.state.load(std::memory_order_relaxed) == kReferenceOnly) return;
  mailbox.reference = 0;
  mailbox.domain = reference.domain;
  std::memcpy(mailbox.reference_address, reference.address, sizeof mailbox.reference_address);
  std::memcpy(mailbox.reference_key, reference.key, sizeof mailbox.reference_key);
  mailbox.state.store(kReferenceOnly, std::memory_order_release);
}

}  // namespace lockstep
