#pragma once
// Threads of the agent that no signal interrupts: the agent handles signals in its main loop.

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace lockstep::clock {

// Starts with every signal blocked. Throws as std::thread does.
template <typename Work>
std::thread QuietThread(Work&& work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::forward<Work>(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace lockstep::clock
