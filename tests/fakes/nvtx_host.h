/* The application's side of NVTX, small: what a program that compiled NVTX 3 does, for
 * machines without its headers. Same names, same binary interface (loads the library
 * that NVTX_INJECTION64_PATH names on the first call, per object); only what the tests
 * use. C and C++. */
#ifndef LOCKSTEP_TESTS_NVTX_HOST_H
#define LOCKSTEP_TESTS_NVTX_HOST_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NVTX_VERSION 3
#define NVTX_EVENT_ATTRIB_STRUCT_SIZE ((uint16_t)sizeof(nvtxEventAttributes_t))
#define NVTX_NO_PUSH_POP_TRACKING (-2)

enum { NVTX_MESSAGE_UNKNOWN, NVTX_MESSAGE_TYPE_ASCII, NVTX_MESSAGE_TYPE_UNICODE, NVTX_MESSAGE_TYPE_REGISTERED };
enum {
  NVTX_PAYLOAD_UNKNOWN,
  NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
  NVTX_PAYLOAD_TYPE_INT64,
  NVTX_PAYLOAD_TYPE_DOUBLE,
  NVTX_PAYLOAD_TYPE_UNSIGNED_INT32,
  NVTX_PAYLOAD_TYPE_INT32,
  NVTX_PAYLOAD_TYPE_FLOAT
};

typedef uint64_t nvtxRangeId_t;
typedef void* nvtxDomainHandle_t;
typedef void* nvtxStringHandle_t;
typedef struct {
  uint16_t version, size;
  uint32_t category;
  int32_t colorType;
  uint32_t color;
  int32_t payloadType, reserved0;
  union {
    uint64_t ullValue;
    int64_t llValue;
    double dValue;
    uint32_t uiValue;
    int32_t iValue;
    float fValue;
  } payload;
  int32_t messageType;
  union {
    const char* ascii;
    const wchar_t* unicode;
    nvtxStringHandle_t registered;
  } message;
} nvtxEventAttributes_t;

typedef void (*NvtxHostFunction)(void);
/* [0]: module CORE, [1]: CORE2; the pointers that the tool may set. */
static NvtxHostFunction nvtx_host_functions[2][16];
static NvtxHostFunction* nvtx_host_tables[2][16];
static int nvtx_host_state; /* The tests' first calls are not concurrent. */

static int nvtx_host_module(uint32_t module, NvtxHostFunction*** table, unsigned* size) {
  int i, which = module == 1 ? 0 : module == 5 ? 1 : -1;
  if (which < 0) return 0;
  for (i = 0; i < 16; ++i) nvtx_host_tables[which][i] = &nvtx_host_functions[which][i];
  *table = nvtx_host_tables[which];
  *size = 16;
  return 1;
}
static const struct {
  size_t bytes;
  int (*module)(uint32_t, NvtxHostFunction***, unsigned*);
} nvtx_host_exports = {sizeof nvtx_host_exports, nvtx_host_module};
static const void* nvtx_host_export(uint32_t table) { return table == 1 ? &nvtx_host_exports : NULL; }

static void nvtx_host_start(void) {
  const char* path = getenv("NVTX_INJECTION64_PATH");
  void* library = path != NULL ? dlopen(path, RTLD_LAZY) : NULL;
  int (*start)(const void* (*)(uint32_t)) = NULL;
  if (library != NULL) *(void**)&start = dlsym(library, "InitializeInjectionNvtx2");
  if (start == NULL || start(nvtx_host_export) == 0) {
    int i;
    for (i = 0; i < 16; ++i) nvtx_host_functions[0][i] = nvtx_host_functions[1][i] = NULL;
  }
  nvtx_host_state = 1;
}
static inline NvtxHostFunction nvtx_host_function(int module, int id) {
  if (nvtx_host_state == 0) nvtx_host_start();
  return nvtx_host_functions[module][id];
}

#define NVTX_HOST_CALL(type, name, arguments, names, module, id, none) \
  static inline type name arguments {                                  \
    NvtxHostFunction function = nvtx_host_function(module, id);        \
    if (function == NULL) return none;                                 \
    return ((type(*) arguments)function)names;                         \
  }
