#pragma once
// The CUPTI attributes that we set, and the values that others see: those that they found or wrote themselves.

#include <cstddef>
#include <cstdint>

#include "runtime/cupti/api.h"

namespace lockstep::cupti {

// The caller has Control (capture.h).
class Attributes {
 public:
  // Sets our values, each time that CUPTI becomes ours, and keeps the former ones. Before any kind is enabled.
  void SetOurs(const Api& api);
  void SetTheirs(const Api& api);
  // How much memory records may take on the host: as much is allowed on each GPU. Before SetOurs.
  void Allow(std::size_t most_bytes);
  // CUPTI was detached from the process; its attributes have its own defaults when it comes back.
  void Forget();
  // CUPTI relies on zeroed buffers.
  bool zeroed() const { return zeroed_; }

  // Another profiler writes an attribute while CUPTI is ours. Returns false if it is not one of these attributes.
  bool Write(int attribute, const void* value, std::size_t bytes);
  bool Read(int attribute, void* value, std::size_t* bytes) const;

 private:
  static constexpr int kCount = 4;
  bool set_[kCount] = {};  // Our value is set.
  std::uint64_t theirs_[kCount] = {};
  bool zeroed_ = false;
  std::uint64_t pool_limit_ = 32;
};

}  // namespace lockstep::cupti
