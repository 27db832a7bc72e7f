#include "export/kineto/kineto_comm.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/collective.h"
#include "core/data_type_name.h"
#include "core/fact.h"
#include "core/hex.h"
#include "export/common/describe.h"
#include "export/common/json_writer.h"
#include "ingest/rank_files/rank_source.h"
#include "trace/file/strings.h"

namespace lockstep::exporters {
namespace {

constexpr std::uint8_t kTorchGroup = schema::CommKind::kTorchGroup;
constexpr std::uint8_t kGuessed =
    schema::CommIdentity::kGuessed;  // Of comms.identity: who reads the trace has to guess it again.
constexpr std::size_t kListed = 30;  // torch/csrc/profiler/util.cpp: longer lists are cut.

struct GroupName {
  std::string name, description;
};

// An imported group is called "description (name)"; see ingest/map/groups.cc.
GroupName NameOf(const schema::RankTables& head, std::uint32_t comm) {
  const schema::Comms& comms = head.comms;
  const std::string_view text = trace::TextOf(head, comms.name[comm]);
  if (text.empty()) return {Hex(comms.global_id[comm]), "undefined"};
  if (comms.kind[comm] == kTorchGroup && text.ends_with(')'))
    if (const std::size_t open = text.rfind(" ("); open != std::string_view::npos && open > 0)
      return {std::string(text.substr(open + 2, text.size() - open - 3)), std::string(text.substr(0, open))};
  return {std::string(text), "undefined"};
}

void WriteList(JsonWriter& json, const std::vector<std::int32_t>& members) {
  json.BeginArray();
  for (const std::int32_t member : members) json.Int(member);
  json.EndArray();
}

// PyTorch gives the list as a text.
std::string ListText(const std::vector<std::int32_t>& members) {
  std::string text;
  JsonWriter json(text);
  WriteList(json, members);
  return text;
}

void WriteGroup(JsonWriter& json, const schema::RankTables& head, const CommMembers& known, std::uint32_t comm) {
  if (comm >= head.comms.rows() || head.comms.identity[comm] == kGuessed) return;
  const GroupName group = NameOf(head, comm);
  json.Unsigned("Group size", head.comms.size[comm]);
  json.Text("Process Group Name", group.name);
  json.Text("Process Group Description", group.description);
  if (head.comms.stride[comm] > 0 && head.comms.size[comm] > kListed) {
    json.Int("Global rank start", head.comms.first_world_rank[comm]);
    json.Int("Global rank stride", head.comms.stride[comm]);
  } else if (const std::vector<std::int32_t> members = MembersOf(head, known, comm);
             !members.empty() && members.size() <= kListed && members.size() == head.comms.size[comm]) {
    json.Word("Process Group Ranks", ListText(members));
  }
}

std::string_view TorchType(std::uint16_t dtype) {
  constexpr std::string_view kNames[] = {"Byte",   "Char",          "Byte",        "Short", "UInt16",   "Int",
                                         "UInt32", "Long",          "UInt64",      "Half",  "BFloat16", "Float",
                                         "Double", "Float8_e4m3fn", "Float8_e5m2", "Byte",  "Byte"};
  return kNames[dtype < std::size(kNames) ? dtype : 0];
}

std::string_view TorchName(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "allreduce";
    case CollectiveKind::kAllGather:
      return "_allgather_base";
    case CollectiveKind::kReduceScatter:
      return "_reduce_scatter_base";
    case CollectiveKind::kAllToAll:
      return "all_to_all";
    case CollectiveKind::kBarrier:
      return "barrier";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kReduce:
      return "reduce";
    case CollectiveKind::kGather:
      return "gather";
    case CollectiveKind::kScatter:
      return "scatter";
    default:
      return {};
  }
}

void WriteSizes(JsonWriter& json, std::uint64_t in, std::uint64_t elements_out, std::uint16_t dtype) {
  json.Unsigned("In msg nelems", in);
  json.Unsigned("Out msg nelems", elements_out);
  json.Word("dtype", TorchType(dtype));
}

std::uint64_t Elements(std::uint64_t bytes, std::uint16_t dtype) {
  return bytes / std::max(TextOfDataType(dtype).bytes, 1u);
}

}  // namespace

