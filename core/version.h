#pragma once
// The one place the version stands; CMakeLists.txt reads it from here.
#define LOCKSTEP_VERSION "0.1.0"
