#include "runtime/agent/slot/convert.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "trace/decode/decode.h"
#include "trace/file/table_file.h"

namespace lockstep::agent {

Result<std::vector<RunFile>> ConvertSpool(const std::string& spool_path, const RunDir& dir, std::int32_t slot) {
  // The other ranks of the node may still compute.
  ::setpriority(PRIO_PROCESS, 0, 10);
  LS_TRY(const trace::Decoded decoded, trace::DecodeSpool({.spool_path = spool_path}));
  std::vector<RunFile> files;
  // The main one last: whoever finds it finds all.
  for (std::size_t i = decoded.processes.size(); i-- > 0;) {
    const std::string suffix = i == 0 ? ".h5" : ".p" + std::to_string(i + 1) + ".h5";
    const std::string path = dir.RankFile(slot, suffix.c_str());
    LS_CHECK(trace::WriteRankFile(path, decoded.processes[i].tables));
    struct stat info {};
    ::stat(path.c_str(), &info);
    files.insert(files.begin(), {path, static_cast<std::uint64_t>(info.st_size)});
  }
  return files;
}

}  // namespace lockstep::agent
