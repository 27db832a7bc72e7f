#include "comms/c10d/torch_abi.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "core/collective.h"

namespace lockstep::c10d {
namespace {

// at::RecordFunctionCallback. Ten scopes (at::RecordScope); were there more, those behind would be off, and inputs not
// asked for.
constexpr std::size_t kScopes = 10, kUserScope = 7;
struct Callback {
  StartCallback start;
  EndCallback end;
  double sampling_probability;
  bool scopes[kScopes];
  bool needs_inputs, needs_outputs, needs_ids;
};

// std::vector and both layouts of std::string of libstdc++, as PyTorch returns them. Their memory goes back by the
// operator delete that PyTorch uses.
template <typename T>
struct Vector {
  T *begin, *end, *room;
};
struct String {
  char* text;
  std::size_t length;
  char local[16];
};
struct OldString {  // _GLIBCXX_USE_CXX11_ABI=0: PyTorch's wheels up to 2.5.
  char* text;
};

using Sizes = Vector<Vector<std::int64_t>>;
// Results of more than two words come back through a hidden pointer, the first argument of both forms.
struct Abi {
  std::uint64_t (*add_callback)(Callback);
  const char* (*name)(const RecordFunction*);
  void (*sizes)(Sizes* result, const RecordFunction&, bool flatten);
  void (*types)(Vector<String>* result, const RecordFunction&);
  void (*old_types)(Vector<OldString>* result, const RecordFunction&);
  void (*destroy_old_string)(OldString*);
  void (*free)(void*);
} g_abi;

int FindTorch(dl_phdr_info* library, std::size_t, void* found) {
  const char* slash = strrchr(library->dlpi_name, '/');
  // "libtorch_cpu.so.1.13" in Debian's build.
  if (slash == nullptr || strncmp(slash + 1, "libtorch_cpu.so", 15) != 0) return 0;
  *static_cast<const char**>(found) = library->dlpi_name;
  return 1;
}

template <typename Function>
void Find(void* library, const char* symbol, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, symbol));
}

bool Load() {
  const char* path = nullptr;
  dl_iterate_phdr(FindTorch, &path);
  if (path == nullptr) return false;
  void* library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
  if (library == nullptr) return false;
  Find(library, "_ZN2at17addGlobalCallbackENS_22RecordFunctionCallbackE", g_abi.add_callback);
  Find(library, "_ZNK2at14RecordFunction4nameEv", g_abi.name);
  Find(library, "_ZN5torch8profiler4impl10inputSizesERKN2at14RecordFunctionEb", g_abi.sizes);
  Find(library, "_ZN5torch8profiler4impl10inputTypesB5cxx11ERKN2at14RecordFunctionE", g_abi.types);
  Find(library, "_ZN5torch8profiler4impl10inputTypesERKN2at14RecordFunctionE", g_abi.old_types);
  Find(library, "_ZNSsD1Ev", g_abi.destroy_old_string);
  Find(library, "_ZdlPv", g_abi.free);
  dlclose(library);  // PyTorch is never unloaded.
  return g_abi.add_callback != nullptr && g_abi.name != nullptr;
}

// As scalarTypeToTypeMeta names them.
DataType TypeOf(const char* name) {
  static constexpr struct {
    const char* name;
    DataType type;
  } kTypes[] = {{"float", DataType::kFloat32},
                {"double", DataType::kFloat64},
                {"c10::Half", DataType::kFloat16},
                {"c10::BFloat16", DataType::kBfloat16},
                {"long int", DataType::kInt64},
                {"long", DataType::kInt64},
                {"int", DataType::kInt32},
                {"short int", DataType::kInt16},
                {"short", DataType::kInt16},
                {"signed char", DataType::kInt8},
                {"unsigned char", DataType::kUint8},
                {"bool", DataType::kUint8},
                {"c10::Float8_e4m3fn", DataType::kFloat8e4m3},
                {"c10::Float8_e5m2", DataType::kFloat8e5m2}};
  for (const auto& entry : kTypes)
    if (strcmp(entry.name, name) == 0) return entry.type;
  return DataType::kUnknown;
}

// Of inputs that are tensors the name of the element type, of lists of tensors "TensorList" or the first one's, of
// others a name of their own.
struct TypeSum {
  DataType type = DataType::kUnknown;
  bool several = false;
  void Add(const char* name) {
    const DataType one = TypeOf(name);
    if (one == DataType::kUnknown) return;
    several |= type != DataType::kUnknown && type != one;
    type = one;
  }
  std::uint16_t dtype() const { return several ? 0 : static_cast<std::uint16_t>(type); }
};

std::uint16_t TypesOf(const RecordFunction& function) {
  TypeSum sum;
  if (g_abi.types != nullptr) {
    Vector<String> names;
    g_abi.types(&names, function);
    for (String* name = names.begin; name != names.end; ++name) {
      sum.Add(name->text);
      if (name->text != name->local) g_abi.free(name->text);
    }
    if (names.begin != nullptr) g_abi.free(names.begin);
  } else if (g_abi.old_types != nullptr && g_abi.destroy_old_string != nullptr) {
    Vector<OldString> names;
    g_abi.old_types(&names, function);
    for (OldString* name = names.begin; name != names.end; ++name) {
      sum.Add(name->text);
      g_abi.destroy_old_string(name);
    }
    if (names.begin != nullptr) g_abi.free(names.begin);
  }
  return sum.dtype();
}

}  // namespace

void* ObserverContext::operator new(std::size_t bytes) noexcept { return malloc(bytes); }
void ObserverContext::operator delete(void* memory) noexcept { ::free(memory); }

bool Observe(StartCallback start, EndCallback end) {
  if (!Load()) return false;
  Callback callback{start, end, 1.0, {}, true, false, false};
  callback.scopes[kUserScope] = true;
  g_abi.add_callback(callback);
  return true;
}

const char* NameOf(const RecordFunction& function) {
  const char* name = g_abi.name(&function);
  return name == nullptr ? "" : name;
}

Inputs InputsOf(const RecordFunction& function) {
  Inputs inputs;
  if (g_abi.sizes == nullptr || g_abi.free == nullptr) return inputs;
  Sizes sizes;
  g_abi.sizes(&sizes, function, true);
  inputs.known = true;
  for (Vector<std::int64_t>* tensor = sizes.begin; tensor != sizes.end; ++tensor) {
    std::uint64_t elements = 1;
    for (const std::int64_t* size = tensor->begin; size != tensor->end; ++size)
      inputs.known &= *size >= 0 && !__builtin_mul_overflow(elements, static_cast<std::uint64_t>(*size), &elements);
    inputs.elements += elements;
    inputs.tensors += 1;
    if (tensor->begin != nullptr) g_abi.free(tensor->begin);
  }
  if (sizes.begin != nullptr) g_abi.free(sizes.begin);
  inputs.dtype = TypesOf(function);
  return inputs;
}

}  // namespace lockstep::c10d
