#pragma once
// The only definition of the version; CMakeLists.txt reads it from here.
#define LOCKSTEP_VERSION "0.1.0"
