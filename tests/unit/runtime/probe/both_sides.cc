// Application and agent in one process, on one mapping of the segment: what
// ThreadSanitizer can see only then. Producers record in every way at once, short
// threads come and go, the consumer drains and switches recording.
//
//   probe_both_sides SPOOL

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/ring_writer.h"
#include "runtime/agent/rings/drain.h"
#include "runtime/agent/spool/spool_writer.h"
#include "runtime/lockstep.h"
#include "tests/fakes/nvtx_host.h"

namespace {

using namespace lockstep;

void Produce(int rounds) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("both sides");
  for (int i = 0; i < rounds; ++i) {
    const std::string name = "name " + std::to_string(i % 40);
    lockstep_range_push(name.c_str());
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    event.message.registered = nvtxDomainRegisterStringA(domain, name.c_str());
    event.category = static_cast<std::uint32_t>(i % 3);
    nvtxDomainNameCategoryA(domain, event.category, name.c_str());
    nvtxDomainRangePushEx(domain, &event);
    nvtxRangeEnd(nvtxRangeStartA("start/end"));
    nvtxRangePushA("literal");
    nvtxDomainRangePop(domain);
    nvtxRangePop();
    lockstep_range_pop();
    lockstep_mark("mark");
    if (i % 64 == 0) std::thread([] { nvtxMarkA("short thread"); }).join();
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || lockstep_probe.segment == nullptr) return 2;
  nvtxMarkA("first");  // The host starts itself once, on one thread.
  const SegmentView view{reinterpret_cast<std::byte*>(lockstep_probe.segment), lockstep_probe.segment_bytes};
  auto spool = agent::SpoolWriter::Create(argv[1]);
  if (!spool.ok()) return 3;
  agent::Drain drain(view, spool.value(), lockstep_probe.clock);
  std::atomic<bool> done{false};
  std::thread consumer([&] {
    for (int i = 0; !done.load(); ++i) {
      drain.Run();
      lockstep_probe.window.load()->recording.store(i % 16 != 15, std::memory_order_relaxed);
      usleep(200);
    }
    lockstep_probe.window.load()->recording.store(1, std::memory_order_relaxed);
  });
  std::vector<std::thread> producers;
  for (int t = 0; t < 4; ++t) producers.emplace_back(Produce, 3000);
  for (std::thread& producer : producers) producer.join();
  done.store(true);
  consumer.join();
  drain.RunLast();
  if (!spool.value().Close()) return 4;
  std::printf("%llu records lost\n", static_cast<unsigned long long>(drain.lost_records()));
  return 0;
}
