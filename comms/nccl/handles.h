#pragma once
// Maps ncclComm_t to communicators: open addressing, at most kProbes entries from the hash
// position of a handle, without locks and without memory that is ever freed.
//
// `Atomic` is std::atomic; tests replace it and try every order in which threads can take
// turns.

#include <atomic>
#include <cstdint>

namespace lockstep::nccl {

template <template <typename> typename Atomic, std::uint32_t kPlaces, std::uint32_t kProbes>
class HandleTable {
 public:
  using Ref = std::uint64_t;

  // 0: not known.
  Ref Find(const void* handle) const {
    const Place* place = At(handle);
    if (place == nullptr) return 0;
    const Ref ref = place->ref.load(std::memory_order_acquire);
    // An abort on another thread may have freed the entry, and a new owner may have filled it.
    return place->handle.load(std::memory_order_relaxed) == handle ? ref : 0;
  }

  // Returns false if there was no free entry.
  bool Bind(const void* handle, Ref ref) {
    if (!Valid(handle) || ref == 0) return true;
    if (Place* known = At(handle); known != nullptr && Replace(*known, handle, ref)) return true;
    for (std::uint32_t i = 0, at = First(handle); i < kProbes; ++i) {
      Place& place = places_[(at + i) % kPlaces];
      const void* there = place.handle.load(std::memory_order_relaxed);
      if (there != nullptr && there != Removed()) continue;
      // An entry is owned before anything is written to it.
      if (!place.handle.compare_exchange_strong(there, Taken(), std::memory_order_acq_rel)) continue;
      place.ref.store(ref, std::memory_order_release);
      place.handle.store(handle, std::memory_order_release);
      return true;
    }
    return false;
  }

  // Returns the former value. Two threads that bound it at once may have used two entries.
  Ref Unbind(const void* handle) {
    Ref was = 0;
    if (!Valid(handle)) return was;
    for (std::uint32_t i = 0, at = First(handle); i < kProbes; ++i) {
      Place& place = places_[(at + i) % kPlaces];
      const void* there = place.handle.load(std::memory_order_acquire);
      if (there == nullptr) break;
      if (there != handle || !place.handle.compare_exchange_strong(there, Taken(), std::memory_order_acq_rel)) continue;
      const Ref ref = place.ref.exchange(0, std::memory_order_acq_rel);
      place.handle.store(Removed(), std::memory_order_release);
      if (was == 0) was = ref;
    }
    return was;
  }

 private:
  struct Place {
    Atomic<const void*> handle;
    Atomic<Ref> ref;
  };

  // No communicator has these addresses. An entry that was used never becomes null again, because searches end at null.
  static const void* Removed() { return reinterpret_cast<const void*>(1); }
  static const void* Taken() { return reinterpret_cast<const void*>(2); }
  static bool Valid(const void* handle) { return reinterpret_cast<std::uintptr_t>(handle) > 2; }

  // For a known handle. A reference names one communicator for ever, so the exchange cannot change an entry of a new
  // owner. Returns false if the entry is being released.
  static bool Replace(Place& place, const void* handle, Ref ref) {
    Ref old = place.ref.load(std::memory_order_acquire);
    while (old != 0 && place.handle.load(std::memory_order_relaxed) == handle)
      if (place.ref.compare_exchange_strong(old, ref, std::memory_order_acq_rel)) return true;
    return false;
  }

  static std::uint32_t First(const void* handle) {
    return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(handle) * 0x9e3779b97f4a7c15u) >> 32) % kPlaces;
  }
  Place* At(const void* handle) const {
    if (!Valid(handle)) return nullptr;
    for (std::uint32_t i = 0, at = First(handle); i < kProbes; ++i) {
      Place& place = places_[(at + i) % kPlaces];
      const void* there = place.handle.load(std::memory_order_acquire);
      if (there == handle) return &place;
      if (there == nullptr) return nullptr;
    }
    return nullptr;
  }

  mutable Place places_[kPlaces] = {};
};

}  // namespace lockstep::nccl
