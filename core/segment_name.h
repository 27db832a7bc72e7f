#pragma once
// Names of segments in /dev/shm: lockstep-UID-RUNHASH-SLOT-PID, with -N behind it if that name was taken.

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep {

struct SegmentName {
  unsigned user = 0;
  std::uint64_t run_hash = 0;
  int slot = 0, pid = 0;
  int number = 1;
};

inline std::string FormatSegmentName(const SegmentName& name) {
  char text[128];
  std::snprintf(text, sizeof text, "lockstep-%u-%016" PRIx64 "-%d-%d", name.user, name.run_hash, name.slot, name.pid);
  return name.number == 1 ? std::string(text) : text + ("-" + std::to_string(name.number));
}

// Returns false for other names.
inline bool ParseSegmentName(const std::string& text, SegmentName& name) {
  name.number = 1;
  // sscanf accepts signs and spaces that Lockstep never writes, so the name is formatted again and compared.
  const int read = std::sscanf(text.c_str(), "lockstep-%u-%16" SCNx64 "-%d-%d-%d", &name.user, &name.run_hash,
                               &name.slot, &name.pid, &name.number);
  return read >= 4 && FormatSegmentName(name) == text;
}

}  // namespace lockstep
