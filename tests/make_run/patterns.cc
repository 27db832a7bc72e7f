// Whole training steps as one line: what they stand for, in the lines of operations.cc. README.md has the same lists.

#include <fmt/format.h>

#include "make_run/parser.h"

namespace lockstep::make_run {
namespace {

using Lines = std::vector<std::string>;

struct Parallel {
  bool gpu;
  std::int64_t forward_ns = 0, backward_ns = 0, layers = 4;
  std::string comm;  // " comm=NAME" or nothing.
};

Lines DataParallel(const Parallel& p, const std::string& buckets) {
  if (!p.gpu)
    return {fmt::format("forward {}", p.forward_ns),
            fmt::format("backward {} buckets={}{}", p.backward_ns, buckets, p.comm), "waitall"};
  const std::vector<std::string> sizes = Split(buckets, ',');
  const auto n = static_cast<std::int64_t>(sizes.size()), kernels = std::max<std::int64_t>(1, p.layers / n);
  Lines lines = {"push forward category=forward",
                 fmt::format("kernel {} count={} name=forward_gemm", p.forward_ns / p.layers, p.layers), "pop",
                 "push backward category=backward"};
  for (const std::string& size : sizes) {
    lines.push_back(fmt::format("kernel {} count={} name=backward_gemm", p.backward_ns / (n * kernels), kernels));
    lines.push_back(fmt::format("nccl allreduce {}{}", size, p.comm));
  }
  lines.insert(lines.end(), {"pop", "join"});
  return lines;
}

Lines FullySharded(const Parallel& p, std::int64_t units, const std::string& bytes, std::int64_t prefetch) {
  const std::string gather = p.gpu ? "nccl allgather {} free as={}{}" : "iallgather {} as={}{}";
  const std::string scatter = p.gpu ? "nccl reducescatter {}{}" : "ireducescatter {} as=rs{}";
  Lines lines;
  const auto pass = [&](bool backward) {
    const std::string_view phase = backward ? "backward" : "forward";
    const std::int64_t whole = backward ? p.backward_ns : p.forward_ns;
    lines.push_back(fmt::format("push {0} category={0}", phase));
    std::int64_t gathered = 0;
    for (std::int64_t i = 0; i < units; ++i) {
      // Units in the order in which this pass needs them.
      for (; gathered < units && gathered <= i + prefetch; ++gathered)
        lines.push_back(fmt::format(fmt::runtime(gather), bytes, fmt::format("{}{}", phase, gathered), p.comm));
      lines.push_back(fmt::format("{} {}{}", p.gpu ? "join" : "wait", phase, i));
      if (p.gpu)
        lines.push_back(fmt::format("kernel {} count={} name={}_gemm", whole / (units * p.layers), p.layers, phase));
      else
        lines.push_back(fmt::format("compute {}", whole / units));
      if (backward) lines.push_back(fmt::format(fmt::runtime(scatter), bytes, p.comm));
    }
    lines.emplace_back("pop");
  };
  pass(false);
  pass(true);
  lines.emplace_back(p.gpu ? "join" : "waitall");
  return lines;
}

struct Pipeline {
  std::int64_t stages = 2, microbatches = 4, block = 0;  // block: ranks of a stage.
  std::string bytes, tensor, tensor_bytes, data, data_bytes;
};

// One forward and one backward by turns (1F1B). Operations of all stages stand in one list, a message's send
// before its receipt; each stage's own are in its order.
Lines OneForwardOneBackward(const Parallel& p, const Pipeline& line) {
  struct Task {
    bool backward;
    std::int64_t batch;
  };
  const auto stages = static_cast<std::size_t>(line.stages);
  std::vector<std::vector<Task>> tasks(stages);
  for (std::int64_t s = 0; s < line.stages; ++s) {
    std::vector<Task>& own = tasks[static_cast<std::size_t>(s)];
    const std::int64_t ahead = std::min(line.microbatches, line.stages - 1 - s);
    for (std::int64_t m = 0; m < ahead; ++m) own.push_back({false, m});
    for (std::int64_t m = 0; m < line.microbatches; ++m) {
      if (m + ahead < line.microbatches) own.push_back({false, m + ahead});
      own.push_back({true, m});
    }
  }
  Lines lines;
  const auto emit = [&](std::int64_t s, const Task& task) {
    const bool first = s == 0, last = s + 1 == line.stages, b = task.backward;
    const std::string on = fmt::format(" on={}:{}", line.block, s);
    const auto add = [&](const std::string& text) { lines.push_back(text + on); };
    if (b ? !last : !first) {
      const std::string message = fmt::format("{}{}.{}", b ? 'b' : 'f', b ? s + 1 : s - 1, task.batch);
      add(fmt::format("{} {}{}", p.gpu ? "ncclrecv" : "recv", message, p.gpu ? b ? " stream=33" : " stream=31" : ""));
      if (p.gpu) add("join " + message);
    }
    const std::string_view phase = b ? "backward" : "forward";
    const std::int64_t whole = b ? p.backward_ns : p.forward_ns;
    if (p.gpu)
      add(fmt::format("kernel {} count={} name={}_gemm", whole / p.layers, p.layers, phase));
    else
      add(fmt::format("{} {}", phase, whole));
    if (!line.tensor.empty()) {
      if (p.gpu) {
        add(fmt::format("nccl allreduce {} comm={} stream=21 as=tensor", line.tensor_bytes, line.tensor));
        add("join tensor");
      } else {
        add(fmt::format("allreduce {} comm={}", line.tensor_bytes, line.tensor));
      }
    }
    if (b ? !first : !last)
      add(fmt::format("{} {} to={} as={}{}.{}{}", p.gpu ? "ncclsend" : "send", line.bytes, b ? -line.block : line.block,
                      b ? 'b' : 'f', s, task.batch, p.gpu ? b ? " stream=32" : " stream=30" : ""));
  };
  // What the task waits for: done[kind][stage] counts its kind's finished micro-batches, which are in order.
  std::vector<std::int64_t> done[2] = {std::vector<std::int64_t>(stages, 0), std::vector<std::int64_t>(stages, 0)};
  std::vector<std::size_t> next(stages, 0);
  for (bool any = true; any;) {
    any = false;
    for (std::size_t s = 0; s < stages; ++s) {
      for (; next[s] < tasks[s].size(); ++next[s]) {
        const Task& task = tasks[s][next[s]];
        const bool first = s == 0, last = s + 1 == stages;
        if (!task.backward && !first && done[0][s - 1] <= task.batch) break;
        if (task.backward && !last && done[1][s + 1] <= task.batch) break;
        emit(static_cast<std::int64_t>(s), task);
        ++done[task.backward ? 1 : 0][s];
        any = true;
      }
    }
  }
  if (!line.data.empty()) {
    lines.push_back(fmt::format("{} {} comm={}", p.gpu ? "nccl allreduce" : "allreduce", line.data_bytes, line.data));
    if (p.gpu) lines.emplace_back("join");
  }
  return lines;
}

}  // namespace

bool Parser::Pattern(Line& line, std::vector<Op>* body) {
  const std::string& verb = line.verb();
  if (verb != "ddp" && verb != "fsdp" && verb != "pipeline") return false;
  Parallel p{.gpu = spec_.gpu};
  line.Read(std::optional(line.Need(line.Key("forward"), "forward=")), ParseDuration, &p.forward_ns);
  line.Read(std::optional(line.Need(line.Key("backward"), "backward=")), ParseDuration, &p.backward_ns);
  line.Int(line.Key("layers"), &p.layers);
  if (p.layers < 1) line.Fail("needs a layer");
  Lines lines;
  if (verb == "pipeline") {
    Pipeline pipe;
    line.Int(line.Key("stages"), &pipe.stages);
    line.Int(line.Key("microbatches"), &pipe.microbatches);
    pipe.bytes = line.Need(line.Key("bytes"), "bytes=");
    pipe.tensor = line.Key("tensor").value_or("");
    pipe.data = line.Key("data").value_or("");
    if (!pipe.tensor.empty()) pipe.tensor_bytes = line.Need(line.Key("tensorbytes"), "tensorbytes=");
    if (!pipe.data.empty()) pipe.data_bytes = line.Need(line.Key("databytes"), "databytes=");
    if (pipe.stages < 1 || pipe.microbatches < 1 || spec_.ranks % pipe.stages != 0)
      line.Fail("stages must divide the ranks");
    else
      pipe.block = spec_.ranks / pipe.stages;
    if (line.Finish().empty()) lines = OneForwardOneBackward(p, pipe);
  } else {
    if (const auto comm = line.Key("comm")) p.comm = " comm=" + *comm;
    if (verb == "ddp") {
      const std::string buckets = line.Need(line.Key("buckets"), "buckets=");
      if (line.Finish().empty()) lines = DataParallel(p, buckets);
    } else {
      std::int64_t units = 0, prefetch = 1;
      line.Int(std::optional(line.Need(line.Key("units"), "units=")), &units);
      line.Int(line.Key("prefetch"), &prefetch);
      const std::string bytes = line.Need(line.Key("bytes"), "bytes=");
      if (units < 1 || prefetch < 0) line.Fail("needs a unit");
      if (line.Finish().empty()) lines = FullySharded(p, units, bytes, prefetch);
    }
  }
  for (const std::string& text : lines) {
    Line one(Words(text));
    if (const std::string error = Operation(one, body); !error.empty()) line.Fail(error + " in `" + text + "`");
  }
  return true;
}

}  // namespace lockstep::make_run
