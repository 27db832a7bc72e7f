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
      return true;
    default:
      return false;
  }
}

bool WaitsForAny(std::uint16_t op) {
  return static_cast<MpiOp>(op) == MpiOp::kWaitany || static_cast<MpiOp>(op) == MpiOp::kWaitsome;
}

}  // namespace lockstep::recorded
