// Recognises traces of torch.profiler.

#include <cstring>

#include "ingest/foreign.h"
#include "ingest/kineto/map/rank_import.h"
#include "ingest/map/args.h"
#include "ingest/rank_files/rank_source.h"

namespace lockstep::ingest {
namespace {

bool NamedLike(std::string_view name) { return name.ends_with(".json") || name.ends_with(".json.gz"); }

// Chrome's two forms: an object with traceEvents, or the bare list of events.
std::string Refuse(const FileLook& look) {
  const std::string_view head = look.head;
  const auto has = [&](std::string_view key) {
    return head.find(key) != std::string_view::npos || look.tail.find(key) != std::string::npos;
  };
  const std::size_t first = head.find_first_not_of(" \t\r\n\xef\xbb\xbf");
  if (first != std::string_view::npos && head[first] == '[' && has("\"ph\"") && has("\"ts\"")) return "";
  if (first != std::string_view::npos && head[first] == '{' &&
      (has("\"traceEvents\"") || has("\"distributedInfo\"") || has("\"deviceProperties\"")))
    return "";
  return "no traceEvents in it";
}

// Finds distributedInfo in a piece of JSON, complete or not.
void Distributed(std::string_view json, TracePart& part) {
  const std::size_t at = json.find("\"distributedInfo\"");
  if (at == std::string_view::npos) return;
  const std::size_t brace = json.find_first_not_of(" \t\r\n:", at + std::strlen("\"distributedInfo\""));
  if (brace == std::string_view::npos || json[brace] != '{') return;
  ArgsCursor cursor(json.substr(brace));
  for (std::string_view key, value; cursor.Next(key, value);) {
    if (key == "rank") part.told_rank = ToldRank(IntOf(value, -1));
    if (key == "world_size") part.told_world_size = ToldSize(IntOf(value, 0));
  }
}

Result<std::vector<TracePart>> Parts(const FileLook& look) {
  TracePart part;
  Distributed(look.head, part);
  if (part.told_rank < 0) Distributed(look.tail, part);
  return std::vector{part};
}

// Kineto's JSON shrinks to an eighteenth here, a tenth at worst.
std::uint64_t WorkBytes(const FileLook& look) { return look.gzip ? look.bytes * 15 : look.bytes; }

Result<std::vector<ImportedTrace>> Read(const std::string& path, const TracePart&, const TraceOptions& options) {
  return ImportTrace(path, options);
}

}  // namespace

extern const ForeignFormat kKinetoFormat;
const ForeignFormat kKinetoFormat = {
    .name = "kineto",
    .program = "torch.profiler",
    .what = "Traces of torch.profiler: Chrome JSON, plain or gzip",
    .write = "torch.profiler's export_chrome_trace or tensorboard_trace_handler",
    .named_like = NamedLike,
    .begins_like = nullptr,
    .refuse = Refuse,
    .parts = Parts,
    .work_bytes = WorkBytes,
    .read = Read,
};

}  // namespace lockstep::ingest
