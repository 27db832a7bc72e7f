#include "runtime/agent/sample/preload_watch.h"

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "core/own_file.h"

namespace lockstep::agent {

std::string LostPreload(pid_t program, const std::string& probe) {
  constexpr std::string_view kPreload = "LD_PRELOAD=";
  const std::string process = "/proc/" + std::to_string(program);
  std::ifstream variables(process + "/environ", std::ios::binary);
  bool known = false, set = false;
  std::string value;
  for (std::string variable; std::getline(variables, variable, '\0'); known = true)
    if (variable.starts_with(kPreload)) value = variable.substr(kPreload.size()), set = true;
  if (!known || value.find(BaseName(probe)) != std::string::npos) return {};
  std::error_code gone;
  const std::string name = std::filesystem::read_symlink(process + "/exe", gone).filename().string();
  return name + ": LD_PRELOAD was " + (set ? "replaced (" + value + ")" : "unset") + " before it started";
}

}  // namespace lockstep::agent
