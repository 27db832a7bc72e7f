// Little programs for nvtx_test.cc: nvtx_scenarios NAME. They use NVTX as any program
// does, with the real headers or, where there are none, with the tests' own host; and
// lockstep.h beside it. They check what NVTX promises the caller themselves (levels,
// errno) and exit 1 if it does not hold.

#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "runtime/lockstep.h"
#include "tests/unit/runtime/probe/single_step.h"
#ifdef LOCKSTEP_REAL_NVTX
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#else
#include "tests/fakes/nvtx_host.h"
#endif

namespace {

void Check(bool holds, int line) {
  if (holds) return;
  std::fprintf(stderr, "nvtx_scenarios.cc:%d does not hold (errno %d)\n", line, errno);
  std::_Exit(1);
}
#define CHECK(what) Check(what, __LINE__)

void Sync(const char* what) {
  std::printf("%s\n", what);
  std::fflush(stdout);
  char line[16];
  if (std::fgets(line, sizeof line, stdin) == nullptr) std::exit(9);
}

nvtxEventAttributes_t Event() {
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  return event;
}
nvtxEventAttributes_t Event(const char* text) {
  nvtxEventAttributes_t event = Event();
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = text;
  return event;
}
nvtxEventAttributes_t Event(const wchar_t* text) {
  nvtxEventAttributes_t event = Event();
  event.messageType = NVTX_MESSAGE_TYPE_UNICODE;
  event.message.unicode = text;
  return event;
}
nvtxEventAttributes_t Registered(nvtxStringHandle_t text) {
  nvtxEventAttributes_t event = Event();
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = text;
  return event;
}
int Push(nvtxDomainHandle_t domain, nvtxEventAttributes_t event) { return nvtxDomainRangePushEx(domain, &event); }

int Names() {
  CHECK(nvtxRangePushA("outer") == 0);
  CHECK(nvtxRangePushA("inner") == 1);
  CHECK(nvtxRangePop() == 1);
  CHECK(nvtxRangePushW(L"wide \u00fcber \u4e2d \U0001f600") == 1);
  CHECK(nvtxRangePop() == 1);
  nvtxEventAttributes_t event = Event("from attributes");
  CHECK(nvtxRangePushEx(&event) == 1);
  CHECK(nvtxRangePop() == 1);
  event = Event(L"wide attributes");
  CHECK(nvtxRangePushEx(&event) == 1);
  CHECK(nvtxRangePop() == 1);
  nvtxDomainHandle_t domain = nvtxDomainCreateA("library");
  CHECK(domain != nullptr);
  CHECK(nvtxDomainCreateW(L"library") == domain);
  const nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "registered");
  CHECK(nvtxDomainRegisterStringA(domain, "registered") == text);
  const nvtxStringHandle_t wide = nvtxDomainRegisterStringW(domain, L"registered wide");
  for (int i = 0; i < 3; ++i) {
    CHECK(Push(domain, Registered(text)) == 0);
    CHECK(Push(domain, Registered(wide)) == 1);
    CHECK(nvtxDomainRangePop(domain) == 1);
    CHECK(nvtxDomainRangePop(domain) == 0);
  }
  event = Event();  // No message at all.
  CHECK(nvtxRangePushEx(&event) == 1);
  CHECK(nvtxRangePop() == 1);
  CHECK(nvtxRangePop() == 0);
  nvtxMarkA("mark");
  nvtxMarkW(L"wide mark");
  event = Event("domain mark");
  nvtxDomainMarkEx(domain, &event);
  nvtxDomainDestroy(domain);
  std::string longer(4095, 'x');
  longer += "\xc3\xa9 and more";  // The cut must not split a character.
  nvtxRangePushA(longer.c_str());
  nvtxRangePop();
  return 0;
}

int Dynamic() {
  char name[64];
  for (int i = 0; i < 1000; ++i) {  // One buffer, 10 texts of 40 characters.
    std::snprintf(name, sizeof name, "a name made at run time, for request %03d", i % 10);
    CHECK(std::strlen(name) == 40);
    nvtxRangePushA(name);
    nvtxRangePop();
  }
  return 0;
}

int ManyStrings() {  // More than have a place in the ring's page.
  std::vector<nvtxStringHandle_t> handles;
  for (int i = 0; i < 1000; ++i)
    handles.push_back(nvtxDomainRegisterStringA(nullptr, ("text " + std::to_string(i)).c_str()));
  for (int round = 0; round < 2; ++round)
    for (const nvtxStringHandle_t handle : handles) {
      Push(nullptr, Registered(handle));
      nvtxRangePop();
    }
  return 0;
}

