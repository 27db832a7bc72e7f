// Datatypes: size and element type of the predefined ones by handle, without a call. The size of derived ones is
// queried each time, because their handles are reused.

#include <dlfcn.h>

#include "comms/pmpi/state.h"

namespace lockstep::pmpi {
namespace {

struct Predefined {
  const char* symbol;
  DataType type;
};
constexpr Predefined kPredefined[] = {
    {"ompi_mpi_char", DataType::kInt8},
    {"ompi_mpi_signed_char", DataType::kInt8},
    {"ompi_mpi_int8_t", DataType::kInt8},
    {"ompi_mpi_character", DataType::kInt8},
    {"ompi_mpi_unsigned_char", DataType::kUint8},
    {"ompi_mpi_uint8_t", DataType::kUint8},
    {"ompi_mpi_c_bool", DataType::kUint8},
    {"ompi_mpi_cxx_bool", DataType::kUint8},
    {"ompi_mpi_byte", DataType::kByte},
    {"ompi_mpi_packed", DataType::kByte},
    {"ompi_mpi_short", DataType::kInt16},
    {"ompi_mpi_int16_t", DataType::kInt16},
    {"ompi_mpi_unsigned_short", DataType::kUint16},
    {"ompi_mpi_uint16_t", DataType::kUint16},
    {"ompi_mpi_int", DataType::kInt32},
    {"ompi_mpi_int32_t", DataType::kInt32},
    {"ompi_mpi_wchar", DataType::kInt32},
    {"ompi_mpi_integer", DataType::kInt32},
    {"ompi_mpi_logical", DataType::kInt32},
    {"ompi_mpi_unsigned", DataType::kUint32},
    {"ompi_mpi_uint32_t", DataType::kUint32},
    {"ompi_mpi_long", DataType::kInt64},
    {"ompi_mpi_long_long_int", DataType::kInt64},
    {"ompi_mpi_int64_t", DataType::kInt64},
    {"ompi_mpi_aint", DataType::kInt64},
    {"ompi_mpi_offset", DataType::kInt64},
    {"ompi_mpi_count", DataType::kInt64},
    {"ompi_mpi_integer8", DataType::kInt64},
    {"ompi_mpi_unsigned_long", DataType::kUint64},
    {"ompi_mpi_unsigned_long_long", DataType::kUint64},
    {"ompi_mpi_uint64_t", DataType::kUint64},
    {"ompi_mpi_float", DataType::kFloat32},
    {"ompi_mpi_real", DataType::kFloat32},
    {"ompi_mpi_real4", DataType::kFloat32},
    {"ompi_mpi_real2", DataType::kFloat16},
    {"ompi_mpi_double", DataType::kFloat64},
    {"ompi_mpi_dblprec", DataType::kFloat64},
    {"ompi_mpi_real8", DataType::kFloat64},
    {"ompi_mpix_short_float", DataType::kFloat16},
    {"ompi_mpix_c_float16", DataType::kFloat16},
};

constexpr std::uint32_t kSlots = 256;
struct Slot {
  MPI_Datatype handle;
  TypeInfo info;
};
Slot g_slots[kSlots];  // Written once, before the first call is recorded.

std::uint32_t SlotOf(MPI_Datatype type) {
  return static_cast<std::uint32_t>((HandleOf(type) * 0x9e3779b97f4a7c15u) >> 56);
}

}  // namespace

void StartTypes() {
  void* library = dlopen("libmpi.so.40", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return;
  for (const Predefined& each : kPredefined) {
    auto* type = static_cast<MPI_Datatype>(FindHandle(library, each.symbol));
    int size = 0;
    if (type == nullptr || Pmpi().Type_size(type, &size) != MPI_SUCCESS || size <= 0) continue;
    std::uint32_t slot = SlotOf(type);
    while (g_slots[slot].handle != nullptr) slot = (slot + 1) % kSlots;
    // MPI_LONG and the Fortran types have the width of the platform and the compiler.
    DataType kind = each.type;
    if (kind == DataType::kInt64 && size == 4) kind = DataType::kInt32;
    if (kind == DataType::kUint64 && size == 4) kind = DataType::kUint32;
    if (kind == DataType::kInt32 && size == 8) kind = DataType::kInt64;
    if (kind == DataType::kFloat32 && size == 8) kind = DataType::kFloat64;
    g_slots[slot] = {type, {static_cast<std::uint32_t>(size), kind}};
  }
  dlclose(library);
}

TypeInfo TypeOf(MPI_Datatype type) {
  for (std::uint32_t slot = SlotOf(type); g_slots[slot].handle != nullptr; slot = (slot + 1) % kSlots)
    if (g_slots[slot].handle == type) return g_slots[slot].info;
  int size = 0;
  if (type == nullptr || type == Pmpi().type_null || Pmpi().Type_size(type, &size) != MPI_SUCCESS)
    return {0, DataType::kUnknown};
  return {static_cast<std::uint32_t>(size < 0 ? 0 : size), DataType::kDerived};
}

}  // namespace lockstep::pmpi
