#pragma once
// Waiting for a condition, for a minute at most.

#include <chrono>
#include <thread>

namespace lockstep::test {

template <typename Condition>
bool Eventually(Condition&& done) {
  for (int i = 0; i < 6000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return done();
}

}  // namespace lockstep::test