std::vector<std::int32_t> MembersOf(const schema::RankTables& head, const CommMembers& known, std::uint32_t comm) {
  std::vector<std::int32_t> members;
  if (head.comms.stride[comm] != 0) {
    for (std::uint32_t i = 0; i < head.comms.size[comm] && i < 1u << 20; ++i)
      members.push_back(
          ingest::ToldRank(head.comms.first_world_rank[comm] + static_cast<std::int64_t>(i) * head.comms.stride[comm]));
    return members;
  }
  for (std::size_t i = 0; i < head.comm_members.rows(); ++i)
    if (head.comm_members.comm[i] == comm) members.push_back(head.comm_members.world_rank[i]);
  if (!members.empty()) return members;
  const auto at = known.find(head.comms.global_id[comm]);
  return at != known.end() && at->second.size() == head.comms.size[comm] ? at->second : members;
}

void WriteCollectiveArgs(JsonWriter& json, const schema::RankTables& head, const CommMembers& known,
                         std::uint32_t row) {
  const schema::Collectives& c = head.collectives;
  const auto kind = static_cast<CollectiveKind>(c.kind[row]);
  const std::string_view name = TorchName(kind);
  if (!name.empty()) json.Word("Collective name", name);
  const std::uint32_t comm = c.comm[row];
  const std::uint64_t members = comm < head.comms.rows() ? std::max(head.comms.size[comm], 1u) : 1;
  if (c.bytes[row] > 0) {
    // The whole array is what all-gather gives and reduce-scatter takes; gather and scatter name one member's part.
    const std::uint64_t all = Elements(c.bytes[row], c.dtype[row]), part = all / members;
    const bool in_part = kind == CollectiveKind::kAllGather || kind == CollectiveKind::kGather;
    const bool out_part = kind == CollectiveKind::kReduceScatter || kind == CollectiveKind::kScatter;
    WriteSizes(json, in_part ? part : all, out_part ? part : all, c.dtype[row]);
  }
  if (!c.uneven[row]) {
    json.Word("In split size", "[]");
    json.Word("Out split size", "[]");
  }
  WriteGroup(json, head, known, comm);
  if (c.root[row] >= 0) json.Int("Rank", c.root[row]);
  if (comm < head.comms.rows() && head.comms.identity[comm] == schema::CommIdentity::kCounted)
    json.Unsigned("Seq", c.seq[row]);
}

void WriteMessageArgs(JsonWriter& json, const schema::RankTables& head, const CommMembers& known, std::uint32_t row,
                      std::int32_t rank) {
  const schema::P2p& p = head.p2p;
  const bool send = p.direction[row] == schema::Direction::kSend;
  json.Word("Collective name", send ? "send" : "recv");
  // Messages have no type: bytes.
  if (p.bytes[row] > 0) WriteSizes(json, p.bytes[row], p.bytes[row], 0);
  WriteGroup(json, head, known, p.comm[row]);
  if (p.peer[row] >= 0) json.Int("Rank", p.peer[row]);
  if (p.peer_world_rank[row] >= 0) {
    json.Int("Src Rank", send ? rank : p.peer_world_rank[row]);
    json.Int("Dst Rank", send ? p.peer_world_rank[row] : rank);
  }
}

std::string_view BackendOf(const schema::RankTables& head) {
  const auto gpu = schema::Code(CollectiveMode::kGpu);
  for (const auto* modes : {&head.collectives.mode, &head.p2p.mode})
    if (!modes->empty())
      return std::find(modes->begin(), modes->end(), gpu) != modes->end() ? std::string_view("nccl") : "mpi";
  for (std::size_t i = 0; i < head.meta.rows(); ++i)
    if (trace::TextOf(head, head.meta.key[i]) == "fact.torch_backend")
      return FactValue(trace::TextOf(head, head.meta.value[i]), "name");
  return "";
}

void WriteGroupList(JsonWriter& json, std::string_view line, const schema::RankTables& head, const CommMembers& known) {
  const std::string_view backend = BackendOf(head);
  const std::string config = backend.empty() ? "" : (backend == "nccl" ? "cuda:" : "cpu:") + std::string(backend);
  json.BeginArray(line);
  for (std::uint32_t comm = 0; comm < head.comms.rows(); ++comm) {
    if (head.comms.identity[comm] == kGuessed) continue;
    const GroupName group = NameOf(head, comm);
    json.BeginObject();
    json.Text("pg_name", group.name);
    json.Text("pg_desc", group.description);
    json.Text("backend_config", config);
    json.Unsigned("pg_size", head.comms.size[comm]);
    json.Key("ranks");
    WriteList(json, MembersOf(head, known, comm));
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace lockstep::exporters
