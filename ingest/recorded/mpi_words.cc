#include "ingest/recorded/mpi_words.h"

#include <algorithm>

#include "core/mpi_ops.h"

namespace lockstep::recorded {

std::string KindText(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kNone:
    case CollectiveKind::kSendRecv:
      return "collective";
    case CollectiveKind::kNeighbor:
      return "neighbour_exchange";
    default:
      break;
  }
  std::string text(Name(kind));
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

std::string CallText(std::uint16_t op) {
  const MpiOpInfo* info = FindMpiOp(op);
  std::string text(info == nullptr ? std::string_view("call") : info->name.substr(4));
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

bool IsCreation(std::uint16_t op) {
  switch (static_cast<MpiOp>(op)) {
    case MpiOp::kComm_dup:
    case MpiOp::kComm_dup_with_info:
    case MpiOp::kComm_idup:
    case MpiOp::kComm_idup_with_info:
    case MpiOp::kComm_split:
    case MpiOp::kComm_split_type:
    case MpiOp::kComm_create:
    case MpiOp::kCart_create:
    case MpiOp::kCart_sub:
    case MpiOp::kGraph_create:
    case MpiOp::kDist_graph_create:
    case MpiOp::kDist_graph_create_adjacent:
    case MpiOp::kIntercomm_merge:
    // They take a number of their communicator, too (comms/pmpi/windows.cc).
    case MpiOp::kWin_create:
    case MpiOp::kWin_allocate:
    case MpiOp::kWin_allocate_shared:
    case MpiOp::kWin_create_dynamic:
      return true;
    default:
      return false;
  }
}

bool WaitsForAny(std::uint16_t op) {
  return static_cast<MpiOp>(op) == MpiOp::kWaitany || static_cast<MpiOp>(op) == MpiOp::kWaitsome;
}

// As Open MPI and MPICH do it. A call is taken where it waits by what moves everything (Open MPI's opal_progress); what
// was not seen to do so is left out, so that the network is not blamed for a sender that sends nothing.
bool MovesMessages(std::uint16_t op) {
  const MpiOpInfo* info = FindMpiOp(op);
  if (info == nullptr) return false;
  switch (info->cls) {
    case MpiClass::kCollective:
    case MpiClass::kRecv:
    case MpiClass::kSendRecv:
    case MpiClass::kProbe:
    case MpiClass::kWait:
    case MpiClass::kTest:
      return true;
    case MpiClass::kSend:
      return info->op != MpiOp::kBsend;
    default:
      break;
  }
  switch (info->op) {
    case MpiOp::kIprobe:
    case MpiOp::kImprobe:
    // MPI asks the same of them as of MPI_Test.
    case MpiOp::kRequest_get_status:
    case MpiOp::kRequest_get_status_all:
    case MpiOp::kRequest_get_status_any:
    case MpiOp::kRequest_get_status_some:
    // Their members agree by messages.
    case MpiOp::kComm_dup:
    case MpiOp::kComm_dup_with_info:
    case MpiOp::kComm_split:
    case MpiOp::kComm_split_type:
    case MpiOp::kComm_create:
    case MpiOp::kComm_create_group:
    case MpiOp::kCart_create:
    case MpiOp::kCart_sub:
    case MpiOp::kGraph_create:
    case MpiOp::kDist_graph_create:
    case MpiOp::kDist_graph_create_adjacent:
    case MpiOp::kIntercomm_create:
    case MpiOp::kIntercomm_merge:
    case MpiOp::kWin_create:
    case MpiOp::kWin_allocate:
    case MpiOp::kWin_allocate_shared:
    case MpiOp::kWin_create_dynamic:
    case MpiOp::kWin_free:
    case MpiOp::kWin_fence:
    // They last until buffered messages have gone.
    case MpiOp::kBuffer_detach:
    case MpiOp::kBuffer_flush:
    case MpiOp::kComm_detach_buffer:
    case MpiOp::kComm_flush_buffer:
    case MpiOp::kSession_detach_buffer:
    case MpiOp::kSession_flush_buffer:
      return true;
    default:
      return false;
  }
}

}  // namespace lockstep::recorded
