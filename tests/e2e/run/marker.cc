// Marks until it is killed (or COUNT marks), and says in a file how many it has
// committed: marker COUNTFILE [COUNT [PAUSE_US [MODE]]], MODE "child" for `kill -9`
// by itself at the end.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "runtime/lockstep.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int fd = ::open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
  if (fd < 0 || ::ftruncate(fd, 4096) != 0) return 2;
  void* memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return 2;
  auto* committed = static_cast<std::atomic<std::uint64_t>*>(memory);
  const std::uint64_t count = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : UINT64_MAX;
  const unsigned pause_us = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    lockstep_mark("mark");
    committed->store(i + 1, std::memory_order_release);
    if (pause_us > 0 && i % 64 == 63) ::usleep(pause_us);
  }
  if (argc > 4 && std::strcmp(argv[4], "kill") == 0) ::raise(SIGKILL);
  return 0;
}
