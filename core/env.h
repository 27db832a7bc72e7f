#pragma once
// Environment variables between agent, probe and helper processes. User-facing
// ones are LOCKSTEP_<FLAG>; these are internal.

namespace lockstep::env {

inline constexpr char kSegment[] = "LOCKSTEP_SEGMENT";         // Path of the slot's shared segment.
inline constexpr char kTestClock[] = "LOCKSTEP_TEST_CLOCK";    // ParseClockDistortion's argument.
inline constexpr char kLibraryDir[] = "LOCKSTEP_LIBRARY_DIR";  // Where liblockstep.so is, if not beside the CLI.

}  // namespace lockstep::env
