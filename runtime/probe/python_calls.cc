// The hooks' functions as builtin functions of Python's (runtime/python/_lockstep/probe.py). Through ctypes each call
// takes half a microsecond, and two where a training step has left the caches cold; a builtin takes a tenth of that.
//
// No header of Python is needed and nothing is linked: METH_FASTCALL and the functions used are in CPython's stable ABI
// since 3.10 and were the same from 3.7 on; they are found by their symbols, in the process that asks.

#include <dlfcn.h>
#include <string.h>

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime/probe/hooks.h"
#include "runtime/probe/own_python.h"
#include "runtime/probe/phases.h"

namespace lockstep::probe {
namespace {

struct Object;  // PyObject
using Call = Object* (*)(Object* self, Object* const* arguments, std::ptrdiff_t count);
struct Method {  // PyMethodDef
  const char* name;
  Call call;
  int flags;
  const char* text;
};
constexpr int kFastCall = 0x80;  // METH_FASTCALL

struct {
  const char* (*text)(Object*);                       // PyBytes_AsString
  long long (*integer)(Object*);                      // PyLong_AsLongLong
  unsigned long long (*ticks)(Object*);               // PyLong_AsUnsignedLongLong
  Object* (*make)(unsigned long long);                // PyLong_FromUnsignedLongLong
  Object* (*error)();                                 // PyErr_Occurred
  void (*set_error)(Object* kind, const char* text);  // PyErr_SetString
  void (*clear_error)();                              // PyErr_Clear
  const char* (*utf8)(Object*, std::ptrdiff_t*);      // PyUnicode_AsUTF8AndSize
  void (*keep)(Object*);                              // Py_IncRef
  void (*release)(Object*);                           // Py_DecRef
  Object** type_error;                                // PyExc_TypeError
} g_python;

template <typename T>
T Get(Object* object) {
  if constexpr (std::is_same_v<T, const char*>)
    return g_python.text(object);
  else if constexpr (std::is_same_v<T, const void*>)
    return object;
  else if constexpr (std::is_same_v<T, unsigned long long>)
    return g_python.ticks(object);
  else
    return static_cast<T>(g_python.integer(object));
}

Object* WrongNumber() {
  g_python.set_error(*g_python.type_error, "wrong number of arguments");
  return nullptr;
}

template <auto kFunction>
struct Builtin;
template <typename Result, typename... Arguments, Result (*kFunction)(Arguments...)>
struct Builtin<kFunction> {
  static Object* Run(Object*, Object* const* given, std::ptrdiff_t count) {
    if (count != sizeof...(Arguments)) return WrongNumber();
    return Run(given, std::index_sequence_for<Arguments...>());
  }
  template <std::size_t... i>
  static Object* Run([[maybe_unused]] Object* const* given, std::index_sequence<i...>) {
    const std::tuple<Arguments...> arguments{Get<Arguments>(given[i])...};
    if (sizeof...(Arguments) != 0 && g_python.error() != nullptr) return nullptr;
    if constexpr (std::is_void_v<Result>) {
      std::apply(kFunction, arguments);
      return g_python.make(0);
    } else {
      return g_python.make(std::apply(kFunction, arguments));
    }
  }
};

// What was kept. It is the object that Python lent, which is not constant.
void Release(const void* object) {
  if (object != nullptr) g_python.release(static_cast<Object*>(const_cast<void*>(object)));
}

// (label, its name) -> 1 if nothing was done, because facts have to be written before.
Object* RunLabelBegin(Object*, Object* const* given, std::ptrdiff_t count) {
  if (count != 2) return WrongNumber();
  const char* text = g_python.utf8(given[1], nullptr);
  if (text == nullptr) {  // PyTorch, which was given it before, has no use for it either.
    g_python.clear_error();
    return g_python.make(0);
  }
  const void* dropped = nullptr;
  const LabelBegun begun = BeginLabel(given[0], given[1], text, &dropped);
  if (begun == LabelBegun::kKept) g_python.keep(given[1]);
  Release(dropped);
  return g_python.make(begun == LabelBegun::kTellFirst ? 1 : 0);
}

Object* RunLabelEnd(Object*, Object* const* given, std::ptrdiff_t count) {
  if (count != 1) return WrongNumber();
  Release(EndLabel(given[0]));
  return g_python.make(0);
}

#define LS_BUILTIN(function) \
  Method { #function, Builtin < &function> ::Run, kFastCall, nullptr }
// Python keeps pointers to them.
Method g_methods[] = {LS_BUILTIN(lockstep_hook_range_begin),
                      LS_BUILTIN(lockstep_hook_range_end),
                      LS_BUILTIN(lockstep_hook_now),
                      LS_BUILTIN(lockstep_hook_step),
                      LS_BUILTIN(lockstep_hook_host_memory),
                      LS_BUILTIN(lockstep_hook_torch_enter),
                      LS_BUILTIN(lockstep_hook_torch_shown),
                      LS_BUILTIN(lockstep_hook_phase_begin),
                      LS_BUILTIN(lockstep_hook_phase_enter),
                      LS_BUILTIN(lockstep_hook_phase_end),
                      LS_BUILTIN(lockstep_hook_phase_since),
                      LS_BUILTIN(lockstep_hook_boundary),
                      LS_BUILTIN(lockstep_hook_first_optimizer),
                      {"label_begin", RunLabelBegin, kFastCall, nullptr},
                      {"label_end", RunLabelEnd, kFastCall, nullptr}};
#undef LS_BUILTIN

template <typename T>
bool Find(const char* symbol, T& into) {
  into = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, symbol));
  return into != nullptr;
}

bool FindPython() {
  return Find("PyBytes_AsString", g_python.text) && Find("PyLong_AsLongLong", g_python.integer) &&
         Find("PyLong_AsUnsignedLongLong", g_python.ticks) && Find("PyLong_FromUnsignedLongLong", g_python.make) &&
         Find("PyErr_Occurred", g_python.error) && Find("PyErr_SetString", g_python.set_error) &&
         Find("PyExc_TypeError", g_python.type_error) && Find("PyErr_Clear", g_python.clear_error) &&
         Find("PyUnicode_AsUTF8AndSize", g_python.utf8) && Find("Py_IncRef", g_python.keep) &&
         Find("Py_DecRef", g_python.release);
}

}  // namespace

extern "C" {

// The PyMethodDef of a function above; null for others, and where this Python lacks something. Text is bytes (a label's
// name is text), what is returned an integer. Thread: one at a time, with the interpreter's lock.
__attribute__((visibility("default"))) const void* lockstep_hook_python_call(const char* symbol) {
  static const bool found = FindPython();
  TheInterpreter();  // While dlsym may be called.
  if (!found) return nullptr;
  for (const Method& method : g_methods)
    if (strcmp(method.name, symbol) == 0) return &method;
  return nullptr;
}
}

}  // namespace lockstep::probe
