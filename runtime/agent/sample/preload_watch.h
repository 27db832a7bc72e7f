#pragma once
// Looks from outside whether a program of which nothing comes was started without Lockstep's libraries.

#include <sys/types.h>

#include <string>

namespace lockstep::agent {

// What `program` was started with, by /proc/PID/environ: "job: LD_PRELOAD was unset before it started". "" if it has
// the probe, whose path is `probe`, or if that cannot be read.
std::string LostPreload(pid_t program, const std::string& probe);

}  // namespace lockstep::agent
