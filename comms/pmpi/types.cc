// Datatypes: size and element type of the predefined ones by handle, without a call. The size of derived ones is
// queried each time, because their handles are reused.

#include "comms/pmpi/state.h"
#include "core/data_type_name.h"

namespace lockstep::pmpi {
namespace {

// Open MPI's predefined handles are found by name, those of the other ABIs are constants.
#if LS_ABI_OPEN_MPI
using Named = const char*;
#define LS_TYPE(symbol, constant) #symbol
#else
using Named = MPI_Datatype;
#define LS_TYPE(symbol, constant) constant
#ifndef MPI_REAL2  // An optional type.
#define MPI_REAL2 MPI_DATATYPE_NULL
#endif
#endif
struct Predefined {
  Named named;
  DataType type;
};
const Predefined kPredefined[] = {
    {LS_TYPE(ompi_mpi_char, MPI_CHAR), DataType::kInt8},
    {LS_TYPE(ompi_mpi_signed_char, MPI_SIGNED_CHAR), DataType::kInt8},
    {LS_TYPE(ompi_mpi_int8_t, MPI_INT8_T), DataType::kInt8},
    {LS_TYPE(ompi_mpi_character, MPI_CHARACTER), DataType::kInt8},
    {LS_TYPE(ompi_mpi_unsigned_char, MPI_UNSIGNED_CHAR), DataType::kUint8},
    {LS_TYPE(ompi_mpi_uint8_t, MPI_UINT8_T), DataType::kUint8},
    {LS_TYPE(ompi_mpi_c_bool, MPI_C_BOOL), DataType::kUint8},
    {LS_TYPE(ompi_mpi_cxx_bool, MPI_CXX_BOOL), DataType::kUint8},
    {LS_TYPE(ompi_mpi_byte, MPI_BYTE), DataType::kByte},
    {LS_TYPE(ompi_mpi_packed, MPI_PACKED), DataType::kByte},
    {LS_TYPE(ompi_mpi_short, MPI_SHORT), DataType::kInt16},
    {LS_TYPE(ompi_mpi_int16_t, MPI_INT16_T), DataType::kInt16},
    {LS_TYPE(ompi_mpi_unsigned_short, MPI_UNSIGNED_SHORT), DataType::kUint16},
    {LS_TYPE(ompi_mpi_uint16_t, MPI_UINT16_T), DataType::kUint16},
    {LS_TYPE(ompi_mpi_int, MPI_INT), DataType::kInt32},
    {LS_TYPE(ompi_mpi_int32_t, MPI_INT32_T), DataType::kInt32},
    {LS_TYPE(ompi_mpi_wchar, MPI_WCHAR), DataType::kInt32},
    {LS_TYPE(ompi_mpi_integer, MPI_INTEGER), DataType::kInt32},
    {LS_TYPE(ompi_mpi_logical, MPI_LOGICAL), DataType::kInt32},
    {LS_TYPE(ompi_mpi_unsigned, MPI_UNSIGNED), DataType::kUint32},
    {LS_TYPE(ompi_mpi_uint32_t, MPI_UINT32_T), DataType::kUint32},
    {LS_TYPE(ompi_mpi_long, MPI_LONG), DataType::kInt64},
    {LS_TYPE(ompi_mpi_long_long_int, MPI_LONG_LONG_INT), DataType::kInt64},
    {LS_TYPE(ompi_mpi_int64_t, MPI_INT64_T), DataType::kInt64},
    {LS_TYPE(ompi_mpi_aint, MPI_AINT), DataType::kInt64},
    {LS_TYPE(ompi_mpi_offset, MPI_OFFSET), DataType::kInt64},
    {LS_TYPE(ompi_mpi_count, MPI_COUNT), DataType::kInt64},
    {LS_TYPE(ompi_mpi_integer8, MPI_INTEGER8), DataType::kInt64},
    {LS_TYPE(ompi_mpi_unsigned_long, MPI_UNSIGNED_LONG), DataType::kUint64},
    {LS_TYPE(ompi_mpi_unsigned_long_long, MPI_UNSIGNED_LONG_LONG), DataType::kUint64},
    {LS_TYPE(ompi_mpi_uint64_t, MPI_UINT64_T), DataType::kUint64},
    {LS_TYPE(ompi_mpi_float, MPI_FLOAT), DataType::kFloat32},
    {LS_TYPE(ompi_mpi_real, MPI_REAL), DataType::kFloat32},
    {LS_TYPE(ompi_mpi_real4, MPI_REAL4), DataType::kFloat32},
    {LS_TYPE(ompi_mpi_real2, MPI_REAL2), DataType::kFloat16},
    {LS_TYPE(ompi_mpi_double, MPI_DOUBLE), DataType::kFloat64},
    {LS_TYPE(ompi_mpi_dblprec, MPI_DOUBLE_PRECISION), DataType::kFloat64},
    {LS_TYPE(ompi_mpi_real8, MPI_REAL8), DataType::kFloat64},
    {LS_TYPE(ompi_mpix_short_float, MPI_DATATYPE_NULL), DataType::kFloat16},
    {LS_TYPE(ompi_mpix_c_float16, MPI_DATATYPE_NULL), DataType::kFloat16},
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

#if LS_ABI_OPEN_MPI
MPI_Datatype Find(const char* symbol) { return static_cast<MPI_Datatype>(FindHandle(g_table.library, symbol)); }
#else
MPI_Datatype Find(MPI_Datatype constant) { return constant; }
#endif

// Without a call where the handle says it: another release may not have the type, and asking for one that it does not
// have ends the job.
int SizeOf(MPI_Datatype type, [[maybe_unused]] DataType kind) {
#if LS_ABI_MPICH
  // mpir_datatype.h: builtin types have kind 0x4c and their size in the second byte.
  return (static_cast<std::uint32_t>(type) >> 24) == 0x4c ? type >> 8 & 0xff : 0;
#elif LS_ABI_STANDARD
  // MPI 5.0, 20.4.2: types of fixed size have the logarithm of it in bits 3 to 5. Those of C have the size that they
  // have here; Fortran's (0x218 to 0x21e) are the compiler's, and asked for when they are used.
  const auto number = reinterpret_cast<std::uintptr_t>(type);
  if ((number & 0x340) == 0x240) return 1 << (number >> 3 & 7);
  if (number >= 0x218 && number <= 0x21e) return 0;
  return static_cast<int>(ElementBytes(kind));
#else
  int size = 0;
  return Pmpi().Type_size(type, &size) == MPI_SUCCESS ? size : 0;
#endif
}

}  // namespace

void StartTypes() {
  for (const Predefined& each : kPredefined) {
    const MPI_Datatype type = Find(each.named);
    if (type == MPI_Datatype{} || type == Pmpi().type_null) continue;
    const int size = SizeOf(type, each.type);
    if (size <= 0) continue;
    std::uint32_t slot = SlotOf(type);
    while (g_slots[slot].handle != MPI_Datatype{}) slot = (slot + 1) % kSlots;
    // MPI_LONG and the Fortran types have the width of the platform and the compiler.
    DataType kind = each.type;
    if (kind == DataType::kInt64 && size == 4) kind = DataType::kInt32;
    if (kind == DataType::kUint64 && size == 4) kind = DataType::kUint32;
    if (kind == DataType::kInt32 && size == 8) kind = DataType::kInt64;
    if (kind == DataType::kFloat32 && size == 8) kind = DataType::kFloat64;
    g_slots[slot] = {type, {static_cast<std::uint32_t>(size), kind}};
  }
}

TypeInfo TypeOf(MPI_Datatype type) {
  for (std::uint32_t slot = SlotOf(type); g_slots[slot].handle != MPI_Datatype{}; slot = (slot + 1) % kSlots)
    if (g_slots[slot].handle == type) return g_slots[slot].info;
  int size = 0;
  if (type == MPI_Datatype{} || type == Pmpi().type_null || Pmpi().Type_size(type, &size) != MPI_SUCCESS)
    return {0, DataType::kUnknown};
  return {static_cast<std::uint32_t>(size < 0 ? 0 : size), DataType::kDerived};
}

}  // namespace lockstep::pmpi
