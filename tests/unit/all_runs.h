#pragma once
// How many runs a simulation makes: `few` in the gate, `all` in the soak (all_runs.cmake).

#include <cstdlib>

namespace lockstep::test {

inline int Runs(int few, int all) { return std::getenv("LOCKSTEP_ALL_RUNS") == nullptr ? few : all; }

}  // namespace lockstep::test
