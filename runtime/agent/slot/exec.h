#pragma once
// Starting a program as the launcher that this process stands in front of would have: what it refuses is refused.

#include <string>

#include "comms/launch/launch_env.h"

namespace lockstep::agent {

// Replaces this process, between fork and exec too: it allocates nothing. `path`: what FindProgram found, "" if
// nothing. Returns why the system refused. A file of unknown format ("#!" is missing) is given to /bin/sh where the
// launcher does so: execvp(3), which shells, env and hydra use. Open MPI, srun and torchrun use execve(2).
int ExecAs(launch::LaunchSource launcher, const std::string& path, char* const argv[], char* const envp[]);

// The exit code that the launcher gives a program that it cannot start.
int RefusalCode(launch::LaunchSource launcher, const std::string& command, int error);

}  // namespace lockstep::agent
