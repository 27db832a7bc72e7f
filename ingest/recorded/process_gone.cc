#include "ingest/recorded/process_gone.h"

#include <sys/stat.h>
#include <sys/types.h>

#include <cerrno>
#include <csignal>
#include <string>

#include "core/process_stat.h"
#include "trace/decode/tick_rate.h"
#include "trace/file/strings.h"

namespace lockstep::recorded {

bool ProcessIsGone(const schema::RankTables& head, std::int64_t pid) {
  const std::string boot(trace::MetaValue(head, "boot_id")), name_space(trace::MetaValue(head, "pid_namespace"));
  if (pid <= 0 || boot.empty() || boot != trace::BootId()) return false;
  std::error_code ignored;
  struct stat here {};
  if (::stat("/proc/self/ns/pid", &here) != 0 || name_space != std::to_string(here.st_ino)) return false;
  if (::kill(static_cast<pid_t>(pid), 0) != 0) return errno == ESRCH;
  const std::string stat = ProcessStatAfterName(static_cast<long>(pid));
  return !stat.empty() && (stat[0] == 'Z' || stat[0] == 'X');
}

}  // namespace lockstep::recorded
