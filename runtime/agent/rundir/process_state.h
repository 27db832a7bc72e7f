#pragma once
// Whether processes of this machine still are, asked from outside.

#include <string>

namespace lockstep::agent {

// Numbers of processes mean something within one pid namespace: its inode, "" unknown.
std::string PidNamespace();
// When a process began, in clock ticks since the machine did: with its number it is one process and no other. "" if it
// is not there or hidden.
std::string ProcessStart(long pid);
// As gethostname(2) says, "" if it does not.
std::string HostName();

// A zombie does not run: it has let go of everything but its number.
bool ProcessRuns(long pid);
// The process runs and has the file mapped; false where that cannot be seen (another user's process, which cannot
// have mapped a file of ours).
bool ProcessMaps(long pid, const std::string& path);

}  // namespace lockstep::agent
