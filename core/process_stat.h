#pragma once
// /proc/PID/stat of a process (proc(5)).

#include <fstream>
#include <string>

namespace lockstep {

// The fields after the process's name, from the third of proc(5) on: "S 4711 ...". The name is skipped because it may
// contain any character. "" if the process does not exist, or if its files are hidden (hidepid).
inline std::string ProcessStatAfterName(long pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const std::size_t name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 > text.size() ? std::string() : text.substr(name_end + 2);
}

}  // namespace lockstep