int Domains() {
  nvtxDomainHandle_t a = nvtxDomainCreateA("A"), b = nvtxDomainCreateA("B");
  for (int i = 0; i < 2; ++i) {
    CHECK(Push(a, Event("a0")) == 0);
    lockstep_range_push("ours");
    CHECK(Push(b, Event("b0")) == 0);
    CHECK(Push(a, Event("a1")) == 1);
    CHECK(nvtxRangePushA("default") == 0);
    CHECK(Push(b, Event("b1")) == 1);
    CHECK(nvtxDomainRangePop(a) == 1);  // Below B's and the default one.
    lockstep_range_pop();
    CHECK(nvtxDomainRangePop(a) == 0);
    CHECK(nvtxDomainRangePop(a) < 0);
    CHECK(nvtxRangePop() == 0);
    CHECK(nvtxDomainRangePop(b) == 1);
    CHECK(nvtxDomainRangePop(b) == 0);
  }
  return 0;
}

int Deep() {
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  CHECK(nvtxRangePop() < 0);  // Nothing to pop.
  for (int i = 0; i < 70; ++i) CHECK(nvtxRangePushA("deep") == i);
  for (int i = 69; i >= 0; --i) CHECK(nvtxRangePop() == i);
  // Two domains, entangled far beyond the limit.
  for (int i = 0; i < 50; ++i) {
    CHECK(Push(a, Event("in A")) == i);
    CHECK(nvtxRangePushA("default") == i);
  }
  for (int i = 49; i >= 0; --i) CHECK(nvtxDomainRangePop(a) == i);
  CHECK(nvtxDomainRangePop(a) < 0);
  for (int i = 49; i >= 0; --i) CHECK(nvtxRangePop() == i);
  // Deeper than anybody keeps.
  for (int i = 0; i < 400; ++i) nvtxRangePushA("abyss");
  for (int i = 0; i < 400; ++i) CHECK(nvtxRangePop() >= 0);
  CHECK(nvtxRangePop() < 0);
  nvtxRangePushA("after");
  nvtxRangePop();
  return 0;
}

int Payloads() {
  nvtxNameCategoryA(7, "Input");
  nvtxNameCategoryW(8, L"w\u00efde");
  nvtxDomainHandle_t domain = nvtxDomainCreateA("D");
  nvtxDomainNameCategoryA(domain, 7, "seven of D");
  const auto pair = [](nvtxDomainHandle_t where, const nvtxEventAttributes_t& event) {
    Push(where, event);
    nvtxDomainRangePop(where);
  };
  nvtxEventAttributes_t event = Event("u64");
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
  event.payload.ullValue = UINT64_C(0x123456789abcdef0);
  pair(nullptr, event);
  event = Event("i64");
  event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  event.payload.llValue = -5000000000;
  pair(nullptr, event);
  event.payload.llValue = -5;
  event.message.ascii = "small i64";
  for (int i = 0; i < 2; ++i) pair(nullptr, event);
  event = Event("u32");
  event.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT32;
  event.payload.uiValue = 4000000000u;
  pair(nullptr, event);
  event = Event("i32");
  event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
  event.payload.iValue = -7;
  pair(nullptr, event);
  event = Event("double");
  event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  event.payload.dValue = 2.5;
  pair(nullptr, event);
  event = Event("float");
  event.payloadType = NVTX_PAYLOAD_TYPE_FLOAT;
  event.payload.fValue = -0.25f;
  pair(nullptr, event);
  event = Event("zero");
  event.payloadType = NVTX_PAYLOAD_TYPE_INT64;
  pair(nullptr, event);
  event = Event("categorised");
  event.category = 7;
  pair(nullptr, event);
  pair(domain, event);
  event.category = 9;  // Without a name.
  event.payloadType = NVTX_PAYLOAD_TYPE_INT32;
  event.payload.iValue = 3;
  pair(domain, event);
  nvtxDomainMarkEx(domain, &event);
  return 0;
}

