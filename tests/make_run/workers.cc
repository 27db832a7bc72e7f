#include "make_run/workers.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <new>
#include <string_view>
#include <vector>

namespace lockstep::make_run {
namespace {

// What parent and children see alike.
struct Shared {
  std::atomic<std::int32_t> next{0};
  std::atomic<std::int32_t> failed{INT32_MAX};  // Lowest i that failed.
  struct Failure {
    std::int32_t at;
    char what[240], where[1024], hint[240];
  } failures[64];  // One per child.
};

void Keep(std::string_view text, char* to, std::size_t size) {
  const std::size_t n = std::min(text.size(), size - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
}

unsigned AllowedCores() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? static_cast<unsigned>(CPU_COUNT(&cpus)) : 1;
}

}  // namespace

Status ForEachInProcesses(unsigned jobs, std::int32_t n, const std::function<Status(std::int32_t)>& work) {
  jobs = std::min({jobs == 0 ? AllowedCores() : jobs, static_cast<unsigned>(std::max(n, 1)), 64u});
  if (jobs == 1) {
    for (std::int32_t i = 0; i < n; ++i) LS_CHECK(work(i));
    return Ok();
  }
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error{ErrorCode::kIo, "no shared memory for workers", "", "use --jobs 1"};
  Shared* shared = new (memory) Shared;
  std::fflush(nullptr);  // Else each child would write what is buffered once more.
  std::vector<pid_t> children;
  for (unsigned child = 0; child < jobs; ++child) {
    const pid_t pid = fork();
    if (pid < 0) break;
    if (pid > 0) {
      children.push_back(pid);
      continue;
    }
    for (std::int32_t i; (i = shared->next.fetch_add(1)) < n && i < shared->failed.load();) {
      const Status status = work(i);
      if (status.ok()) continue;
      Shared::Failure& failure = shared->failures[child];
      failure.at = i;
      Keep(status.error().what, failure.what, sizeof failure.what);
      Keep(status.error().where, failure.where, sizeof failure.where);
      Keep(status.error().hint, failure.hint, sizeof failure.hint);
      for (std::int32_t lowest = shared->failed.load(); i < lowest && !shared->failed.compare_exchange_weak(lowest, i);)
        ;
      _exit(1);
    }
    _exit(0);
  }
  bool died = children.empty();
  for (const pid_t pid : children) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status)) died = true;
  }
  Status result = Ok();
  if (const std::int32_t lowest = shared->failed.load(); lowest != INT32_MAX) {
    for (const Shared::Failure& failure : shared->failures)
      if (failure.what[0] != '\0' && failure.at == lowest)
        result = Error{ErrorCode::kIo, failure.what, failure.where, failure.hint};
  } else if (died || shared->next.load() < n) {
    result = Error{ErrorCode::kIo, "a worker process was lost", "", "use --jobs 1"};
  }
  munmap(memory, sizeof(Shared));
  return result;
}

}  // namespace lockstep::make_run
