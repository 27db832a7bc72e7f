// For probe_test.cc: polls as the MPI wrappers report them, at times of our choosing.
// Linked with the probe, as the wrappers' library is.

#include "core/ring_writer.h"

int main() {
  using namespace lockstep;
  if (lockstep_ring() == nullptr) return 1;
  // Until it is measured 20 us are 40,000 ticks (source_support.cc).
  std::uint64_t now = ring::Ticks();
  int ends_read = 0;
  const auto poll = [&](std::uint64_t op_and_request, std::uint64_t begin, std::uint64_t takes) {
    ring::Poll(op_and_request, nullptr, 0, begin, [&] { return ++ends_read, begin + takes; });
  };
  const auto polls = [&](int count, std::uint64_t apart) {
    for (int i = 0; i < count; ++i) {
      poll(7, now, 100);
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
    for (int i = 0; i < 700; ++i) {
      poll(7, now, 200);
      lockstep_poll_slow(8, pending, 2, now + 300, now + 400);
      now += 1'000;
      for (std::uint64_t request = 1; request <= requests; ++request, now += 200)
        poll(9 | request << kPollOpBits, now, 100);
    }
  };
  turns(3);
  now += 1'000'000;
  turns(40);
  // Tight ones: 4096 of them in a row, and no end is read until one comes late.
  const auto tight = [&](int count) {
    for (ends_read = 0; count > 0; --count, now += 200) poll(7, now, 50);
    return ends_read;
  };
  now += 1'000'000;
  if (tight(10'000) != 1 + 4096) return 2;
  now += 5'000;  // In the same run.
  if (tight(100) != 0) return 3;
  now += 50'000;
  if (tight(10'000) != 1 + 4096) return 4;
  // Some that take long, one soon after the other, of which the first is not seen to: twice as many after them.
  for (int i = 0; i < 3; ++i, now += 45'200) poll(7, now, 45'000);
  if (tight(10'000) != 8192) return 5;
  return 0;
}
