#include "ingest/map/names.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>
#include <utility>

#include "core/data_type_name.h"
#include "core/operation_name.h"

namespace lockstep::ingest {
namespace {

bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool HasAny(std::string_view text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts)
    if (Has(text, part)) return true;
  return false;
}

// "aten::mm". Namespaces of operators are in small letters; "FSDP::pre_forward (layer)" is an annotation.
bool IsOfDispatcher(std::string_view name) {
  const std::string_view space = name.substr(0, name.find("::"));
  return space.size() < name.size() && std::all_of(space.begin(), space.end(), [](unsigned char c) {
           return std::islower(c) || std::isdigit(c) || c == '_';
         });
}

}  // namespace

std::uint8_t ApiKind(std::string_view name) {
  if (Has(name, "GraphLaunch")) return schema::ApiKind::kGraphLaunch;
  if (Has(name, "Launch") && !Has(name, "HostFunc")) return schema::ApiKind::kLaunch;
  if (HasAny(name, {"Memcpy", "Memset"})) return schema::ApiKind::kCopy;
  if (Has(name, "Synchronize")) return schema::ApiKind::kSync;
  if (Has(name, "Event")) return schema::ApiKind::kEvent;
  if (HasAny(name, {"Malloc", "Free", "HostAlloc", "HostRegister", "HostUnregister", "MemGetInfo", "MemCreate",
                    "MemMap", "MemUnmap", "MemRelease", "MemSetAccess", "MemAddress", "MemPool", "MemAlloc",
                    "MemPrefetch", "MemAdvise"}))
    return schema::ApiKind::kMemory;
  return schema::ApiKind::kOther;
}

bool IsHip(std::string_view name) { return name.starts_with("hip"); }

CopyKind CopyKindOf(std::string_view name, std::string_view kind) {
  using enum schema::CopyKind::Value;
  CopyKind copy;
  static constexpr std::pair<std::string_view, std::uint8_t> kKinds[] = {
      {"HtoD", kHostToDevice},         {"DtoH", kDeviceToHost},
      {"DtoD", kDeviceToDevice},       {"PtoP", kPeer},
      {"HtoH", kHostToHost},           {"HtoA", kHostToDevice},
      {"AtoH", kDeviceToHost},         {"AtoD", kDeviceToDevice},
      {"DtoA", kDeviceToDevice},       {"AtoA", kDeviceToDevice},
      {"HostToDevice", kHostToDevice}, {"DeviceToHost", kDeviceToHost},
      {"PeerToPeer", kPeer},           {"DeviceToDevice", kDeviceToDevice},
      {"HostToHost", kHostToHost}};
  if (Has(name, "Memset") || Has(name, "FillBuffer"))
    copy.kind = schema::CopyKind::kMemset;
  else
    for (const std::string_view text : {name, kind})
      for (const auto& [part, number] : kKinds)
        if (copy.kind == schema::CopyKind::kUnknown && Has(text, part)) copy.kind = number;
  using schema::HostMemory;
  copy.host_memory = Has(name, "Pageable")                  ? HostMemory::kPageable
                     : Has(name, "Pinned")                  ? HostMemory::kPinned
                     : HasAny(name, {"Managed", "Unified"}) ? HostMemory::kManaged
                                                            : HostMemory::kUnknown;
  return copy;
}

std::uint8_t SyncKind(std::string_view name) {
  if (Has(name, "Wait")) return schema::SyncKind::kStreamWait;
  if (Has(name, "Record")) return schema::SyncKind::kEventRecord;
  if (Has(name, "Event")) return schema::SyncKind::kEvent;
  if (Has(name, "Stream")) return schema::SyncKind::kStream;
  if (HasAny(name, {"Context", "Device"})) return schema::SyncKind::kContext;
  return schema::SyncKind::kUnknown;
}

std::uint8_t RangeCategory(std::string_view name) {
  using enum schema::Category::Value;
  if (name.empty()) return kNone;
  switch (name[0]) {  // Most names are operators: one look is enough for them.
    case 'a':
      if (name.starts_with("autograd::engine::evaluate_function")) return kBackward;
      break;
    case 'O':
      if (name.starts_with("Optimizer.")) return kOptimizer;
      break;
    case 'e':
      if (name.starts_with("enumerate(DataLoader)")) return kInput;
      break;
    case 'D':
    case 'F':
      if (name == "DistributedDataParallel.forward" || name == "FullyShardedDataParallel.forward") return kForward;
      break;
    default:
      break;
  }
  if (name.size() > 24 || Has(name, "::")) return 0;
  // Labels that users write around their phases.
  const std::string word = Letters(name);
  if (word == "forward" || word == "forwardpass" || word == "fwd") return kForward;
  if (word == "backward" || word == "backwardpass" || word == "bwd") return kBackward;
  if (word == "optimizer" || word == "optimizerstep") return kOptimizer;
  if (word == "dataloader" || word == "dataloading") return kInput;
  return 0;
}

