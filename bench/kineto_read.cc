// The reader of torch.profiler's traces alone, with a sink that only counts: what
// an import cannot be faster than.
//
//   kineto_read TRACE [JOBS]      prints events, bytes of JSON, seconds

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "ingest/kineto/read/trace_reader.h"

namespace {

class Counter final : public lockstep::kineto::Sink {
 public:
  void Batch(std::size_t, std::span<const lockstep::kineto::Event> events) override {
    std::int64_t busy = 0;
    for (const auto& event : events) busy += event.duration_ns > 0 ? event.duration_ns : 0;
    busy_ns_ += busy;
  }
  std::int64_t busy_ns() const { return busy_ns_; }

 private:
  std::atomic<std::int64_t> busy_ns_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: kineto_read TRACE [JOBS]\n");
    return 2;
  }
  Counter counter;
  lockstep::kineto::ReadOptions options;
  if (argc > 2) options.jobs = static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10));
  const auto begin = std::chrono::steady_clock::now();
  const auto read = lockstep::kineto::ReadTrace(argv[1], options, counter);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!read.ok()) {
    std::fprintf(stderr, "error: %s\n", read.error().what.c_str());
    return 1;
  }
  std::printf("%lu %lu %.6f %lu\n", static_cast<unsigned long>(read.value().events),
              static_cast<unsigned long>(read.value().json_bytes), seconds,
              static_cast<unsigned long>(counter.busy_ns() != 0));
  return 0;
}