int Extension() {
#ifdef LOCKSTEP_REAL_NVTX
  struct Mixed {
    char first;
    double number;
    std::uint32_t small;
    std::int64_t large;
  };
  nvtxDomainHandle_t domain = nvtxDomainCreateA("P");
  const nvtxPayloadSchemaEntry_t entries[] = {
      {0, NVTX_PAYLOAD_ENTRY_TYPE_DOUBLE, "number", nullptr, 0, offsetof(Mixed, number), nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT32, "small", nullptr, 0, 0, nullptr, nullptr},
      {0, NVTX_PAYLOAD_ENTRY_TYPE_INT64, "large", nullptr, 0, 0, nullptr, nullptr}};
  nvtxPayloadSchemaAttr_t schema{};
  schema.fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES;
  schema.name = "mixed";
  schema.type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC;
  schema.entries = entries;
  schema.numEntries = 3;
  const std::uint64_t all = nvtxPayloadSchemaRegister(domain, &schema);
  CHECK(all >= NVTX_PAYLOAD_SCHEMA_ID_DYNAMIC_START);
  CHECK(nvtxPayloadSchemaRegister(domain, &schema) != all);
  schema.entries = entries + 2;
  schema.numEntries = 1;
  schema.fieldMask |= NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_SCHEMA_ID;
  schema.schemaId = NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + 5;
  schema.name = "only large";
  CHECK(nvtxPayloadSchemaRegister(domain, &schema) == schema.schemaId);
  CHECK(nvtxDomainIsEnabled(domain) == 1);
  const Mixed mixed{'x', 1.5, 4000000001u, -9};
  nvtxPayloadData_t data{all, sizeof mixed, &mixed};
  nvtxEventAttributes_t event = Event("struct");
  NVTX_PAYLOAD_EVTATTR_SET_DATA(event, &data, all, &mixed, sizeof mixed)
  CHECK(Push(domain, event) == 0);
  CHECK(nvtxDomainRangePop(domain) == 0);
  const std::int64_t number = -77;
  NVTX_PAYLOAD_EVTATTR_SET_DATA(event, &data, schema.schemaId, &number, sizeof number)
  CHECK(Push(domain, event) == 0);
  CHECK(nvtxDomainRangePop(domain) == 0);
  NVTX_PAYLOAD_EVTATTR_SET_DATA(event, &data, NVTX_PAYLOAD_ENTRY_TYPE_INT64, &number, sizeof number)
  nvtxDomainMarkEx(domain, &event);
  NVTX_PAYLOAD_EVTATTR_SET_DATA(event, &data, 12345678, &number, sizeof number)  // Never registered.
  nvtxDomainMarkEx(domain, &event);
  NVTX_PAYLOAD_EVTATTR_SET_DATA(event, &data, all, &mixed, 9)  // Cut: the number is not in it.
  nvtxDomainMarkEx(domain, &event);
  data = {schema.schemaId, sizeof number, &number};
  CHECK(nvtxRangePushPayload(domain, &data, 1) == 0);
  CHECK(nvtxRangePopPayload(domain, &data, 1) == 0);
  nvtxMarkPayload(domain, &data, 1);
  const nvtxRangeId_t id = nvtxRangeStartPayload(domain, &data, 1);
  nvtxRangeEndPayload(domain, id, nullptr, 0);
  return 0;
#else
  return 77;
#endif
}

int StartEnd() {
  const nvtxRangeId_t across = nvtxRangeStartA("across");
  const nvtxRangeId_t wide = nvtxRangeStartW(L"wide");
  CHECK(across != 0 && wide != 0 && across != wide);
  nvtxRangeEnd(wide);
  nvtxDomainHandle_t domain = nvtxDomainCreateA("S");
  nvtxRangeId_t from_thread = 0;
  std::thread([&] {
    nvtxRangeEnd(across);
    nvtxEventAttributes_t event = Event("from thread");
    event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
    event.payload.dValue = 0.5;
    from_thread = nvtxDomainRangeStartEx(domain, &event);
  }).join();
  nvtxDomainRangeEnd(domain, from_thread);
  nvtxRangeEnd(12345);  // Never begun.
  std::vector<nvtxRangeId_t> many;
  for (int i = 0; i < 3000; ++i) many.push_back(nvtxRangeStartA("many"));  // All open at once.
  for (const nvtxRangeId_t id : many) nvtxRangeEnd(id);
  nvtxRangeStartA("never ended");
  lockstep_stop();
  const nvtxRangeId_t off = nvtxRangeStartA("begun while off");
  lockstep_start();
  nvtxRangeEnd(off);
  const nvtxRangeId_t on = nvtxRangeStartA("ended while off");
  lockstep_stop();
  nvtxRangeEnd(on);
  return 0;
}

void ThreadRanges(int n) {
  nvtxDomainHandle_t domain = nvtxDomainCreateA("threads");
  const nvtxStringHandle_t text = nvtxDomainRegisterStringA(domain, "of a thread");
  for (int i = 0; i < n; ++i) {
    CHECK(Push(domain, Registered(text)) == 0);
    CHECK(nvtxRangePushA("literal") == 0);
    CHECK(nvtxRangePop() == 0);
    CHECK(nvtxDomainRangePop(domain) == 0);
  }
}

