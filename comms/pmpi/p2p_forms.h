// Messages that have counts, except for the probes. Included by p2p.cc once for each width of counts (count_forms.h);
// no include guard.

LS_SEND(Send)
LS_SEND(Bsend)
LS_SEND(Ssend)
LS_SEND(Rsend)
LS_POST(Isend, const void*, false)
LS_POST(Ibsend, const void*, false)
LS_POST(Issend, const void*, false)
LS_POST(Irsend, const void*, false)
LS_POST(Irecv, void*, false)
LS_POST(Send_init, const void*, true)
LS_POST(Bsend_init, const void*, true)
LS_POST(Ssend_init, const void*, true)
LS_POST(Rsend_init, const void*, true)
LS_POST(Recv_init, void*, true)

LS_EXPORT int LS_WRAPPER(Recv)(void* buffer, LS_COUNT count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                               MPI_Status* status) {
  return Receive(MpiOp::kRecv, comm, Active() ? Message(count, type, source, tag) : Shape{}, status,
                 [&](MPI_Status* used) { return LS_REAL(Recv, buffer, count, type, source, tag, comm, used); });
}

LS_EXPORT int LS_WRAPPER(Mrecv)(void* buffer, LS_COUNT count, MPI_Datatype type, MPI_Message* message,
                                MPI_Status* status) {
  if (!Active()) return LS_REAL(Mrecv, buffer, count, type, message, status);
  const MatchedMessage matched = TakeMessage(*message);
  if (!ring::Recording()) return LS_REAL(Mrecv, buffer, count, type, message, status);
  MPI_Status own;
  MPI_Status* used = status != MPI_STATUS_IGNORE ? status : &own;
  // The message is there already: this call waits for nobody's call.
  Blocking blocking(MpiOp::kMrecv);
  const int result = LS_REAL(Mrecv, buffer, count, type, message, used);
  const std::uint64_t end = blocking.End();
  WithCompletion records;
  records.call = MatchedRecord(MpiOp::kMrecv, blocking.begin(), end, count, type, matched);
  WriteReceive(records, result, *used);
  return result;
}

LS_EXPORT int LS_WRAPPER(Imrecv)(void* buffer, LS_COUNT count, MPI_Datatype type, MPI_Message* message,
                                 MPI_Request* request) {
  if (!Active()) return LS_REAL(Imrecv, buffer, count, type, message, request);
  const MatchedMessage matched = TakeMessage(*message);
  if (!ring::Recording()) return LS_REAL(Imrecv, buffer, count, type, message, request);
  const std::uint64_t begin = ring::Ticks();
  const int result = LS_REAL(Imrecv, buffer, count, type, message, request);
  const std::uint64_t end = ring::Ticks();
  MpiRecord record = MatchedRecord(MpiOp::kImrecv, begin, end, count, type, matched);
  record.request = HandleOf(*request);
  Write(record, result);
  return result;
}

LS_EXPORT int LS_WRAPPER(Sendrecv)(const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                                   void* recv, LS_COUNT recvcount, MPI_Datatype recvtype, int source, int recvtag,
                                   MPI_Comm comm, MPI_Status* status) {
  return SendReceive(MpiOp::kSendrecv, comm, Active() ? Message(sendcount, sendtype, dest, sendtag) : Shape{}, source,
                     recvtag, status, [&](MPI_Status* used) {
                       return LS_REAL(Sendrecv, send, sendcount, sendtype, dest, sendtag, recv, recvcount, recvtype,
                                      source, recvtag, comm, used);
                     });
}

LS_EXPORT int LS_WRAPPER(Sendrecv_replace)(void* buffer, LS_COUNT count, MPI_Datatype type, int dest, int sendtag,
                                           int source, int recvtag, MPI_Comm comm, MPI_Status* status) {
  return SendReceive(MpiOp::kSendrecv_replace, comm, Active() ? Message(count, type, dest, sendtag) : Shape{}, source,
                     recvtag, status, [&](MPI_Status* used) {
                       return LS_REAL(Sendrecv_replace, buffer, count, type, dest, sendtag, source, recvtag, comm,
                                      used);
                     });
}

LS_EXPORT int LS_WRAPPER(Isendrecv)(const void* send, LS_COUNT sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                                    void* recv, LS_COUNT recvcount, MPI_Datatype recvtype, int source, int recvtag,
                                    MPI_Comm comm, MPI_Request* request) {
  return PostBoth(MpiOp::kIsendrecv, comm, Active() ? Message(sendcount, sendtype, dest, sendtag) : Shape{},
                  Active() ? Message(recvcount, recvtype, source, recvtag) : Shape{}, request, [&] {
                    return LS_REAL(Isendrecv, send, sendcount, sendtype, dest, sendtag, recv, recvcount, recvtype,
                                   source, recvtag, comm, request);
                  });
}

LS_EXPORT int LS_WRAPPER(Isendrecv_replace)(void* buffer, LS_COUNT count, MPI_Datatype type, int dest, int sendtag,
                                            int source, int recvtag, MPI_Comm comm, MPI_Request* request) {
  return PostBoth(
      MpiOp::kIsendrecv_replace, comm, Active() ? Message(count, type, dest, sendtag) : Shape{},
      Active() ? Message(count, type, source, recvtag) : Shape{}, request,
      [&] { return LS_REAL(Isendrecv_replace, buffer, count, type, dest, sendtag, source, recvtag, comm, request); });
}
