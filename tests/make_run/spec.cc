#include "make_run/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>

namespace lockstep::make_run {
namespace {

std::vector<std::string> Words(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

struct CollectiveName {
  std::string_view name;
  CollectiveKind kind;
};
constexpr CollectiveName kCollectives[] = {{"allreduce", CollectiveKind::kAllReduce},
                                           {"allgather", CollectiveKind::kAllGather},
                                           {"reducescatter", CollectiveKind::kReduceScatter},
                                           {"alltoall", CollectiveKind::kAllToAll},
                                           {"barrier", CollectiveKind::kBarrier},
                                           {"bcast", CollectiveKind::kBroadcast},
                                           {"reduce", CollectiveKind::kReduce},
                                           {"gather", CollectiveKind::kGather},
                                           {"scatter", CollectiveKind::kScatter}};

CollectiveKind FindCollective(std::string_view name) {
  for (const CollectiveName& each : kCollectives)
    if (each.name == name) return each.kind;
  return CollectiveKind::kNone;
}

// One line: the words that stand alone, and the key=value ones. What nobody asks for is an error.
class Line {
 public:
  Line(std::vector<std::string> words) : words_(std::move(words)), used_(words_.size(), false) {
    if (!words_.empty()) used_[0] = true;
  }
  const std::string& verb() const { return words_[0]; }
  // The next unused plain word.
  std::optional<std::string> Plain() {
    for (std::size_t i = 1; i < words_.size(); ++i)
      if (!used_[i] && words_[i].find('=') == std::string::npos) {
        used_[i] = true;
        return words_[i];
      }
    return std::nullopt;
  }
  std::optional<std::string> Key(std::string_view key) {
    for (std::size_t i = 1; i < words_.size(); ++i)
      if (!used_[i] && words_[i].size() > key.size() && words_[i].compare(0, key.size(), key) == 0 &&
          words_[i][key.size()] == '=') {
        used_[i] = true;
        return words_[i].substr(key.size() + 1);
      }
    return std::nullopt;
  }
  template <typename Parse, typename T>
  void Read(const std::optional<std::string>& text, Parse parse, T* out) {
    if (text && !parse(*text, out)) Fail("cannot read '" + *text + "'");
  }
  template <typename T>
  void Int(const std::optional<std::string>& text, T* out) {
    if (!text) return;
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *out);
    if (error != std::errc() || end != text->data() + text->size()) Fail("not a number: '" + *text + "'");
  }
  std::string Need(std::optional<std::string> text, std::string_view what) {
    if (!text) Fail("needs " + std::string(what));
    return text.value_or("");
  }
  void Fail(std::string what) {
    if (error_.empty()) error_ = std::move(what);
  }
  std::string Finish() {
    for (std::size_t i = 0; i < words_.size(); ++i)
      if (!used_[i]) Fail("unknown word '" + words_[i] + "'");
    return error_;
  }

 private:
  std::vector<std::string> words_;
  std::vector<bool> used_;
  std::string error_;
};

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(separator, begin)) != std::string::npos; begin = at + 1)
    parts.push_back(text.substr(begin, at - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

class Parser {
 public:
  explicit Parser(Spec* spec) : spec_(*spec) { spec_.comms.push_back({.name = "world"}); }

  std::string Directive(Line& line);
  std::string Operation(Line& line, std::vector<Op>* body);

 private:
  std::size_t Comm(Line& line) {
    const auto name = line.Key("comm");
    if (!name) return 0;
    for (std::size_t i = 0; i < spec_.comms.size(); ++i)
      if (spec_.comms[i].name == *name) return i;
    line.Fail("unknown communicator '" + *name + "'");
    return 0;
  }
  void Kineto(Line& line);
  void Steps(Line& line, StepRange* range) {
    const auto text = line.Key("steps");
    if (!text) return;
    const auto parts = Split(*text, '-');
    line.Int(parts[0], &range->first);
    range->last = range->first;
    if (parts.size() > 1) line.Int(parts[1], &range->last);
  }
  bool CollectiveOperation(Line& line, std::vector<Op>* body);
  bool GpuOperation(Line& line, std::vector<Op>* body);

  Spec& spec_;
};

// One of several words by its place; an error if it is none of them.
template <typename Enum>
void Choose(Line& line, std::string_view key, std::initializer_list<std::string_view> words, Enum* out) {
  const auto text = line.Key(key);
  if (!text) return;
  const auto at = std::find(words.begin(), words.end(), *text);
  if (at == words.end()) return line.Fail("unknown " + std::string(key) + " '" + *text + "'");
  *out = static_cast<Enum>(at - words.begin());
}

void Parser::Kineto(Line& line) {
  KinetoSpec& k = spec_.kineto;
  k.on = true;
  std::uint8_t time = k.whole_microseconds ? 0 : 1, distributed = k.distributed_info, flows = k.flows, sync = k.sync,
               vendor = k.amd;
  Choose(line, "time", {"us", "ns"}, &time);
  Choose(line, "distributed", {"no", "yes"}, &distributed);
  Choose(line, "flows", {"no", "yes"}, &flows);
  Choose(line, "sync", {"no", "yes"}, &sync);
  Choose(line, "vendor", {"nvidia", "amd"}, &vendor);
  Choose(line, "nccl", {"none", "args", "seq"}, &k.nccl);
  Choose(line, "names", {"old", "device", "rccl"}, &k.names);
  Choose(line, "layout", {"flat", "folders"}, &k.layout);
  k.whole_microseconds = time == 0;
  k.distributed_info = distributed != 0;
  k.flows = flows != 0;
  k.sync = sync != 0;
  k.amd = vendor != 0;
  line.Int(line.Key("operators"), &k.operators);
  line.Int(line.Key("python"), &k.python);
  line.Int(line.Key("runtime"), &k.runtime);
  line.Int(line.Key("memory"), &k.memory);
  line.Int(line.Key("base"), &k.base_ns);
  while (const auto word = line.Plain()) {
    if (*word == "minified")
      k.minified = true;
    else if (*word == "gz")
      k.gzip = true;
    else
      line.Fail("unknown word '" + *word + "'");
  }
}

std::string Parser::Directive(Line& line) {
  const std::string& verb = line.verb();
  Spec& s = spec_;
  if (verb == "ranks")
    line.Int(line.Plain(), &s.ranks);
  else if (verb == "steps")
    line.Int(line.Plain(), &s.steps);
  else if (verb == "warmup")
    line.Int(line.Plain(), &s.warmup);
  else if (verb == "seed")
    line.Int(line.Plain(), &s.seed);
  else if (verb == "nodes")
    line.Int(line.Plain(), &s.nodes);
  else if (verb == "epoch")
    line.Read(line.Plain(), ParseDuration, &s.epoch_ns);
  else if (verb == "jitter")
    line.Read(line.Plain(), ParsePpm, &s.jitter_ppm);
  else if (verb == "poll")
    line.Read(line.Plain(), ParseDuration, &s.poll_ns);
  else if (verb == "gpu")
    s.gpu = true;
  else if (verb == "dispatch")
    line.Read(line.Plain(), ParseDuration, &s.dispatch_ns);
  else if (verb == "kineto")
    Kineto(line);
  else if (verb == "marks")
    s.marks = line.Plain() != "off";
  else if (verb == "clocks")
    s.clocks_separate = line.Plain() == "separate";
  else if (verb == "progress") {
    const std::string mode = line.Plain().value_or("");
    if (mode == "none")
      s.progress = Progress::kNone;
    else if (mode == "test")
      s.progress = Progress::kTest;
    else if (mode == "thread")
      s.progress = Progress::kThread;
    else
      line.Fail("progress is none, test or thread");
  } else if (verb == "network") {
    line.Read(line.Key("alpha"), ParseDuration, &s.alpha_ns);
    line.Read(line.Key("bandwidth"), ParseRate, &s.bandwidth);
    line.Read(line.Key("skew"), ParseDuration, &s.skew_ns);
    line.Read(line.Key("call"), ParseDuration, &s.call_ns);
  } else if (verb == "comm") {
    CommSpec comm{.name = line.Need(line.Plain(), "a name")};
    line.Int(line.Key("block"), &comm.block);
    line.Int(line.Key("stride"), &comm.stride);
    if (const auto list = line.Key("ranks"))
      for (const std::string& each : Split(*list, ',')) line.Int(std::optional(each), &comm.ranks.emplace_back());
    s.comms.push_back(std::move(comm));
  } else if (verb == "clock") {
    std::int32_t of = 0;
    const auto node = line.Key("node");
    line.Int(node ? node : std::optional(line.Need(line.Key("rank"), "rank= or node=")), &of);
    ClockSpec& clock = node ? s.node_clocks[of] : s.clocks[of];
    clock.own_domain = !node;
    line.Read(line.Key("offset"), ParseDuration, &clock.offset_ns);
    line.Read(line.Key("drift"), ParseDrift, &clock.drift_ppb);
    const auto pair = [&](std::string_view key, char separator, std::int64_t* first, std::int64_t* second) {
      if (const auto text = line.Key(key)) {
        const auto parts = Split(*text, separator);
        line.Read(std::optional(parts[0]), ParseDuration, first);
        line.Read(std::optional(parts.size() > 1 ? parts[1] : ""), ParseDuration, second);
      }
    };
    pair("wander", '/', &clock.wander_ns, &clock.wander_period_ns);
    pair("wander2", '/', &clock.wander2_ns, &clock.wander2_period_ns);
    pair("step", '@', &clock.step_ns, &clock.step_at_ns);
  } else if (verb == "bursts") {
    if (line.Plain() == "off") s.bursts_given = false;
    line.Read(line.Key("period"), ParseDuration, &s.bursts.period_ns);
    line.Int(line.Key("count"), &s.bursts.count);
    line.Read(line.Key("rtt"), ParseDuration, &s.bursts.rtt_ns);
    line.Read(line.Key("noise"), ParseDuration, &s.bursts.noise_ns);
    line.Read(line.Key("asymmetry"), ParseDuration, &s.bursts.asymmetry_ns);
  } else if (verb == "late" || verb == "slow" || verb == "starve") {
    Disturbance d;
    line.Int(std::optional(line.Need(line.Key("rank"), "rank=")), &d.rank);
    if (verb == "late")
      line.Read(std::optional(line.Need(line.Key("by"), "by=")), ParseDuration, &d.by_ns);
    else
      line.Read(std::optional(line.Need(line.Key("factor"), "factor=")), ParsePpm, &d.factor_ppm);
    Steps(line, &d.steps);
    d.at = line.Key("at").value_or("");
    (verb == "late" ? s.late : verb == "slow" ? s.slow : s.starve).push_back(d);
  } else if (verb == "missing") {
    line.Int(line.Key("rank"), &s.missing.emplace_back());
  } else if (verb == "died" || verb == "cut") {
    EndSpec& end = s.ends.emplace_back(EndSpec{.cut = verb == "cut"});
    line.Int(line.Key("rank"), &end.rank);
    line.Int(line.Key("step"), &end.step);
    line.Int(line.Key("signal"), &end.signal);
  } else if (verb == "delete" || verb == "drop") {
    Damage& damage = s.damage.emplace_back(Damage{.counted = verb == "drop"});
    line.Int(line.Key("rank"), &damage.rank);
    damage.table = line.Need(line.Key("table"), "table=");
    line.Int(line.Key("row"), &damage.row);
    line.Int(line.Key("count"), &damage.count);
  } else {
    line.Fail("unknown directive '" + verb + "'");
  }
  return line.Finish();
}

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
  if (collective != CollectiveKind::kBarrier)
    line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
  op.comm = Comm(line);
  line.Int(line.Key("root"), &op.root);
  op.name = line.Key("as").value_or("");
  if (kind == OpKind::kInit && op.name.empty()) line.Fail("needs as=NAME");
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
    line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
    op.comm = Comm(line);
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
  } else {
    return false;
  }
  line.Read(line.Key("launch"), ParseDuration, &op.launch_ns);
  if (!spec_.gpu) line.Fail("needs `gpu` before it");
  body->push_back(op);
  return true;
}