int Threads(int threads, int n) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back(ThreadRanges, n);
  for (std::thread& each : all) each.join();
  return 0;
}

int Window() {
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  CHECK(nvtxRangePushA("closed while off") == 0);
  lockstep_stop();
  CHECK(nvtxRangePushA("all while off") == 1);
  CHECK(nvtxRangePop() == 1);
  CHECK(nvtxRangePop() == 0);
  CHECK(Push(a, Event("opened while off")) == 0);
  CHECK(nvtxRangePop() < 0);
  lockstep_start();
  CHECK(nvtxRangePushA("on again") == 0);
  CHECK(nvtxRangePop() == 0);
  CHECK(nvtxDomainRangePop(a) == 0);
  CHECK(Push(a, Event("on in A")) == 0);
  CHECK(nvtxDomainRangePop(a) == 0);
  return 0;
}

int ForkPops() {
  nvtxRangePushA("open in the parent");
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  Push(a, Event("of the parent"));
  const nvtxRangeId_t id = nvtxRangeStartA("ended by both");
  const pid_t idle = fork();
  if (idle == 0) {  // Only leaves what its parent entered: leaves no trace.
    nvtxRangeEnd(id);
    nvtxDomainRangePop(a);
    nvtxRangePop();
    _exit(0);
  }
  waitpid(idle, nullptr, 0);
  const pid_t busy = fork();
  if (busy == 0) {
    CHECK(Push(a, Event("of the child")) == 0);
    nvtxDomainRangePop(a);
    CHECK(nvtxDomainRangePop(a) < 0);
    _exit(0);
  }
  int status = 0;
  waitpid(busy, &status, 0);
  CHECK(status == 0);
  nvtxRangeEnd(id);
  CHECK(nvtxDomainRangePop(a) == 0);
  CHECK(nvtxRangePop() == 0);
  return 0;
}

int Open() {
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  nvtxRangePushA("outermost");
  nvtxEventAttributes_t event = Event("with payload");
  event.payloadType = NVTX_PAYLOAD_TYPE_DOUBLE;
  event.payload.dValue = 1.25;
  Push(a, event);
  lockstep_range_push("ours");
  nvtxRangeStartA("started");
  for (int i = 0; i < 100; ++i) {
    Push(a, Event("closed"));
    nvtxDomainRangePop(a);
  }
  Sync("open");
  return 0;
}

