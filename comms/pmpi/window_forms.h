// One-sided operations that have counts, and the making of windows, whose unit is as wide as displacements. Included by
// windows.cc once for each width (count_forms.h); no include guard.

LS_EXPORT int LS_WRAPPER(Win_create)(void* base, MPI_Aint size, LS_DISPLACEMENT unit, MPI_Info info, MPI_Comm comm,
                                     MPI_Win* window) {
  return Make(MpiOp::kWin_create, comm, window,
              [&] { return LS_REAL(Win_create, base, size, unit, info, comm, window); });
}
LS_EXPORT int LS_WRAPPER(Win_allocate)(MPI_Aint size, LS_DISPLACEMENT unit, MPI_Info info, MPI_Comm comm, void* base,
                                       MPI_Win* window) {
  return Make(MpiOp::kWin_allocate, comm, window,
              [&] { return LS_REAL(Win_allocate, size, unit, info, comm, base, window); });
}
LS_EXPORT int LS_WRAPPER(Win_allocate_shared)(MPI_Aint size, LS_DISPLACEMENT unit, MPI_Info info, MPI_Comm comm,
                                              void* base, MPI_Win* window) {
  return Make(MpiOp::kWin_allocate_shared, comm, window,
              [&] { return LS_REAL(Win_allocate_shared, size, unit, info, comm, base, window); });
}

LS_TRANSFERS(Put, Rput, count, type,
             (const void* origin, LS_COUNT count, MPI_Datatype type, int target, MPI_Aint offset, LS_COUNT target_count,
              MPI_Datatype target_type),
             (origin, count, type, target, offset, target_count, target_type))
LS_TRANSFERS(Get, Rget, count, type,
             (void* origin, LS_COUNT count, MPI_Datatype type, int target, MPI_Aint offset, LS_COUNT target_count,
              MPI_Datatype target_type),
             (origin, count, type, target, offset, target_count, target_type))
LS_TRANSFERS(Accumulate, Raccumulate, count, type,
             (const void* origin, LS_COUNT count, MPI_Datatype type, int target, MPI_Aint offset, LS_COUNT target_count,
              MPI_Datatype target_type, MPI_Op op),
             (origin, count, type, target, offset, target_count, target_type, op))
LS_TRANSFERS(Get_accumulate, Rget_accumulate, result_count, result_type,
             (const void* origin, LS_COUNT count, MPI_Datatype type, void* result, LS_COUNT result_count,
              MPI_Datatype result_type, int target, MPI_Aint offset, LS_COUNT target_count, MPI_Datatype target_type,
              MPI_Op op),
             (origin, count, type, result, result_count, result_type, target, offset, target_count, target_type, op))
