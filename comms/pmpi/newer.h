#pragma once
// Declarations of what MPI 4.0 and 4.1 added, for an mpi.h that is older than the library may be: the wrappers for Open
// MPI are compiled with that of version 4 and record version 5, those for MPICH with 4.0's and record 5. The types are
// the same in all versions of an ABI. Included by abi.h.

// Open MPI 5 declares what it has of MPI 4.0 and says 3.1.
#if MPI_VERSION < 4 && !(LS_ABI_OPEN_MPI && OMPI_MAJOR_VERSION >= 5)
#if LS_ABI_OPEN_MPI
typedef struct ompi_instance_t* MPI_Session;
#else
typedef int MPI_Session;
#endif
extern "C" {
int MPI_Isendrecv(const void* send, int sendcount, MPI_Datatype sendtype, int dest, int sendtag, void* recv,
                  int recvcount, MPI_Datatype recvtype, int source, int recvtag, MPI_Comm comm, MPI_Request* request);
int MPI_Isendrecv_replace(void* buffer, int count, MPI_Datatype type, int dest, int sendtag, int source, int recvtag,
                          MPI_Comm comm, MPI_Request* request);
int MPI_Psend_init(const void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int dest, int tag,
                   MPI_Comm comm, MPI_Info info, MPI_Request* request);
int MPI_Precv_init(void* buffer, int partitions, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                   MPI_Info info, MPI_Request* request);
int MPI_Pready(int partition, MPI_Request request);
int MPI_Pready_range(int first, int last, MPI_Request request);
int MPI_Pready_list(int length, const int partitions[], MPI_Request request);
int MPI_Parrived(MPI_Request request, int partition, int* flag);
int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session);
int MPI_Session_finalize(MPI_Session* session);
int MPI_Session_get_num_psets(MPI_Session session, MPI_Info info, int* count);
int MPI_Session_get_nth_pset(MPI_Session session, MPI_Info info, int n, int* length, char* name);
int MPI_Session_get_pset_info(MPI_Session session, const char* name, MPI_Info* info);
int MPI_Group_from_session_pset(MPI_Session session, const char* name, MPI_Group* group);
int MPI_Comm_create_from_group(MPI_Group group, const char* tag, MPI_Info info, MPI_Errhandler errhandler,
                               MPI_Comm* created);
int MPI_Intercomm_create_from_groups(MPI_Group local, int local_leader, MPI_Group remote, int remote_leader,
                                     const char* tag, MPI_Info info, MPI_Errhandler errhandler, MPI_Comm* created);
int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* created, MPI_Request* request);
}
#endif

#if MPI_VERSION * 10 + MPI_SUBVERSION < 41
extern "C" {
int MPI_Request_get_status_all(int count, const MPI_Request requests[], int* flag, MPI_Status statuses[]);
int MPI_Request_get_status_any(int count, const MPI_Request requests[], int* index, int* flag, MPI_Status* status);
int MPI_Request_get_status_some(int count, const MPI_Request requests[], int* completed, int indices[],
                                MPI_Status statuses[]);
int MPI_Buffer_flush();
int MPI_Buffer_iflush(MPI_Request* request);
int MPI_Comm_attach_buffer(MPI_Comm comm, void* buffer, int size);
int MPI_Comm_attach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count size);
int MPI_Comm_detach_buffer(MPI_Comm comm, void* buffer, int* size);
int MPI_Comm_detach_buffer_c(MPI_Comm comm, void* buffer, MPI_Count* size);
int MPI_Comm_flush_buffer(MPI_Comm comm);
int MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request);
int MPI_Session_attach_buffer(MPI_Session session, void* buffer, int size);
int MPI_Session_attach_buffer_c(MPI_Session session, void* buffer, MPI_Count size);
int MPI_Session_detach_buffer(MPI_Session session, void* buffer, int* size);
int MPI_Session_detach_buffer_c(MPI_Session session, void* buffer, MPI_Count* size);
int MPI_Session_flush_buffer(MPI_Session session);
int MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request);
}
#endif
