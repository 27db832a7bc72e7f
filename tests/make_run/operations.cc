// Lines of the bodies.

#include <algorithm>
#include <iterator>

#include "make_run/parser.h"

namespace lockstep::make_run {
namespace {

struct CollectiveName {
  std::string_view name;
  CollectiveKind kind;
};
constexpr CollectiveName kCollectives[] = {{"allreduce", CollectiveKind::kAllReduce},
                                           {"allgather", CollectiveKind::kAllGather},
                                           {"reducescatter", CollectiveKind::kReduceScatter},
                                           {"alltoall", CollectiveKind::kAllToAll},
                                           {"barrier", CollectiveKind::kBarrier},
                                           {"finalize", CollectiveKind::kFinalize},
                                           {"bcast", CollectiveKind::kBroadcast},
                                           {"reduce", CollectiveKind::kReduce},
                                           {"gather", CollectiveKind::kGather},
                                           {"scatter", CollectiveKind::kScatter}};

constexpr std::pair<std::string_view, std::uint8_t> kPhases[] = {
    {"compute", 0}, {"input", 1}, {"forward", 2}, {"backward", 3}, {"optimizer", 4}};

CollectiveKind FindCollective(std::string_view name) {
  for (const CollectiveName& each : kCollectives)
    if (each.name == name) return each.kind;
  return CollectiveKind::kNone;
}

}  // namespace

bool Parser::CollectiveOperation(Line& line, std::vector<Op>* body) {
  std::string name = line.verb();
  OpKind kind = OpKind::kBlocking;
  CollectiveKind collective = FindCollective(name);
  if (collective == CollectiveKind::kNone && name.size() > 1 && (name[0] == 'i' || name[0] == 'p')) {
    kind = name[0] == 'i' ? OpKind::kPost : OpKind::kInit;
    collective = FindCollective(name.substr(1));
  }
  if (collective == CollectiveKind::kNone) return false;
  Op op{.kind = kind, .collective = collective};
  if (!IsEmpty(collective)) line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
  op.comm = Comm(line);
  line.Int(line.Key("root"), &op.root);
  if (const auto empty = line.Key("empty"))
    for (const std::string& rank : Split(*empty, ',')) line.Int(std::optional(rank), &op.empty.emplace_back());
  if (!op.empty.empty() && (kind != OpKind::kBlocking || !Splits(collective) || op.bytes == 0))
    line.Fail("empty= is of blocking collectives of which all members give and take");
  op.name = line.Key("as").value_or("");
  if (kind == OpKind::kInit && op.name.empty()) line.Fail("needs as=NAME");
  body->push_back(op);
  return true;
}

// send B to=K as=NAME, recv NAME [posted]; with nccl before it on a stream of the GPU.
bool Parser::MessageOperation(Line& line, std::vector<Op>* body) {
  const bool gpu = line.verb() == "ncclsend" || line.verb() == "ncclrecv";
  Op op{.launch_ns = 5'000};
  if (line.verb() == "send" || line.verb() == "ncclsend") {
    op.kind = gpu ? OpKind::kNcclSend : OpKind::kSend;
    line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
    line.Int(std::optional(line.Need(line.Key("to"), "to=")), &op.peer);
    op.name = line.Need(line.Key("as"), "as=");
  } else if (line.verb() == "recv" || line.verb() == "ncclrecv") {
    op.kind = gpu ? OpKind::kNcclRecv : OpKind::kRecv;
    op.name = line.Need(line.Plain(), "a name");
    op.posted = !gpu && line.Plain() == "posted";
    std::size_t at = body->size();
    while (at > 0 &&
           !((*body)[at - 1].kind == (gpu ? OpKind::kNcclSend : OpKind::kSend) && (*body)[at - 1].name == op.name))
      --at;
    if (at == 0) {
      line.Fail("nothing is sent as '" + op.name + "' before it");
    } else {
      op.send_back = static_cast<std::uint32_t>(body->size() - (at - 1));
      op.bytes = (*body)[at - 1].bytes;
      op.peer = (*body)[at - 1].peer;
    }
  } else {
    return false;
  }
  if (gpu) {
    line.Int(line.Key("stream"), &op.stream);
    line.Read(line.Key("launch"), ParseDuration, &op.launch_ns);
    if (!spec_.gpu) line.Fail("needs `gpu` before it");
  }
  body->push_back(op);
  return true;
}

bool Parser::GpuOperation(Line& line, std::vector<Op>* body) {
  const std::string& verb = line.verb();
  Op op{.launch_ns = 5'000, .bandwidth = 25'000'000'000};
  if (verb == "host") {
    op.kind = OpKind::kHost;
    op.at = "host";
    line.Read(line.Plain(), ParseDuration, &op.duration_ns);
  } else if (verb == "kernel") {
    op.kind = OpKind::kKernel;
    op.jitter_ppm = spec_.jitter_ppm;
    line.Read(std::optional(line.Need(line.Plain(), "a duration")), ParseDuration, &op.duration_ns);
    line.Read(line.Key("jitter"), ParsePpm, &op.jitter_ppm);
    line.Int(line.Key("count"), &op.count);
    op.name = line.Key("name").value_or("kernel");
    op.at = op.name;
  } else if (verb == "nccl") {
    op.kind = OpKind::kNccl;
    op.collective = FindCollective(line.Need(line.Plain(), "a kind"));
    if (op.collective == CollectiveKind::kNone) line.Fail("unknown collective");
    for (const std::string& size : Split(line.Need(line.Plain(), "a size"), ',')) {
      line.Read(std::optional(size), ParseBytes, &op.grouped.emplace_back());
      op.bytes += op.grouped.back();
    }
    if (op.grouped.size() == 1) op.grouped.clear();
    op.comm = Comm(line);
    line.Int(line.Key("root"), &op.root);
    op.name = line.Key("as").value_or("");
    line.Int(line.Key("stream"), &op.stream);
    op.after_compute = line.Plain() != "free";
  } else if (verb == "copy") {
    op.kind = OpKind::kCopy;
    const std::string direction = line.Need(line.Plain(), "h2d, d2h, d2d or memset");
    op.copy_kind = direction == "h2d"      ? 1
                   : direction == "d2h"    ? 2
                   : direction == "d2d"    ? 3
                   : direction == "memset" ? 6
                                           : 0;
    if (op.copy_kind == 0) line.Fail("unknown copy '" + direction + "'");
    line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
    line.Read(line.Key("bandwidth"), ParseRate, &op.bandwidth);
    op.asynchronous = line.Plain() != "sync";
  } else if (verb == "join" || verb == "sync") {
    op.kind = verb == "join" ? OpKind::kJoin : OpKind::kSync;
    op.name = line.Plain().value_or("");
  } else if (verb == "overhead") {
    op.kind = OpKind::kOverhead;
    line.Read(std::optional(line.Need(line.Plain(), "a duration")), ParseDuration, &op.duration_ns);
  } else {
    return false;
  }
  line.Read(line.Key("launch"), ParseDuration, &op.launch_ns);
  if (!spec_.gpu) line.Fail("needs `gpu` before it");
  body->push_back(op);
  return true;
}

void Parser::Backward(Line& line, const Op& op, const std::string& buckets, std::vector<Op>* body) {
  const std::size_t comm = Comm(line);
  const auto sizes = Split(buckets, ',');
  const auto n = static_cast<std::int64_t>(sizes.size());
  body->push_back({.kind = OpKind::kPush, .name = op.name, .category = op.category});
  Op slice = op;
  slice.name.clear();
  slice.category = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    slice.duration_ns = i + 1 < n ? op.duration_ns / n : op.duration_ns - op.duration_ns / n * (n - 1);
    body->push_back(slice);
    Op post{.kind = OpKind::kPost, .collective = CollectiveKind::kAllReduce, .comm = comm};
    line.Read(std::optional(sizes[static_cast<std::size_t>(i)]), ParseBytes, &post.bytes);
    body->push_back(post);
  }
  body->push_back({.kind = OpKind::kPop});
}

std::string Parser::Operation(Line& line, std::vector<Op>* body) {
  const std::size_t first = body->size();
  std::int32_t block = 0, index = 0;
  if (const auto on = line.Key("on")) {
    const auto parts = Split(*on, ':');
    line.Int(std::optional(parts[0]), &block);
    line.Int(std::optional(parts.size() > 1 ? parts[1] : ""), &index);
    if (block < 1 || index < 0) line.Fail("on= needs RANKS:INDEX");
  }
  const std::string error = OneOperation(line, body);
  if (block > 0)
    for (std::size_t i = first; i < body->size(); ++i) {
      (*body)[i].on_block = block;
      (*body)[i].on_index = index;
    }
  return error;
}

std::string Parser::OneOperation(Line& line, std::vector<Op>* body) {
  const std::string& verb = line.verb();
  for (const auto& [phase, category] : kPhases) {
    if (verb != phase) continue;
    Op op{.kind = OpKind::kCompute, .jitter_ppm = spec_.jitter_ppm, .category = category};
    line.Read(std::optional(line.Need(line.Plain(), "a duration")), ParseDuration, &op.duration_ns);
    line.Read(line.Key("jitter"), ParsePpm, &op.jitter_ppm);
    op.name = line.Key("name").value_or(category == 0 ? "" : verb);
    op.at = op.name.empty() ? verb : op.name;
    const auto buckets = verb == "backward" ? line.Key("buckets") : std::nullopt;
    if (!buckets) {
      body->push_back(op);
      return line.Finish();
    }
    Backward(line, op, *buckets, body);
    return line.Finish();
  }
  Op op{};
  if (verb == "other" || verb == "io" || verb == "rma" || verb == "init") {
    op.kind = OpKind::kOther;
    op.mpi = verb == "io"     ? MpiOp::kFile_write_all
             : verb == "rma"  ? MpiOp::kWin_fence
             : verb == "init" ? MpiOp::kInit_thread
                              : MpiOp::kOther;
    line.Read(line.Plain(), ParseDuration, &op.duration_ns);
  } else if (verb == "push") {
    op.kind = OpKind::kPush;
    op.name = line.Need(line.Plain(), "a name");
    const std::string category = line.Key("category").value_or("compute");
    const auto at =
        std::find_if(std::begin(kPhases), std::end(kPhases), [&](const auto& each) { return each.first == category; });
    if (at == std::end(kPhases))
      line.Fail("unknown category '" + category + "'");
    else
      op.category = at->second;
  } else if (verb == "pop") {
    op.kind = OpKind::kPop;
  } else if (verb == "wait" || verb == "waitall") {
    op.kind = OpKind::kWait;
    if (verb == "wait") op.name = line.Need(line.Plain(), "a name");
  } else if (verb == "test") {
    op.kind = OpKind::kTest;
  } else if (verb == "ring" || verb == "halo") {
    op.kind = OpKind::kRing;
    op.both_ways = verb == "halo";
    line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
    line.Int(line.Key("shift"), &op.shift);
    if (const auto word = line.Plain()) {
      op.handshake = true;
      if (*word != "handshake") line.Fail("unknown word '" + *word + "'");
    }
    if (const auto waits = op.both_ways ? std::nullopt : line.Key("waits")) {
      op.waits = *waits == "send,recv" ? Op::Waits::kSendFirst : Op::Waits::kReceiveFirst;
      if (*waits != "send,recv" && *waits != "recv,send") line.Fail("waits= needs recv,send or send,recv");
    }
  } else if (verb == "start") {
    op.kind = OpKind::kStart;
    op.name = line.Need(line.Plain(), "a name");
    bool found = false;
    for (const Op& init : spec_.setup)
      if (init.kind == OpKind::kInit && init.name == op.name) {
        op.collective = init.collective;
        op.bytes = init.bytes;
        op.comm = init.comm;
        op.root = init.root;
        found = true;
      }
    if (!found) line.Fail("no persistent operation '" + op.name + "' in setup");
  } else if (Pattern(line, body) || MessageOperation(line, body) || GpuOperation(line, body) ||
             CollectiveOperation(line, body)) {
    return line.Finish();
  } else {
    line.Fail("unknown operation '" + verb + "'");
  }
  body->push_back(op);
  return line.Finish();
}

}  // namespace lockstep::make_run
