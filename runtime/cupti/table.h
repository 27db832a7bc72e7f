#pragma once
// Small tables of the flusher thread: bounded, never allocating after their first use, forgetting
// everything when full, because ids in the ring go on. One thread.

#include <string.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::cupti {

// Zeroed memory that belongs to the process, null if the system refuses.
inline void* FreshMemory(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : memory;
}

// Keys without padding to ids that are not 0. kPlaces is a power of two.
template <typename Key, std::uint32_t kPlaces>
class Table {
 public:
  // The address of the key's id; the id is 0 if the key is new. Null if there is no memory.
  std::uint32_t* Find(const Key& key) {
    if (places_ == nullptr) places_ = static_cast<Place*>(FreshMemory(sizeof(Place) * kPlaces));
    if (places_ == nullptr) return nullptr;
    if (used_ >= kPlaces / 4 * 3) {
      memset(static_cast<void*>(places_), 0, sizeof(Place) * kPlaces);
      used_ = 0;
    }
    std::uint64_t hash = 0x9e3779b97f4a7c15u;
    const auto* words = reinterpret_cast<const unsigned char*>(&key);
    for (std::size_t i = 0; i + 4 <= sizeof key; i += 4) {
      std::uint32_t word;
      memcpy(&word, words + i, 4);
      hash = (hash ^ word) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    static_assert(sizeof(Key) % 4 == 0);
    for (auto at = static_cast<std::uint32_t>(hash);; ++at) {
      Place& place = places_[at % kPlaces];
      if (place.id != 0 && !(place.key == key)) continue;
      if (place.id == 0) {
        place.key = key;
        used_ += 1;
      }
      return &place.id;
    }
  }

 private:
  struct Place {
    Key key;
    std::uint32_t id;
  };
  Place* places_ = nullptr;
  std::uint32_t used_ = 0;
};

// Texts by address. CUPTI uses one address per kernel, but after a module was unloaded its addresses are used for the
// next one, so the text is compared every time.
class TextTable {
 public:
  // The id under which Remember knew it, 0 none.
  std::uint32_t Find(const char* text) const {
    if (places_ == nullptr) return 0;
    const Place& place = places_[Slot(text)];
    return place.text == text && strcmp(copies_ + place.copy, text) == 0 ? place.id : 0;
  }
  void Remember(const char* text, std::uint32_t id) {
    const std::size_t bytes = strlen(text) + 1;
    if (bytes > kCopyBytes / 64) return;
    if (places_ == nullptr) {
      auto* places = static_cast<Place*>(FreshMemory(sizeof(Place) * kPlaces));
      copies_ = static_cast<char*>(FreshMemory(kCopyBytes));
      if (places == nullptr || copies_ == nullptr) return;
      places_ = places;
    }
    if (used_bytes_ + bytes > kCopyBytes) {
      memset(static_cast<void*>(places_), 0, sizeof(Place) * kPlaces);
      used_bytes_ = 0;
    }
    memcpy(copies_ + used_bytes_, text, bytes);
    places_[Slot(text)] = {text, used_bytes_, id};
    used_bytes_ += static_cast<std::uint32_t>(bytes);
  }

 private:
  struct Place {
    const char* text;
    std::uint32_t copy, id;
  };
  static constexpr std::uint32_t kPlaces = 8192, kCopyBytes = 4u << 20;
  static std::uint32_t Slot(const char* text) {
    return static_cast<std::uint32_t>((reinterpret_cast<std::uintptr_t>(text) * 0x9e3779b97f4a7c15u) >> 51);
  }
  Place* places_ = nullptr;
  char* copies_ = nullptr;
  std::uint32_t used_bytes_ = 0;
};

}  // namespace lockstep::cupti
