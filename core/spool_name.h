#pragma once
// Names of spools outside of their run directory (--spool-dir): lockstep-RUNHASH-rank-NNNNN.PID.spool

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <string>

namespace lockstep {

struct SpoolName {
  std::uint64_t run_hash = 0;
  int slot = 0, pid = 0;
};

inline std::string FormatSpoolName(const SpoolName& name) {
  char text[96];
  std::snprintf(text, sizeof text, "lockstep-%016" PRIx64 "-rank-%05d.%d.spool", name.run_hash, name.slot, name.pid);
  return text;
}

// Returns false for other names.
inline bool ParseSpoolName(const std::string& text, SpoolName& name) {
  const int read =
      std::sscanf(text.c_str(), "lockstep-%16" SCNx64 "-rank-%d.%d.spool", &name.run_hash, &name.slot, &name.pid);
  return read == 3 && FormatSpoolName(name) == text;
}

}  // namespace lockstep
