// MPI-IO, and the few other calls that may take long: time of class mpi_other.
// Collective file operations synchronise as far as the library likes, so they are
// no collectives here. Queries that are answered from the handle are not wrapped.

#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

Shape Moved(MPI_Count count, MPI_Datatype type) {
  return Elements(static_cast<std::uint64_t>(count > 0 ? count : 0), type);
}

// `shape` is called after the operation.
template <typename ShapeOf, typename Call>
int FileCall(MpiOp op, MPI_File file, ShapeOf&& shape, Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  Comm* comm = OwnerOf(HandleOf(file));
  Blocking blocking(op);
  const int result = call();
  const std::uint64_t end = blocking.End();
  WriteOperation(op, result, 0, blocking.begin(), end, 0, NumberOf(comm), 0, shape());
  return result;
}

template <typename ShapeOf, typename Call>
int FilePost(MpiOp op, MPI_File file, MPI_Request* request, ShapeOf&& shape, Call&& call) {
  if (!Active() || !ring::Recording()) return call();
  Comm* comm = OwnerOf(HandleOf(file));
  Blocking blocking(op);  // Some libraries move all data in this call.
  const int result = call();
  const std::uint64_t end = blocking.End();
  WriteOperation(op, result, 0, blocking.begin(), end, HandleOf(*request), NumberOf(comm), 0, shape());
  return result;
}

template <typename Call>
int OtherPost(MpiOp op, MPI_Request* request, Call&& call) {
  return FilePost(
      op, MPI_File{}, request, [] { return Shape{}; }, call);
}
template <typename Call>
int OtherCall(MpiOp op, Call&& call) {
  return FileCall(
      op, MPI_File{}, [] { return Shape{}; }, call);
}

}  // namespace

