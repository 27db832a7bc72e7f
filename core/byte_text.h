#pragma once
// Sizes in the lines that `lockstep run` prints.

#include <cstdio>
#include <string>

namespace lockstep {

// "512 B", "1.4 MB": powers of 1000, one decimal.
inline std::string ByteText(double bytes) {
  char text[48];
  if (bytes < 1e3) {
    std::snprintf(text, sizeof text, "%.0f B", bytes);
    return text;
  }
  const double unit = bytes >= 1e9 ? 1e9 : bytes >= 1e6 ? 1e6 : 1e3;
  std::snprintf(text, sizeof text, "%.1f %s", bytes / unit, bytes >= 1e9 ? "GB" : bytes >= 1e6 ? "MB" : "kB");
  return text;
}

}  // namespace lockstep
