// A program whose children do known things. What the parent itself does: 10 ranges "parent".
//
//   children fork | fork_uses | fork_exec | system | popen | spawn | vfork | daemon | env_i | dlmopen
//   children swarm N       N children one after the other, each `true`
//   children users N       N children one after the other, each 5 ranges "child"
//   children threads N     N threads one after the other, each 5 ranges "thread"
//   children forked_thread the only child is forked by a second thread and uses ranges
//   children spawn_dynamic PROGRAM   what `spawn` does, with another program
//   children uses          5 ranges "child" and nothing else: what the others start

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/lockstep.h"

extern char** environ;

namespace {

void Ranges(const char* name, int count) {
  for (int i = 0; i < count; ++i) {
    lockstep_range_push(name);
    lockstep_range_pop();
  }
}

int Wait(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return 100;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <typename F>
int InChild(F f) {
  const pid_t pid = fork();
  if (pid == 0) {
    f();
    _exit(0);
  }
  return Wait(pid);
}

int Spawn(const char* self, const char* mode, char* const* environment) {
  char* argv[] = {const_cast<char*>(self), const_cast<char*>(mode), nullptr};
  pid_t pid = 0;
  if (posix_spawnp(&pid, self, nullptr, nullptr, argv, environment) != 0) return 101;
  return Wait(pid);
}

// Outlives the program, which waits for its first ranges: says so in the file it is given.
int Daemon(const char* file) {
  int ready[2];
  if (pipe(ready) != 0) return 103;
  const int code = InChild([&] {
    setsid();
    if (fork() != 0) return;
    for (int fd = 0; fd < 3; ++fd) close(fd);
    Ranges("daemon", 5);
    close(ready[0]);
    close(ready[1]);
    usleep(600'000);
    Ranges("late", 5);
    const int fd = open(file, O_WRONLY | O_CREAT, 0666);
    if (write(fd, "over\n", 5) < 0) _exit(1);
  });
  close(ready[1]);
  char none;
  return read(ready[0], &none, 1) == 0 ? code : 104;
}

int Threads(int count) {
  for (int i = 0; i < count; ++i) {
    std::thread([i] {
      const std::string name = "worker-" + std::to_string(i);
      pthread_setname_np(pthread_self(), name.c_str());
      Ranges("thread", 5);
    }).join();
  }
  return 0;
}

int Run(const std::string& mode, const char* self, const char* argument) {
  const int number = argument != nullptr ? std::atoi(argument) : 0;
  if (mode == "fork") return InChild([] {});
  if (mode == "fork_uses") return InChild([] { Ranges("child", 5); });
  if (mode == "fork_exec") return InChild([] { execlp("true", "true", static_cast<char*>(nullptr)); });
  if (mode == "forked_thread") {
    int code = 0;
    std::thread([&] {
      Ranges("thread", 5);
      code = InChild([] { Ranges("child", 5); });
    }).join();
    return code;
  }
  if (mode == "system") return std::system("echo from a shell");
  if (mode == "popen") {
    std::FILE* pipe = popen("echo from a pipe", "r");
    char line[64] = {};
    if (pipe != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) std::fputs(line, stdout);
    return pipe == nullptr ? 1 : pclose(pipe);
  }
  if (mode == "spawn") return Spawn(self, "uses", environ);
  if (mode == "spawn_dynamic") return Spawn(argument, "uses", environ);
  if (mode == "env_i") {
    char* none[] = {nullptr};
    return Spawn(self, "uses", none);
  }
  if (mode == "vfork") {
    const pid_t pid = vfork();
    if (pid == 0) {
      execlp("true", "true", static_cast<char*>(nullptr));
      _exit(127);
    }
    return Wait(pid);
  }
  if (mode == "swarm") {
    for (int i = 0; i < number; ++i)
      if (const int code = Spawn("true", "true", environ); code != 0) return code;
    return 0;
  }
  if (mode == "users") {
    for (int i = 0; i < number; ++i)
      if (const int code = Spawn(self, "uses", environ); code != 0) return code;
    return 0;
  }
  if (mode == "threads") return Threads(number);
  if (mode == "daemon") return Daemon(argument);
#ifndef CHILDREN_STATIC  // A static program has no loader.
  if (mode == "dlmopen") {
    // A second C library in a namespace of its own, and libraries that come and go.
    void* apart = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < 20; ++i) {
      void* library = dlopen("libutil.so.1", RTLD_NOW);
      Ranges("dlopen", 1);
      if (library != nullptr) dlclose(library);
    }
    if (apart != nullptr) dlclose(apart);
    return apart == nullptr ? 1 : 0;
  }
#endif
  std::fprintf(stderr, "children: no such mode\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "uses") {
    Ranges("child", 5);
    return 0;
  }
  Ranges("parent", 5);
  std::fflush(stdout);
  const int code = Run(mode, argv[0], argc > 2 ? argv[2] : nullptr);
  Ranges("parent", 5);
  std::printf("%s: %d\n", mode.c_str(), code);
  return code;
}
