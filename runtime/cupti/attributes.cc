#include "runtime/cupti/attributes.h"

#include <string.h>

#include <algorithm>

namespace lockstep::cupti {
namespace {

struct Ours {
  int attribute;
  std::size_t bytes;
  std::uint64_t value;
};

// Per context at most 32 x 8 MiB of the GPU's memory unless the user allows more, of which CUPTI takes 3 x 8 MiB at
// once; its own limit of 250 would be 2 GB. A device buffer of 3.2 MB holds 100,000 operations that are not fetched yet
// (cupti_activity.h of CUDA 13.0), so ours hold 8 million.
constexpr Ours kOurs[] = {{kAttributeDeviceBufferSize, sizeof(std::size_t), std::uint64_t{8} << 20},
                          {kAttributeDeviceBufferPoolLimit, sizeof(std::size_t), 32},
                          {kAttributeZeroedOutBuffer, 1, 1},
                          // Threads that launch do not wait for one another. Kineto turns it off when it ends.
                          {kAttributePerThreadBuffer, 1, 1}};

// For libraries that do not report it (headers of CUDA 12.8 and 13.0).
std::uint64_t Default(int attribute, std::uint32_t version) {
  switch (attribute) {
    case kAttributeDeviceBufferSize:
      return 3'200'000;
    case kAttributeDeviceBufferPoolLimit:
      return 250;
    case kAttributePerThreadBuffer:
      return version >= 130000 ? 1 : 0;
    default:
      return 0;
  }
}

int IndexOf(int attribute) {
  for (int i = 0; i < static_cast<int>(sizeof kOurs / sizeof *kOurs); ++i)
    if (kOurs[i].attribute == attribute) return i;
  return -1;
}

bool Set(const Api& api, const Ours& what, std::uint64_t value) {
  std::size_t bytes = what.bytes;
  return api.set_attribute != nullptr && api.set_attribute(what.attribute, &bytes, &value) == kSuccess;
}

}  // namespace

void Attributes::Allow(std::size_t most_bytes) {
  pool_limit_ = std::clamp<std::uint64_t>(most_bytes / (std::size_t{8} << 20), 32, 250);
}

void Attributes::SetOurs(const Api& api) {
  static_assert(sizeof kOurs / sizeof *kOurs == kCount);
  for (int i = 0; i < kCount; ++i) {
    if (!set_[i]) {
      std::uint64_t before = 0;
      std::size_t bytes = kOurs[i].bytes;
      const bool known =
          api.get_attribute != nullptr && api.get_attribute(kOurs[i].attribute, &bytes, &before) == kSuccess;
      theirs_[i] = known ? before : Default(kOurs[i].attribute, api.version);
    }
    const bool limit = kOurs[i].attribute == kAttributeDeviceBufferPoolLimit;
    set_[i] = Set(api, kOurs[i], limit ? pool_limit_ : kOurs[i].value);
    if (kOurs[i].attribute == kAttributeZeroedOutBuffer) zeroed_ = set_[i];
  }
}

void Attributes::SetTheirs(const Api& api) {
  for (int i = 0; i < kCount; ++i) {
    if (!set_[i]) continue;
    const bool restored = Set(api, kOurs[i], theirs_[i]);
    set_[i] = false;
    if (restored && kOurs[i].attribute == kAttributeZeroedOutBuffer) zeroed_ = false;
  }
}

void Attributes::Forget() {
  for (bool& set : set_) set = false;
  zeroed_ = false;
}

bool Attributes::Write(int attribute, const void* value, std::size_t bytes) {
  const int i = IndexOf(attribute);
  if (i < 0 || !set_[i] || value == nullptr || bytes < kOurs[i].bytes) return false;
  theirs_[i] = 0;
  memcpy(&theirs_[i], value, kOurs[i].bytes);
  return true;
}

bool Attributes::Read(int attribute, void* value, std::size_t* bytes) const {
  const int i = IndexOf(attribute);
  if (i < 0 || !set_[i] || value == nullptr || bytes == nullptr || *bytes < kOurs[i].bytes) return false;
  memcpy(value, &theirs_[i], kOurs[i].bytes);
  *bytes = kOurs[i].bytes;
  return true;
}

}  // namespace lockstep::cupti
