#pragma once
// Reports whether processes of this machine still run, as seen from outside.

#include <string>

namespace lockstep::agent {

// The inode of this process's pid namespace, "" if it is unknown. Process ids can only be compared within one
// namespace.
std::string PidNamespace();
// When a process began, in clock ticks since the machine booted. Together with the pid it identifies one process. "" if
// the process does not exist or is hidden.
std::string ProcessStart(long pid);
// The name that gethostname(2) returns, "" if it fails.
std::string HostName();

// A zombie does not run: it has released everything but its pid.
bool ProcessRuns(long pid);
// The process runs and has the file mapped; false where that cannot be seen (another user's process, which cannot
// have mapped a file of ours).
bool ProcessMaps(long pid, const std::string& path);

}  // namespace lockstep::agent
