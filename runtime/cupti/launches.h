#pragma once
// Whether recording was on when a call was made, by the call's correlation id: GPU work belongs to the window
// in which it was launched, and runs, and is recorded, long after. Two bits for each of the latest 16 million ids,
// far more than any driver queues. Ids are 32 bits, count up and begin again at 0. One thread.

#include <string.h>

#include <cstdint>

#include "runtime/cupti/table.h"

namespace lockstep::cupti {

class Launches {
 public:
  enum class Place : std::uint8_t { kUnknown, kOff, kOn };

  // A call within another one has the same id and ends first, so the outer one, which comes later, counts.
  void Note(std::uint32_t correlation, bool on) {
    if (pages_ == nullptr && !Make()) return;
    const std::uint32_t number = correlation / kPerPage;
    Page& page = pages_[number % kPages];
    if (page.tag != number + 1) {
      // A call that comes 16 million calls late is not stored any more.
      if (page.tag != 0 && static_cast<std::int32_t>((number - (page.tag - 1)) * kPerPage) < 0) return;
      memset(page.bits, 0, sizeof page.bits);
      page.tag = number + 1;
    }
    const std::uint32_t at = correlation % kPerPage, shift = at % 32 * 2;
    std::uint64_t& word = page.bits[at / 32];
    word = (word & ~(std::uint64_t{3} << shift)) | std::uint64_t{on ? 2u : 1u} << shift;
  }

  Place Of(std::uint32_t correlation) const {
    if (pages_ == nullptr || correlation == 0) return Place::kUnknown;
    const std::uint32_t number = correlation / kPerPage;
    const Page& page = pages_[number % kPages];
    if (page.tag != number + 1) return Place::kUnknown;
    const std::uint32_t at = correlation % kPerPage;
    return static_cast<Place>(page.bits[at / 32] >> at % 32 * 2 & 3);
  }

 private:
  static constexpr std::uint32_t kPerPage = 1u << 14, kPages = 1u << 10;
  struct Page {
    std::uint32_t tag;  // Its number + 1, 0 unused.
    std::uint64_t bits[kPerPage / 32];
  };
  bool Make() {
    if (refused_) return false;
    pages_ = static_cast<Page*>(FreshMemory(sizeof(Page) * kPages));
    refused_ = pages_ == nullptr;
    return !refused_;
  }

  Page* pages_ = nullptr;
  bool refused_ = false;
};

}  // namespace lockstep::cupti