#define NVTX_HOST_VOID(name, arguments, names, module, id)      \
  static inline void name arguments {                           \
    NvtxHostFunction function = nvtx_host_function(module, id); \
    if (function != NULL) ((void(*) arguments)function) names;  \
  }

NVTX_HOST_VOID(nvtxMarkEx, (const nvtxEventAttributes_t* e), (e), 0, 1)
NVTX_HOST_VOID(nvtxMarkA, (const char* m), (m), 0, 2)
NVTX_HOST_VOID(nvtxMarkW, (const wchar_t* m), (m), 0, 3)
NVTX_HOST_CALL(nvtxRangeId_t, nvtxRangeStartEx, (const nvtxEventAttributes_t* e), (e), 0, 4, 0)
NVTX_HOST_CALL(nvtxRangeId_t, nvtxRangeStartA, (const char* m), (m), 0, 5, 0)
NVTX_HOST_CALL(nvtxRangeId_t, nvtxRangeStartW, (const wchar_t* m), (m), 0, 6, 0)
NVTX_HOST_VOID(nvtxRangeEnd, (nvtxRangeId_t i), (i), 0, 7)
NVTX_HOST_CALL(int, nvtxRangePushEx, (const nvtxEventAttributes_t* e), (e), 0, 8, NVTX_NO_PUSH_POP_TRACKING)
NVTX_HOST_CALL(int, nvtxRangePushA, (const char* m), (m), 0, 9, NVTX_NO_PUSH_POP_TRACKING)
NVTX_HOST_CALL(int, nvtxRangePushW, (const wchar_t* m), (m), 0, 10, NVTX_NO_PUSH_POP_TRACKING)
NVTX_HOST_CALL(int, nvtxRangePop, (void), (), 0, 11, NVTX_NO_PUSH_POP_TRACKING)
NVTX_HOST_VOID(nvtxNameCategoryA, (uint32_t c, const char* m), (c, m), 0, 12)
NVTX_HOST_VOID(nvtxNameCategoryW, (uint32_t c, const wchar_t* m), (c, m), 0, 13)
NVTX_HOST_VOID(nvtxNameOsThreadA, (uint32_t t, const char* m), (t, m), 0, 14)
NVTX_HOST_VOID(nvtxNameOsThreadW, (uint32_t t, const wchar_t* m), (t, m), 0, 15)
NVTX_HOST_VOID(nvtxDomainMarkEx, (nvtxDomainHandle_t d, const nvtxEventAttributes_t* e), (d, e), 1, 1)
NVTX_HOST_CALL(nvtxRangeId_t, nvtxDomainRangeStartEx, (nvtxDomainHandle_t d, const nvtxEventAttributes_t* e), (d, e), 1,
               2, 0)
NVTX_HOST_VOID(nvtxDomainRangeEnd, (nvtxDomainHandle_t d, nvtxRangeId_t i), (d, i), 1, 3)
NVTX_HOST_CALL(int, nvtxDomainRangePushEx, (nvtxDomainHandle_t d, const nvtxEventAttributes_t* e), (d, e), 1, 4,
               NVTX_NO_PUSH_POP_TRACKING)
NVTX_HOST_CALL(int, nvtxDomainRangePop, (nvtxDomainHandle_t d), (d), 1, 5, NVTX_NO_PUSH_POP_TRACKING)
NVTX_HOST_VOID(nvtxDomainNameCategoryA, (nvtxDomainHandle_t d, uint32_t c, const char* m), (d, c, m), 1, 8)
NVTX_HOST_CALL(nvtxStringHandle_t, nvtxDomainRegisterStringA, (nvtxDomainHandle_t d, const char* m), (d, m), 1, 10,
               NULL)
NVTX_HOST_CALL(nvtxStringHandle_t, nvtxDomainRegisterStringW, (nvtxDomainHandle_t d, const wchar_t* m), (d, m), 1, 11,
               NULL)
NVTX_HOST_CALL(nvtxDomainHandle_t, nvtxDomainCreateA, (const char* m), (m), 1, 12, NULL)
NVTX_HOST_CALL(nvtxDomainHandle_t, nvtxDomainCreateW, (const wchar_t* m), (m), 1, 13, NULL)
NVTX_HOST_VOID(nvtxDomainDestroy, (nvtxDomainHandle_t d), (d), 1, 14)

#ifdef __cplusplus
}
#endif
#endif
