// NCCL's collectives with settings of their own (2.32): twins of those in calls.cc.

#include "comms/nccl/traced.h"

using namespace lockstep;
using namespace lockstep::nccl;

LS_EXPORT Result ncclAllReduceConfig(const void* send, void* receive, std::size_t count, int datatype, int operation,
                                     CommHandle comm, Stream stream, const void* config) {
  Shape shape = ShapeOf("ncclAllReduceConfig", CollectiveKind::kAllReduce, {count, datatype, send}, comm, stream);
  shape.reduction = ReductionOf(operation);
  return Traced(shape, LS_REAL(ncclAllReduceConfig, send, receive, count, datatype, operation, comm, stream, config));
}

LS_EXPORT Result ncclAllGatherConfig(const void* send, void* receive, std::size_t count, int datatype, CommHandle comm,
                                     Stream stream, const void* config) {
  return Traced(ShapeOf("ncclAllGatherConfig", CollectiveKind::kAllGather, {count, datatype, send}, comm, stream),
                LS_REAL(ncclAllGatherConfig, send, receive, count, datatype, comm, stream, config));
}

LS_EXPORT Result ncclReduceScatterConfig(const void* send, void* receive, std::size_t count, int datatype,
                                         int operation, CommHandle comm, Stream stream, const void* config) {
  Shape shape =
      ShapeOf("ncclReduceScatterConfig", CollectiveKind::kReduceScatter, {count, datatype, send}, comm, stream);
  shape.reduction = ReductionOf(operation);
  return Traced(shape,
                LS_REAL(ncclReduceScatterConfig, send, receive, count, datatype, operation, comm, stream, config));
}

LS_EXPORT Result ncclBroadcastConfig(const void* send, void* receive, std::size_t count, int datatype, int root,
                                     CommHandle comm, Stream stream, const void* config) {
  Shape shape = ShapeOf("ncclBroadcastConfig", CollectiveKind::kBroadcast,
                        {count, datatype, send != nullptr ? send : receive}, comm, stream);
  shape.peer = root;
  return Traced(shape, LS_REAL(ncclBroadcastConfig, send, receive, count, datatype, root, comm, stream, config));
}

LS_EXPORT Result ncclReduceConfig(const void* send, void* receive, std::size_t count, int datatype, int operation,
                                  int root, CommHandle comm, Stream stream, const void* config) {
  Shape shape = ShapeOf("ncclReduceConfig", CollectiveKind::kReduce, {count, datatype, send}, comm, stream);
  shape.reduction = ReductionOf(operation);
  shape.peer = root;
  return Traced(shape,
                LS_REAL(ncclReduceConfig, send, receive, count, datatype, operation, root, comm, stream, config));
}

LS_EXPORT Result ncclAlltoAllConfig(const void* send, void* receive, std::size_t count, int datatype, CommHandle comm,
                                    Stream stream, const void* config) {
  return Traced(ShapeOf("ncclAlltoAllConfig", CollectiveKind::kAllToAll, {count, datatype, send}, comm, stream),
                LS_REAL(ncclAlltoAllConfig, send, receive, count, datatype, comm, stream, config));
}

LS_EXPORT Result ncclGatherConfig(const void* send, void* receive, std::size_t count, int datatype, int root,
                                  CommHandle comm, Stream stream, const void* config) {
  Shape shape = ShapeOf("ncclGatherConfig", CollectiveKind::kGather, {count, datatype, send}, comm, stream);
  shape.peer = root;
  return Traced(shape, LS_REAL(ncclGatherConfig, send, receive, count, datatype, root, comm, stream, config));
}

LS_EXPORT Result ncclScatterConfig(const void* send, void* receive, std::size_t count, int datatype, int root,
                                   CommHandle comm, Stream stream, const void* config) {
  Shape shape = ShapeOf("ncclScatterConfig", CollectiveKind::kScatter,
                        {count, datatype, send != nullptr ? send : receive}, comm, stream);
  shape.peer = root;
  return Traced(shape, LS_REAL(ncclScatterConfig, send, receive, count, datatype, root, comm, stream, config));
}
