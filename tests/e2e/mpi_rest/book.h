#pragma once
// What a test program did, counted by itself: calls, bytes and RMA targets by
// function, messages with their times, bytes per destination. Written to
// PREFIX-<rank> at the end; the trace must say the same.

#include <time.h>

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

struct Book {
  struct Calls {
    long count = 0;
    long bytes = 0;
  };
  struct Message {
    char kind;  // S send, R receive
    int id, peer;
    long begin_ns, end_ns;  // Of the call that waits for it.
    long post_ns;
  };

  static long Now() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_RAW, &t);
    return t.tv_sec * 1'000'000'000L + t.tv_nsec;
  }
  void Call(const char* name, long bytes = 0) {
    calls[name].count += 1;
    calls[name].bytes += bytes;
  }
  void Write(const std::string& path) const {
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) return;
    for (const auto& [name, c] : calls) std::fprintf(file, "call %s %ld %ld\n", name.c_str(), c.count, c.bytes);
    for (const auto& [target, n] : targets) std::fprintf(file, "target %d %ld\n", target, n);
    for (const auto& [peer, bytes] : sent) std::fprintf(file, "sent %d %ld %ld\n", peer, bytes.count, bytes.bytes);
    for (const Message& m : messages)
      std::fprintf(file, "message %c %d %d %ld %ld %ld\n", m.kind, m.id, m.peer, m.post_ns, m.begin_ns, m.end_ns);
    std::fclose(file);
  }

  std::map<std::string, Calls> calls;
  std::map<int, long> targets;  // RMA calls by target.
  std::map<int, Calls> sent;    // Messages and bytes by world rank.
  std::vector<Message> messages;
};

extern Book book;

// Counts a call that moves no bytes, and one that moves some.
#define CALL(function, ...) (book.Call(#function), function(__VA_ARGS__))
#define MOVE(bytes, function, ...) (book.Call(#function, bytes), function(__VA_ARGS__))
