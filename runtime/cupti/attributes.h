#pragma once
// CUPTI's attributes that we set, and what stands there for others: what they found or wrote themselves.

#include <cstddef>
#include <cstdint>

#include "runtime/cupti/api.h"

namespace lockstep::cupti {

// The caller has Control (capture.h).
class Attributes {
 public:
  // Ours, each time that CUPTI becomes ours; what was there before is kept. Before any kind is on.
  void SetOurs(const Api& api);
  void SetTheirs(const Api& api);
  // CUPTI has gone from the process, and has its own when it comes back.
  void Forget();
  // CUPTI relies on zeroed buffers.
  bool zeroed() const { return zeroed_; }

  // Another profiler's calls while CUPTI is ours. False: not one of these attributes.
  bool Write(int attribute, const void* value, std::size_t bytes);
  bool Read(int attribute, void* value, std::size_t* bytes) const;

 private:
  static constexpr int kCount = 4;
  bool set_[kCount] = {};  // Ours is in force.
  std::uint64_t theirs_[kCount] = {};
  bool zeroed_ = false;
};

}  // namespace lockstep::cupti
