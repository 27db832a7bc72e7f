#include "runtime/agent/sample/cpu_sampler.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace lockstep::agent {

CpuSampler::~CpuSampler() {
  for (auto& [ring, file] : files_)
    if (file.fd >= 0) ::close(file.fd);
}

std::vector<SpoolCpu> CpuSampler::Sample(const Drain& drain) {
  std::vector<SpoolCpu> rows;
  ++pass_;
  drain.ForEachThread([&](std::uint32_t ring, std::uint32_t generation, std::int64_t pid, std::int64_t tid) {
    const auto [at, fresh] = files_.try_emplace(ring);
    Open& file = at->second;
    if (fresh || file.generation != generation) {
      if (file.fd >= 0) ::close(file.fd);
      file.fd = -1;
      file.generation = generation;
      if (files_.size() <= kMaxThreads) {
        char path[96];
        std::snprintf(path, sizeof path, "/proc/%" PRId64 "/task/%" PRId64 "/schedstat", pid, tid);
        file.fd = ::open(path, O_RDONLY | O_CLOEXEC);
      }
    }
    file.last_pass = pass_;
    if (file.fd < 0) return;
    char text[96];
    const ssize_t n = ::pread(file.fd, text, sizeof text - 1, 0);
    if (n <= 0) {  // ESRCH: the thread has ended.
      ::close(file.fd);
      file.fd = -1;
      return;
    }
    const std::uint64_t ticks = clock_.Ticks();
    text[n] = '\0';
    char* end = nullptr;
    const long long run_ns = std::strtoll(text, &end, 10);
    if (end == text) return;
    const long long delay_ns = std::strtoll(end, nullptr, 10);
    rows.push_back({ticks, run_ns, delay_ns, ring, generation});
  });
  for (auto at = files_.begin(); at != files_.end();) {
    if (at->second.last_pass == pass_) {
      ++at;
      continue;
    }
    if (at->second.fd >= 0) ::close(at->second.fd);
    at = files_.erase(at);
  }
  return rows;
}

}  // namespace lockstep::agent