std::string Parser::Operation(Line& line, std::vector<Op>* body) {
  const std::string& verb = line.verb();
  static constexpr std::pair<std::string_view, std::uint8_t> kPhases[] = {
      {"compute", 0}, {"input", 1}, {"forward", 2}, {"backward", 3}, {"optimizer", 4}};
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
    const std::size_t comm = Comm(line);
    const auto sizes = Split(*buckets, ',');
    const auto n = static_cast<std::int64_t>(sizes.size());
    body->push_back({.kind = OpKind::kPush, .name = op.name, .category = category});
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
    return line.Finish();
  }
  Op op{};
  if (verb == "other" || verb == "io" || verb == "rma") {
    op.kind = OpKind::kOther;
    op.mpi = verb == "io" ? MpiOp::kFile_write_all : verb == "rma" ? MpiOp::kWin_fence : MpiOp::kOther;
    line.Read(line.Plain(), ParseDuration, &op.duration_ns);
  } else if (verb == "push") {
    op.kind = OpKind::kPush;
    op.name = line.Need(line.Plain(), "a name");
  } else if (verb == "pop") {
    op.kind = OpKind::kPop;
  } else if (verb == "wait" || verb == "waitall") {
    op.kind = OpKind::kWait;
    if (verb == "wait") op.name = line.Need(line.Plain(), "a name");
  } else if (verb == "test") {
    op.kind = OpKind::kTest;
  } else if (verb == "ring") {
    op.kind = OpKind::kRing;
    line.Read(std::optional(line.Need(line.Plain(), "a size")), ParseBytes, &op.bytes);
    line.Int(line.Key("shift"), &op.shift);
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
  } else if (GpuOperation(line, body) || CollectiveOperation(line, body)) {
    return line.Finish();
  } else {
    line.Fail("unknown operation '" + verb + "'");
  }
  body->push_back(op);
  return line.Finish();
}