#define LS_ARGS(...) __VA_ARGS__
#define LS_FILE(name, parameters, arguments, ...)                           \
  LS_EXPORT int LS_WRAPPER(File_##name)(MPI_File file LS_ARGS parameters) { \
    return FileCall(                                                        \
        MpiOp::kFile_##name, file, [&] { return __VA_ARGS__; },             \
        [&] { return LS_REAL(File_##name, file LS_ARGS arguments); });      \
  }
#define LS_FILE_POST(name, parameters, arguments)                                                  \
  LS_EXPORT int LS_WRAPPER(File_##name)(MPI_File file LS_ARGS parameters, MPI_Request * request) { \
    return FilePost(                                                                               \
        MpiOp::kFile_##name, file, request, [&] { return Moved(count, type); },                    \
        [&] { return LS_REAL(File_##name, file LS_ARGS arguments, request); });                    \
  }

// The forms of a read and a write: at an explicit offset, at the file pointer.
#define LS_READ_AT(name)                                                                                    \
  LS_FILE(name, (, MPI_Offset offset, void* buffer, LS_COUNT count, MPI_Datatype type, MPI_Status* status), \
          (, offset, buffer, count, type, status), Moved(count, type))
#define LS_WRITE_AT(name)                                                                                         \
  LS_FILE(name, (, MPI_Offset offset, const void* buffer, LS_COUNT count, MPI_Datatype type, MPI_Status* status), \
          (, offset, buffer, count, type, status), Moved(count, type))
#define LS_READ(name)                                                                    \
  LS_FILE(name, (, void* buffer, LS_COUNT count, MPI_Datatype type, MPI_Status* status), \
          (, buffer, count, type, status), Moved(count, type))
#define LS_WRITE(name)                                                                         \
  LS_FILE(name, (, const void* buffer, LS_COUNT count, MPI_Datatype type, MPI_Status* status), \
          (, buffer, count, type, status), Moved(count, type))

#include "comms/pmpi/count_forms.h"
#include "comms/pmpi/file_forms.h"
#if LS_LARGE_COUNTS
#define LS_LARGE 1
#include "comms/pmpi/count_forms.h"
#include "comms/pmpi/file_forms.h"
#undef LS_LARGE
#include "comms/pmpi/count_forms.h"
#endif

LS_FILE(read_at_all_end, (, void* buffer, MPI_Status* status), (, buffer, status), Shape{})
LS_FILE(write_at_all_end, (, const void* buffer, MPI_Status* status), (, buffer, status), Shape{})
LS_FILE(read_all_end, (, void* buffer, MPI_Status* status), (, buffer, status), Shape{})
LS_FILE(write_all_end, (, const void* buffer, MPI_Status* status), (, buffer, status), Shape{})
LS_FILE(read_ordered_end, (, void* buffer, MPI_Status* status), (, buffer, status), Shape{})
LS_FILE(write_ordered_end, (, const void* buffer, MPI_Status* status), (, buffer, status), Shape{})

LS_FILE(set_size, (, MPI_Offset size), (, size), Shape{})
LS_FILE(preallocate, (, MPI_Offset size), (, size), Shape{})
LS_FILE(get_size, (, MPI_Offset* size), (, size), Shape{})
LS_FILE(set_info, (, MPI_Info info), (, info), Shape{})
LS_FILE(sync, (), (), Shape{})
LS_FILE(set_atomicity, (, int flag), (, flag), Shape{})
LS_FILE(seek, (, MPI_Offset offset, int whence), (, offset, whence), Shape{})
LS_FILE(seek_shared, (, MPI_Offset offset, int whence), (, offset, whence), Shape{})
LS_FILE(get_position_shared, (, MPI_Offset* offset), (, offset), Shape{})
LS_FILE(set_view,
        (, MPI_Offset offset, MPI_Datatype etype, MPI_Datatype filetype, const char* representation, MPI_Info info),
        (, offset, etype, filetype, representation, info), Shape{})

LS_EXPORT int MPI_File_open(MPI_Comm comm, const char* name, int mode, MPI_Info info, MPI_File* file) {
  if (!Active()) return LS_PMPI(File_open, comm, name, mode, info, file);
  Comm* known = KnownComm(comm);
  Blocking blocking(MpiOp::kFile_open);
  const int result = LS_PMPI(File_open, comm, name, mode, info, file);
  const std::uint64_t end = blocking.End();
  if (result == MPI_SUCCESS) RememberOwner(HandleOf(*file), known);
  return WriteCall(MpiOp::kFile_open, result, blocking.begin(), end, known);
}

LS_EXPORT int MPI_File_close(MPI_File* file) {
  if (!Active()) return LS_PMPI(File_close, file);
  Comm* known = OwnerOf(HandleOf(*file));
  ForgetOwner(HandleOf(*file));
  Blocking blocking(MpiOp::kFile_close);
  const int result = LS_PMPI(File_close, file);
  const std::uint64_t end = blocking.End();
  return WriteCall(MpiOp::kFile_close, result, blocking.begin(), end, known);
}

#define LS_OTHER(name, parameters, arguments)                                           \
  LS_EXPORT int MPI_##name(LS_ARGS parameters) {                                        \
    return OtherCall(MpiOp::k##name, [&] { return LS_PMPI(name, LS_ARGS arguments); }); \
  }

LS_OTHER(File_delete, (const char* name, MPI_Info info), (name, info))
// Other calls that may take long: detaching waits for buffered messages, memory is registered with the network, names
// are requested from another process.
LS_OTHER(Buffer_attach, (void* buffer, int size), (buffer, size))
LS_OTHER(Buffer_detach, (void* buffer, int* size), (buffer, size))
#if LS_LARGE_COUNTS
LS_EXPORT int MPI_Buffer_attach_c(void* buffer, MPI_Count size) {
  return OtherCall(MpiOp::kBuffer_attach, [&] { return LS_PMPI(Buffer_attach_c, buffer, size); });
}
LS_EXPORT int MPI_Buffer_detach_c(void* buffer, MPI_Count* size) {
  return OtherCall(MpiOp::kBuffer_detach, [&] { return LS_PMPI(Buffer_detach_c, buffer, size); });
}
#endif
// MPI 4.1: buffers of a communicator or a session. Flushing waits as detaching does.
LS_OTHER(Buffer_flush, (), ())
LS_OTHER(Comm_attach_buffer, (MPI_Comm comm, void* buffer, int size), (comm, buffer, size))
LS_OTHER(Comm_detach_buffer, (MPI_Comm comm, void* buffer, int* size), (comm, buffer, size))
LS_OTHER(Comm_flush_buffer, (MPI_Comm comm), (comm))
LS_OTHER(Session_attach_buffer, (MPI_Session session, void* buffer, int size), (session, buffer, size))
LS_OTHER(Session_detach_buffer, (MPI_Session session, void* buffer, int* size), (session, buffer, size))
LS_OTHER(Session_flush_buffer, (MPI_Session session), (session))
LS_EXPORT int MPI_Comm_attach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count size) {
  return OtherCall(MpiOp::kComm_attach_buffer, [&] { return LS_PMPI(Comm_attach_buffer_c, comm, buffer, size); });
}
LS_EXPORT int MPI_Comm_detach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count* size) {
  return OtherCall(MpiOp::kComm_detach_buffer, [&] { return LS_PMPI(Comm_detach_buffer_c, comm, buffer, size); });
}
LS_EXPORT int MPI_Session_attach_buffer_c(MPI_Session session, void* buffer, MPI_Count size) {
  return OtherCall(MpiOp::kSession_attach_buffer,
                   [&] { return LS_PMPI(Session_attach_buffer_c, session, buffer, size); });
}
LS_EXPORT int MPI_Session_detach_buffer_c(MPI_Session session, void* buffer, MPI_Count* size) {
  return OtherCall(MpiOp::kSession_detach_buffer,
                   [&] { return LS_PMPI(Session_detach_buffer_c, session, buffer, size); });
}
LS_EXPORT int MPI_Buffer_iflush(MPI_Request* request) {
  return OtherPost(MpiOp::kBuffer_iflush, request, [&] { return LS_PMPI(Buffer_iflush, request); });
}
LS_EXPORT int MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request) {
  return OtherPost(MpiOp::kComm_iflush_buffer, request, [&] { return LS_PMPI(Comm_iflush_buffer, comm, request); });
}
LS_EXPORT int MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request) {
  return OtherPost(MpiOp::kSession_iflush_buffer, request,
                   [&] { return LS_PMPI(Session_iflush_buffer, session, request); });
}

LS_OTHER(Alloc_mem, (MPI_Aint size, MPI_Info info, void* base), (size, info, base))
LS_OTHER(Free_mem, (void* base), (base))
LS_OTHER(Publish_name, (const char* service, MPI_Info info, const char* port), (service, info, port))
LS_OTHER(Unpublish_name, (const char* service, MPI_Info info, const char* port), (service, info, port))
LS_OTHER(Lookup_name, (const char* service, MPI_Info info, char* port), (service, info, port))
LS_OTHER(Open_port, (MPI_Info info, char* port), (info, port))
LS_OTHER(Close_port, (const char* port), (port))

}  // namespace lockstep::pmpi
