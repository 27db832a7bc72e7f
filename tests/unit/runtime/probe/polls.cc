// For probe_test.cc: polls as the MPI wrappers report them, at times of our choosing.
// Linked with the probe, as the wrappers' library is.

#include "core/ring_writer.h"

int main() {
  using namespace lockstep;
  if (lockstep_ring() == nullptr) return 1;
  // Until it is measured 20 us are 40,000 ticks (source_support.cc).
  std::uint64_t now = ring::Ticks();
  const auto polls = [&](int count, std::uint64_t apart) {
    for (int i = 0; i < count; ++i) {
      ring::Poll(7, now, now + 100);
      now += apart;
    }
  };
  polls(100, 1'000);  // Spinning,
  polls(50, 30'000);  // and still, more slowly.
  now += 1'000'000;   // Computing;
  polls(20, 1'000);   // spinning again.
  now += 1'000'000;
  polls(3, 1'000'000);  // A look now and then.
  const std::uint64_t pending[2] = {3, 4};
  for (const std::uint64_t apart : {1'000u, 1'000'000u, 1'000u}) {  // Several handles.
    lockstep_poll_slow(8, pending, 2, now, now + 100);
    now += apart;
  }
  now += 1'000'000;
  // Messages, a list and one request after the other by turns, the last ones more than are told apart.
  const auto turns = [&](std::uint64_t requests) {
    for (int i = 0; i < 1000; ++i) {
      ring::Poll(7, now, now + 200);
      lockstep_poll_slow(8, pending, 2, now + 300, now + 400);
      now += 1'000;
      for (std::uint64_t request = 1; request <= requests; ++request, now += 200)
        ring::Poll(9 | request << kPollOpBits, now, now + 100);
    }
  };
  turns(3);
  now += 1'000'000;
  turns(40);
  return 0;
}