std::string CheckSpec(const Spec& spec) {
  if (spec.ranks < 1 || spec.ranks > 1'000'000) return "ranks out of range";
  if (spec.steps < 0 || spec.nodes < 1 || spec.poll_ns < 1 || spec.call_ns < 0) return "a count is out of range";
  for (const EndSpec& end : spec.ends)
    if (end.rank < 0 || end.rank >= spec.ranks) return "died/cut: no such rank";
  for (const CommSpec& comm : spec.comms)
    for (const std::int32_t rank : comm.ranks)
      if (rank < 0 || rank >= spec.ranks) return "comm: no such rank";
  const KinetoSpec& k = spec.kineto;
  if (k.on && !spec.gpu) return "kineto needs `gpu`: torch.profiler sees no MPI";
  if (std::min({k.operators, k.python, k.runtime, k.memory}) < 0 || std::max({k.operators, k.python, k.runtime}) > 1000)
    return "kineto: a count is out of range";
  for (const Op& op : spec.step)
    if (op.kind == OpKind::kInit) return "persistent operations are initialised in setup";
  return "";
}

}  // namespace

std::int32_t Spec::DomainOf(std::int32_t rank) const {
  const auto at = clocks.find(rank);
  if (clocks_separate || (at != clocks.end() && at->second.own_domain)) return nodes + rank;
  return NodeOf(rank);
}