long g_handled = 0;
void OnSignal(int signal) {
  char name[32] = "handler";
  // New each time: the slow path.
  if (signal == SIGTRAP) std::snprintf(name, sizeof name, "handler %ld", g_handled++);
  nvtxRangePushA(name);
  nvtxMarkA("handler mark");
  nvtxRangePop();
}
// Signals come every 50 us, or after each instruction.
int Signals(int rounds, bool stepped) {
  nvtxRangePushA("first");  // NVTX starts itself under a lock of its own: not in a handler.
  nvtxRangePop();
  struct sigaction action {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigaction(stepped ? SIGTRAP : SIGALRM, &action, nullptr);
  itimerval timer{{0, 50}, {0, 50}};
  if (!stepped) setitimer(ITIMER_REAL, &timer, nullptr);
  char name[32];
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  for (int ranges = 0; ranges < rounds; ++ranges) {
    std::snprintf(name, sizeof name, "name %d", ranges % 500);
    if (stepped) lockstep::StepSingly(true);
    Push(a, Event("outer"));
    nvtxRangePushA(ranges % 3 == 0 ? name : "main");
    if (ranges % 2 == 0) nvtxRangePop();
    nvtxDomainRangePop(a);
    if (ranges % 2 != 0) nvtxRangePop();
    if (stepped) lockstep::StepSingly(false);
  }
  timer = {};
  setitimer(ITIMER_REAL, &timer, nullptr);
  std::printf("%d\n", rounds);
  return 0;
}

int ThreadNames() {
  std::thread([] {
    nvtxNameOsThreadA(static_cast<std::uint32_t>(syscall(SYS_gettid)), "named by itself");
    nvtxRangePushA("work");
    nvtxRangePop();
  }).join();
  nvtxNameOsThreadW(static_cast<std::uint32_t>(getpid() + 100000), L"another");
#ifdef LOCKSTEP_REAL_NVTX
  nvtxInitialize(nullptr);
  nvtxResourceAttributes_t thread{};
  thread.version = NVTX_VERSION;
  thread.size = NVTX_RESOURCE_ATTRIB_STRUCT_SIZE;
  thread.identifierType = NVTX_RESOURCE_TYPE_GENERIC_THREAD_NATIVE;
  thread.identifier.ullValue = static_cast<std::uint64_t>(getpid() + 100001);
  thread.messageType = NVTX_MESSAGE_TYPE_ASCII;
  thread.message.ascii = "as a resource";
  const nvtxResourceHandle_t handle = nvtxDomainResourceCreate(nullptr, &thread);
  CHECK(handle != nullptr);
  nvtxDomainResourceDestroy(handle);
#endif
  return 0;
}

int Errno() {
  errno = 77;
  Names();
  Dynamic();
  StartEnd();
  Payloads();
  return errno == 77 ? 0 : 1;
}

int Watched() {  // The test watches for "window" and "step".
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  for (int i = 0; i < 4; ++i) {
    nvtxRangePushA("outside");
    nvtxRangePop();
    lockstep_range_push("ours outside");
    Push(a, Event(i == 3 ? L"other" : L"window"));
    for (int k = 0; k < 10; ++k) {
      nvtxRangePushA("inside");
      lockstep_range_push("ours inside");
      nvtxRangePop();
      lockstep_range_pop();
    }
    nvtxDomainRangePop(a);
    lockstep_range_pop();
    nvtxRangePushA("outside");
    nvtxRangePop();
  }
  return 0;
}

int WatchedStart() {
  for (int i = 0; i < 3; ++i) {
    nvtxRangePushA("outside");
    nvtxRangePop();
    const nvtxRangeId_t id = nvtxRangeStartA(i == 2 ? "other" : "window");
    nvtxRangePushA("inside");
    nvtxRangePop();
    std::thread([id] { nvtxRangeEnd(id); }).join();
  }
  return 0;
}

int WatchedOurs() {
  for (int i = 0; i < 3; ++i) {
    lockstep_range_push("outside");
    lockstep_range_pop();
    lockstep_range_push("window");
    for (int k = 0; k < 5; ++k) {
      lockstep_range_push("inside");
      lockstep_range_pop();
    }
    lockstep_range_pop();
  }
  return 0;
}

int Loop(const std::string& kind, int n) {  // For callgrind.
  nvtxDomainHandle_t a = nvtxDomainCreateA("A");
  const nvtxStringHandle_t text = nvtxDomainRegisterStringA(a, "registered name");
  const nvtxEventAttributes_t registered = Registered(text);
  char name[64];
  std::snprintf(name, sizeof name, "a name made at run time, for request %03d", n % 7);
  const auto repeat = [n](auto&& pair) {
    for (int i = 0; i < n + 3; ++i) pair();
  };
  if (kind == "literal") {
    repeat([] {
      nvtxRangePushA("forward");
      nvtxRangePop();
    });
  } else if (kind == "registered") {
    repeat([&] {
      nvtxDomainRangePushEx(a, &registered);
      nvtxDomainRangePop(a);
    });
  } else {
    repeat([&] {
      nvtxRangePushA(name);
      nvtxRangePop();
    });
  }
  return 0;
}

struct Late {
  ~Late() {
    if (std::getenv("LOCKSTEP_TEST_EARLY") == nullptr) return;
    nvtxMarkA("after main");
    std::thread([] { nvtxMarkA("thread after main"); }).join();
  }
} g_late;
void AtExit() {
  nvtxRangePushA("at exit");
  nvtxRangePop();
}
__attribute__((constructor)) void Early() {
  if (std::getenv("LOCKSTEP_TEST_EARLY") == nullptr) return;
  nvtxRangePushA("before main");
  nvtxRangePop();
  std::atexit(AtExit);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  const int first = argc > 2 ? std::atoi(argv[2]) : 0, second = argc > 3 ? std::atoi(argv[3]) : 0;
  if (name == "nothing") return 0;
  if (name == "names") return Names();
  if (name == "dynamic") return Dynamic();
  if (name == "many-strings") return ManyStrings();
  if (name == "domains") return Domains();
  if (name == "deep") return Deep();
  if (name == "payloads") return Payloads();
  if (name == "extension") return Extension();
  if (name == "start-end") return StartEnd();
  if (name == "threads") return Threads(first, second);
  if (name == "window") return Window();
  if (name == "fork") return ForkPops();
  if (name == "open") return Open();
  if (name == "signals") return Signals(first, false);
  if (name == "stepped") return Signals(first, true);
  if (name == "thread-names") return ThreadNames();
  if (name == "errno") return Errno();
  if (name == "watched") return Watched();
  if (name == "watched-start") return WatchedStart();
  if (name == "watched-ours") return WatchedOurs();
  if (name == "loop") return Loop(argv[2], second);
  return 2;
}