int StepWord(std::string_view name) {
  // Compared without case, digits and punctuation.
  static constexpr std::string_view kWords[] = {"profilerstep", "trainstep",      "trainingstep", "globalstep",
                                                "step",         "trainiteration", "iteration",    "trainiter",
                                                "iter",         "trainbatch",     "batch"};
  if (name.size() > 48 || Has(name, "::")) return -1;
  const std::string word = Letters(name);
  const auto* const at = std::find(std::begin(kWords), std::end(kWords), word);
  return at == std::end(kWords) ? -1 : static_cast<int>(at - std::begin(kWords));
}

bool IsOfTorch(std::string_view name) {
  static constexpr std::string_view kBegins[] = {"aten::",
                                                 "autograd::",
                                                 "torch::",
                                                 "c10d::",
                                                 "prim::",
                                                 "gloo:",
                                                 "nccl:",
                                                 "record_param_comms",
                                                 "ProfilerStep#",
                                                 "Optimizer.",
                                                 "enumerate(DataLoader)",
                                                 "DistributedDataParallel.",
                                                 "FullyShardedDataParallel."};
  return std::any_of(std::begin(kBegins), std::end(kBegins),
                     [&](std::string_view begin) { return name.starts_with(begin); });
}

bool EmittedRange::is_operator() const {
  return emitted ? sequence >= 0 || IsOfDispatcher(name) || name == "record_param_comms"
                 : IsOfTorch(name) && IsOfDispatcher(name);
}

EmittedRange EmittedRangeOf(std::string_view text) {
  EmittedRange range{.name = text};
  // From the last field to the first; the rest is the name. ROCm's own spelling has ids before the name and is no
  // match.
  for (std::size_t at; (at = range.name.rfind(" = ")) != std::string_view::npos; range.emitted = true) {
    const std::string_view head = range.name.substr(0, at), value = range.name.substr(at + 3);
    const std::size_t comma = head.rfind(", ");
    if (comma == std::string_view::npos || value.empty()) break;
    const std::string_view field = head.substr(comma + 2);
    std::int64_t number = -1;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc() && end == value.data() + value.size();
    if ((field == "seq" || field == "stashed seq") && whole)
      range.sequence = number;
    else if (field == "sizes" && value.front() == '[')
      range.sizes = value;
    else if (!(field == "op_id" && whole) && !(field == "input_op_ids" && value.front() == '['))
      break;
    range.name = head.substr(0, comma);
  }
  return range;
}

std::int64_t StepNumber(std::string_view name) {
  constexpr std::string_view kPrefix = "ProfilerStep#";
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  std::int64_t number = -1;
  const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && at == name.data() + name.size() && number >= 0 ? number : -1;
}

std::int64_t PeerOf(std::string_view annotation) {
  std::size_t arrow = annotation.find("->");
  if (arrow == std::string_view::npos) arrow = annotation.find("<-");
  if (arrow == std::string_view::npos) return -1;
  std::int64_t peer = -1;
  const char* end = annotation.data() + annotation.size();
  const auto [at, error] = std::from_chars(annotation.data() + arrow + 2, end, peer);
  return error == std::errc() && peer >= 0 ? peer : -1;
}

ElementType ElementTypeOf(std::string_view name) {
  if (name.starts_with("c10::")) name.remove_prefix(5);
  if (name.starts_with("torch.")) name.remove_prefix(6);
  static constexpr std::pair<std::string_view, DataType> kTypes[] = {
      {"Float", DataType::kFloat32},       {"float", DataType::kFloat32},  {"BFloat16", DataType::kBfloat16},
      {"bfloat16", DataType::kBfloat16},   {"Half", DataType::kFloat16},   {"half", DataType::kFloat16},
      {"Double", DataType::kFloat64},      {"double", DataType::kFloat64}, {"Long", DataType::kInt64},
      {"long int", DataType::kInt64},      {"long", DataType::kInt64},     {"int64_t", DataType::kInt64},
      {"Int", DataType::kInt32},           {"int", DataType::kInt32},      {"Short", DataType::kInt16},
      {"short int", DataType::kInt16},     {"short", DataType::kInt16},    {"Byte", DataType::kUint8},
      {"unsigned char", DataType::kUint8}, {"Char", DataType::kInt8},      {"signed char", DataType::kInt8},
      {"char", DataType::kInt8},           {"Bool", DataType::kUint8},     {"bool", DataType::kUint8},
      {"UInt16", DataType::kUint16},       {"UInt32", DataType::kUint32},  {"UInt64", DataType::kUint64},
      {"bytes", DataType::kByte},
  };
  for (const auto& [text, type] : kTypes)
    if (text == name) return {type, ElementBytes(type)};
  if (name == "ComplexHalf") return {DataType::kDerived, 4};
  if (name == "ComplexFloat") return {DataType::kDerived, 8};
  if (name == "ComplexDouble") return {DataType::kDerived, 16};
  if (name.starts_with("Float8_e4m3")) return {DataType::kFloat8e4m3, 1};
  if (name.starts_with("Float8_e5m2")) return {DataType::kFloat8e5m2, 1};
  return {};
}

}  // namespace lockstep::ingest