Result<Spec> ParseSpec(std::string_view text, std::string_view file_name, const std::vector<std::string>& sets) {
  Spec spec;
  Parser parser(&spec);
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> overrides;
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos) return Error{ErrorCode::kUsage, "--set needs KEY=VALUE", set, ""};
    overrides[set.substr(0, equals)] = set.substr(equals + 1);
  }
  std::vector<Op>* body = nullptr;
  struct Repeat {
    std::size_t begin;
    std::int64_t times;
  };
  std::vector<Repeat> repeats;
  const auto fail = [&](std::size_t number, const std::string& what) {
    return Error{ErrorCode::kMalformed, what, fmt::format("{}:{}", file_name, number), "see tests/make_run/README.md"};
  };
  std::size_t number = 0;
  const auto handle = [&](std::vector<std::string> words) -> std::string {
    for (std::string& word : words)
      for (std::size_t dollar; (dollar = word.find('$')) != std::string::npos;) {
        std::size_t end = dollar + 1;
        while (end < word.size() && (std::isalnum(static_cast<unsigned char>(word[end])) || word[end] == '_')) ++end;
        const auto at = variables.find(word.substr(dollar + 1, end - dollar - 1));
        if (at == variables.end()) return "unknown variable in '" + word + "'";
        word = word.substr(0, dollar) + at->second + word.substr(end);
      }
    Line line(std::move(words));
    const std::string& verb = line.verb();
    if (verb == "let") {
      const std::string name = line.Need(line.Plain(), "a name");
      const std::string value = line.Need(line.Plain(), "a value");
      const auto override_at = overrides.find(name);
      variables[name] = override_at == overrides.end() ? value : override_at->second;
      overrides.erase(name);
      return line.Finish();
    }
    if (body == nullptr) {
      if (verb == "setup")
        body = &spec.setup;
      else if (verb == "step")
        body = &spec.step;
      else if (verb == "teardown")
        body = &spec.teardown;
      else {
        const auto override_at = overrides.find(verb);
        if (override_at == overrides.end()) return parser.Directive(line);
        Line replaced({verb, override_at->second});
        overrides.erase(override_at);
        return parser.Directive(replaced);
      }
      return line.Finish();
    }
    if (verb == "repeat") {
      std::int64_t times = 0;
      line.Int(line.Plain(), &times);
      repeats.push_back({body->size(), times});
      return line.Finish();
    }
    if (verb == "end") {
      if (repeats.empty()) {
        body = nullptr;
        return line.Finish();
      }
      const std::vector<Op> once(body->begin() + static_cast<std::ptrdiff_t>(repeats.back().begin), body->end());
      body->resize(repeats.back().begin);
      for (std::int64_t i = 0; i < repeats.back().times; ++i) body->insert(body->end(), once.begin(), once.end());
      repeats.pop_back();
      return line.Finish();
    }
    return parser.Operation(line, body);
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::vector<std::string> words = Words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (words.empty()) continue;
    if (const std::string error = handle(std::move(words)); !error.empty()) return fail(number, error);
  }
  if (body != nullptr) return fail(number, "a body is not closed by `end`");
  // Directives that the text leaves at their defaults can be set as well.
  for (const auto& [key, value] : overrides) {
    Line line({key, value});
    if (const std::string error = parser.Directive(line); !error.empty()) return fail(0, "--set " + key + ": " + error);
  }
  if (const std::string error = CheckSpec(spec); !error.empty()) return fail(number, error);
  return spec;
}

}  // namespace lockstep::make_run
