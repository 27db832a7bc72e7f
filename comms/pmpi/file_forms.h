// File operations that have counts. Included by files.cc once for each width of counts (count_forms.h); no include
// guard.

LS_READ_AT(read_at)
LS_READ_AT(read_at_all)
LS_WRITE_AT(write_at)
LS_WRITE_AT(write_at_all)
LS_READ(read)
LS_READ(read_all)
LS_READ(read_shared)
LS_READ(read_ordered)
LS_WRITE(write)
LS_WRITE(write_all)
LS_WRITE(write_shared)
LS_WRITE(write_ordered)

LS_FILE(read_at_all_begin, (, MPI_Offset offset, void* buffer, LS_COUNT count, MPI_Datatype type),
        (, offset, buffer, count, type), Moved(count, type))
LS_FILE(write_at_all_begin, (, MPI_Offset offset, const void* buffer, LS_COUNT count, MPI_Datatype type),
        (, offset, buffer, count, type), Moved(count, type))
LS_FILE(read_all_begin, (, void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type),
        Moved(count, type))
LS_FILE(write_all_begin, (, const void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type),
        Moved(count, type))
LS_FILE(read_ordered_begin, (, void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type),
        Moved(count, type))
LS_FILE(write_ordered_begin, (, const void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type),
        Moved(count, type))

LS_FILE_POST(iread_at, (, MPI_Offset offset, void* buffer, LS_COUNT count, MPI_Datatype type),
             (, offset, buffer, count, type))
LS_FILE_POST(iread_at_all, (, MPI_Offset offset, void* buffer, LS_COUNT count, MPI_Datatype type),
             (, offset, buffer, count, type))
LS_FILE_POST(iwrite_at, (, MPI_Offset offset, const void* buffer, LS_COUNT count, MPI_Datatype type),
             (, offset, buffer, count, type))
LS_FILE_POST(iwrite_at_all, (, MPI_Offset offset, const void* buffer, LS_COUNT count, MPI_Datatype type),
             (, offset, buffer, count, type))
LS_FILE_POST(iread, (, void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type))
LS_FILE_POST(iread_all, (, void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type))
LS_FILE_POST(iread_shared, (, void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type))
LS_FILE_POST(iwrite, (, const void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type))
LS_FILE_POST(iwrite_all, (, const void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type))
LS_FILE_POST(iwrite_shared, (, const void* buffer, LS_COUNT count, MPI_Datatype type), (, buffer, count, type))
