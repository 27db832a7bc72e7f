#pragma once
// Whether processes of this machine still are, asked from outside.

#include <string>

namespace lockstep {

// A zombie does not run: it has let go of everything but its number.
bool ProcessRuns(long pid);
// The process runs and has the file mapped; false where that cannot be seen (another user's process, which cannot
// have mapped a file of ours).
bool ProcessMaps(long pid, const std::string& path);

}  // namespace lockstep
