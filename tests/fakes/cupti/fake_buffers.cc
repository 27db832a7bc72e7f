// Buffers of the client, the records in them, and the times that these get when their work has ended.

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "tests/fakes/cupti/fake_state.h"

namespace lockstep::fake {
namespace {

bool PerThread() { return Attribute(cu::kAttributePerThreadBuffer) != 0; }

void Deliver(Out* out) {
  State& state = TheState();
  for (std::size_t at = 0; at < out->used;) {
    std::uint32_t kind;
    std::memcpy(&kind, out->memory + at, sizeof kind);
    state.delivered[kind] += 1;
    at += RecordBytes(kind, state.version);
  }
  std::erase_if(state.pending, [&](const Pending& work) { return work.out == out; });
  state.device_records -= std::min(state.device_records, out->work);
  state.in_callback = true;
  state.completed(nullptr, 0, out->memory, out->bytes, out->used);
  state.in_callback = false;
  delete out;
}

// Linear between two moments, as CUPTI converts GPU times; one pair of moments for all of a flush.
struct ItsClock {
  std::int64_t now_ns = 0, registered_ns = 0;
  std::uint64_t time = 0;
  double rate = 1;
  // How far the GPU's times are off: FAKE_GPU_CLOCK_NS, and FAKE_GPU_CLOCK_PPM since the clock was registered.
  double off_ns = 0, off_ppm = 0;
  ItsClock() = default;
  explicit ItsClock(cu::TimestampCallback callback)
      : now_ns(RawNs()), registered_ns(now_ns), time(callback != nullptr ? callback() : RealtimeNs()) {
    if (const char* text = getenv("FAKE_GPU_CLOCK_NS"); text != nullptr) off_ns = atof(text);
    if (const char* text = getenv("FAKE_GPU_CLOCK_PPM"); text != nullptr) off_ppm = atof(text);
    const auto anchor = TheState().anchors.find(callback);
    if (anchor == TheState().anchors.end() || now_ns <= anchor->second.raw_ns) return;
    registered_ns = anchor->second.raw_ns;
    rate = static_cast<double>(time - anchor->second.time) / static_cast<double>(now_ns - registered_ns);
  }
  std::uint64_t At(std::int64_t raw_ns) const {
    const double off = off_ns + off_ppm * 1e-6 * static_cast<double>(raw_ns - registered_ns);
    return time -
           static_cast<std::uint64_t>(static_cast<std::int64_t>(rate * (static_cast<double>(now_ns - raw_ns) - off)));
  }
};

// Gives work that has ended its times.
void Settle() {
  State& state = TheState();
  const std::int64_t now = RawNs();
  std::map<cu::TimestampCallback, ItsClock> clocks;
  std::erase_if(state.pending, [&](const Pending& work) {
    if (work.end_ns > now) return false;
    auto clock = clocks.find(work.clock);
    if (clock == clocks.end()) clock = clocks.emplace(work.clock, ItsClock(work.clock)).first;
    const std::uint64_t begin = clock->second.At(work.begin_ns), end = clock->second.At(work.end_ns);
    if (work.begin_at != nullptr) std::memcpy(work.begin_at, &begin, sizeof begin);
    if (work.end_at != nullptr) std::memcpy(work.end_at, &end, sizeof end);
    const_cast<Out*>(work.out)->incomplete -= 1;
    return true;
  });
}

}  // namespace

// cupti_activity.h on cuptiActivityFlushAll: a default flush "doesn't return buffers which have one or more incomplete
// records"; a forced one returns "all the activity buffers including the ones which have one or more incomplete
// activity records". What ends after its buffer was returned is lost: the buffer is the client's then.
void Return(bool filling, bool incomplete) {
  State& state = TheState();
  Settle();
  std::vector<Out*> ready;
  const auto wanted = [&](const Out* out) { return incomplete || out->incomplete == 0; };
  std::erase_if(state.full, [&](Out* out) {
    if (!wanted(out)) return false;
    ready.push_back(out);
    return true;
  });
  if (filling)
    std::erase_if(state.filling, [&](const auto& entry) {
      if (!wanted(entry.second)) return false;
      ready.push_back(entry.second);
      return true;
    });
  for (Out* out : ready) Deliver(out);
}

namespace {

Out* Request() {
  State& state = TheState();
  auto* out = new Out;
  std::size_t most = 0;
  state.in_callback = true;
  state.requested(&out->memory, &out->bytes, &most);
  state.in_callback = false;
  if (out->memory == nullptr) {
    delete out;
    return nullptr;
  }
  if (out->bytes < 1024 || reinterpret_cast<std::uintptr_t>(out->memory) % 8 != 0) state.violations += 1;
  if (Attribute(cu::kAttributeZeroedOutBuffer) != 0) {
    for (std::size_t i = 0; i < out->bytes; i += 8)
      if (*reinterpret_cast<const std::uint64_t*>(out->memory + i) != 0) {
        state.violations += 1;
        break;
      }
  } else {
    std::memset(out->memory, 0, out->bytes);
  }
  return out;
}

// Where the record was put, null dropped.
Out* Reserve(std::uint32_t kind, const std::vector<std::uint8_t>& record) {
  State& state = TheState();
  if (record.empty() || state.requested == nullptr) return nullptr;
  state.made[kind] += 1;
  const std::uint64_t thread = PerThread() ? static_cast<std::uint64_t>(syscall(SYS_gettid)) : 0;
  auto at = state.filling.find(thread);
  if (at != state.filling.end() && at->second->bytes - at->second->used < record.size()) {
    state.full.push_back(at->second);
    state.filling.erase(at);
    Return(false, false);  // As its worker thread does.
    at = state.filling.end();
  }
  if (at == state.filling.end()) {
    Out* out = Request();
    if (out == nullptr) {
      state.dropped += 1;
      return nullptr;
    }
    at = state.filling.emplace(thread, out).first;
  }
  Out* out = at->second;
  std::memcpy(out->memory + out->used, record.data(), record.size());
  out->used += record.size();
  return out;
}

}  // namespace

void Put(std::uint32_t kind, const std::vector<std::uint8_t>& record) { Reserve(kind, record); }

void PutWork(std::uint32_t kind, const std::vector<std::uint8_t>& record, std::uint32_t begin_at, std::uint32_t end_at,
             std::int64_t begin_ns, std::int64_t end_ns) {
  State& state = TheState();
  Out* out = Reserve(kind, record);
  if (out == nullptr) return;
  cu::TimestampCallback clock = state.timestamp;
  // After each registration but the first, one kernel more at a session's head has CUPTI's own clock
  // (pytorch/pytorch issue 192021, CUPTI without PyTorch).
  if (kind == cu::kKindConcurrentKernel && state.misplaced_heads != 0) {
    state.misplaced_heads -= 1;
    clock = nullptr;
  }
  // "parcagpu issue 23": past what the device buffers hold, times are 0, and stay so.
  out->work += 1;
  state.device_records += 1;
  if (const char* most = getenv("FAKE_CUPTI_DEVICE_RECORDS");
      most != nullptr && state.device_records > static_cast<std::uint64_t>(atoll(most)))
    state.device_exhausted = true;
  if (state.device_exhausted) return;
  std::uint8_t* start = out->memory + out->used - record.size();
  out->incomplete += 1;
  state.pending.push_back({begin_ns, end_ns, begin_at != 0 ? start + begin_at : nullptr,
                           end_at != 0 ? start + end_at : nullptr, out, clock});
}

}  // namespace lockstep::fake
