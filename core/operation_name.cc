#include "core/operation_name.h"

#include <utility>

namespace lockstep {

std::string Letters(std::string_view text) {
  std::string letters;
  for (const char c : text) {
    if (c >= 'a' && c <= 'z') letters += c;
    if (c >= 'A' && c <= 'Z') letters += static_cast<char>(c - 'A' + 'a');
  }
  return letters;
}

std::string_view WithoutBackend(std::string_view name) {
  const std::size_t colon = name.find(':');
  // "nccl:all_reduce", "gloo:broadcast"; not "c10d::allreduce_".
  if (colon == std::string_view::npos || (colon + 1 < name.size() && name[colon + 1] == ':')) return name;
  return name.substr(colon + 1);
}

CollectiveKind KindOfOperation(std::string_view name) {
  const std::string word = Letters(WithoutBackend(name));
  // A barrier of NCCL is an all-reduce of one element: "all_reduce_barrier".
  if (word.find("barrier") != std::string::npos) return CollectiveKind::kBarrier;
  static constexpr std::pair<std::string_view, CollectiveKind> kWords[] = {
      {"allreduce", CollectiveKind::kAllReduce}, {"sparseallreduce", CollectiveKind::kAllReduce},
      {"allgather", CollectiveKind::kAllGather}, {"reducescatter", CollectiveKind::kReduceScatter},
      {"alltoall", CollectiveKind::kAllToAll},   {"broadcast", CollectiveKind::kBroadcast},
      {"reduce", CollectiveKind::kReduce},       {"gather", CollectiveKind::kGather},
      {"scatter", CollectiveKind::kScatter},
  };
  for (const auto& [part, kind] : kWords)
    if (word.starts_with(part)) return kind;
  return CollectiveKind::kNone;
}

int DirectionOfOperation(std::string_view operation) {
  const std::string_view name = WithoutBackend(operation);
  if (name.starts_with("send") && !name.starts_with("sendrecv")) return 0;
  if (name.starts_with("recv")) return 1;
  return -1;
}

}  // namespace lockstep
