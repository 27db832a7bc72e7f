#pragma once
// A lock for a few instructions in the application's process: it allocates nothing and makes no system call but
// sched_yield while another thread holds it.

#include <sched.h>

#include <atomic>

namespace lockstep::c10d {

struct SpinHold {
  explicit SpinHold(std::atomic_flag& flag) : lock(flag) {
    while (lock.test_and_set(std::memory_order_acquire)) sched_yield();
  }
  ~SpinHold() { lock.clear(std::memory_order_release); }
  SpinHold(const SpinHold&) = delete;
  SpinHold& operator=(const SpinHold&) = delete;

  std::atomic_flag& lock;
};

}  // namespace lockstep::c10d
