#include "runtime/probe/own_python.h"

#include <dlfcn.h>
#include <string.h>

#include <array>
#include <atomic>
#include <bit>

#include "runtime/probe/blocked/real.h"

namespace lockstep::probe {
namespace {

constinit Interpreter g_interpreter{};
enum Search : int { kNotFound, kSearching, kFound, kNeverAgain };
std::atomic<int> g_search{kNotFound};
std::atomic<std::uint32_t> g_calls{0};
std::atomic<std::uint64_t> g_lock{0};  // Python's, of versions that have it behind pointers; 0 not known yet.

struct PythonSymbols {
  void* state = nullptr;               // PyGILState_GetThisThreadState
  const void* runtime = nullptr;       // _PyRuntime
  const char* (*version)() = nullptr;  // Py_GetVersion
  bool complete() const { return state != nullptr && runtime != nullptr && version != nullptr; }
};
constinit PythonSymbols g_at_start{};

template <typename Find>
PythonSymbols SymbolsBy(Find&& find) {
  PythonSymbols symbols;
  symbols.runtime = find("_PyRuntime");
  if (symbols.runtime == nullptr) return symbols;
  symbols.state = find("PyGILState_GetThisThreadState");
  symbols.version = reinterpret_cast<const char* (*)()>(find("Py_GetVersion"));
  return symbols;
}

// 0x030b for "3.11.2 (main, ...)"; 0 for anything else.
std::uint32_t VersionOf(const char* text) {
  if (text == nullptr || strncmp(text, "3.", 2) != 0) return 0;
  std::uint32_t minor = 0;
  for (text += 2; *text >= '0' && *text <= '9' && minor < 100; ++text)
    minor = 10 * minor + static_cast<std::uint32_t>(*text - '0');
  return minor == 0 ? 0 : 0x0300U | minor;
}

Search Examine(const PythonSymbols& symbols) {
  if (!symbols.complete()) return kNotFound;
  const auto runtime = reinterpret_cast<std::uint64_t>(symbols.runtime);
  const PythonLayout* known = LayoutOf(VersionOf(symbols.version()));
  if (known != nullptr) {
    g_interpreter.layout = *known;
  } else {
    std::array<std::uint8_t, kDebugOffsetsBytes> head;
    if (!OwnMemory().Read(runtime, head.data(), head.size()) || !LayoutFrom(head, g_interpreter.layout))
      return kNeverAgain;  // Its version is not covered.
  }
  g_interpreter.state = reinterpret_cast<const void* (*)()>(symbols.state);
  g_interpreter.runtime = runtime;
  return kFound;
}

template <typename Find>
int Look(Find&& find) {
  int search = kNotFound;
  if (!g_search.compare_exchange_strong(search, kSearching)) return search;
  search = Examine(find());
  g_search.store(search, std::memory_order_release);
  return search;
}

}  // namespace

bool FindInterpreterAtStart() {
  g_at_start = SymbolsBy([](const char* name) { return StartedWith(name); });
  return g_at_start.complete();
}

const Interpreter* KnownInterpreter() {
  int search = g_search.load(std::memory_order_acquire);
  if (search == kNotFound && g_at_start.complete()) search = Look([] { return g_at_start; });
  return search == kFound ? &g_interpreter : nullptr;
}

const Interpreter* TheInterpreter() {
  const int search = g_search.load(std::memory_order_acquire);
  if (search == kNotFound && std::has_single_bit(g_calls.fetch_add(1, std::memory_order_relaxed) + 1))
    Look([] { return SymbolsBy([](const char* name) { return dlsym(RTLD_DEFAULT, name); }); });
  return KnownInterpreter();
}

bool GiveUpInterpreter() { return g_search.exchange(kNeverAgain) == kFound; }

bool IsPythonLock(std::uint64_t address) {
  const Interpreter* interpreter = KnownInterpreter();
  if (interpreter == nullptr || interpreter->layout.gil_bytes == 0) return false;
  const PythonLayout& layout = interpreter->layout;
  std::uint64_t lock = interpreter->runtime + layout.gil;
  if (layout.gil_of_interpreter) {
    lock = g_lock.load(std::memory_order_relaxed);
    std::uint64_t first = 0;
    const OwnMemory memory;
    // Of the first interpreter, which others mostly share.
    if (lock == 0 && memory.Read(interpreter->runtime + layout.interpreters_head, &first, sizeof first) &&
        memory.Read(first + layout.gil, &lock, sizeof lock))
      g_lock.store(lock, std::memory_order_relaxed);
  }
  return lock != 0 && address >= lock && address < lock + layout.gil_bytes;
}

}  // namespace lockstep::probe
