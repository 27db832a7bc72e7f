// Lines before the bodies.

#include <algorithm>
#include <filesystem>
#include <initializer_list>

#include "core/schema_enums.h"
#include "make_run/parser.h"

namespace lockstep::make_run {
namespace {

struct WaitKind {
  std::string_view word, function;
  std::uint8_t kind;
};
constexpr WaitKind kWaitKinds[] = {{"sleep", "clock_nanosleep", schema::BlockedKind::kSleep},
                                   {"lock", "pthread_mutex_lock", schema::BlockedKind::kLock},
                                   {"condition", "pthread_cond_wait", schema::BlockedKind::kCondition},
                                   {"semaphore", "sem_wait", schema::BlockedKind::kSemaphore},
                                   {"python", "pthread_cond_timedwait", schema::BlockedKind::kPython},
                                   {"join", "pthread_join", schema::BlockedKind::kJoin},
                                   {"child", "waitpid", schema::BlockedKind::kChild},
                                   {"file", "fsync", schema::BlockedKind::kFile},
                                   {"socket", "recv", schema::BlockedKind::kSocket},
                                   {"other", "epoll_wait", schema::BlockedKind::kOther}};

// What `stall` leaves in the table `blocked`.
std::optional<WaitRow> Wait(Line& line) {
  const auto word = line.Key("kind");
  if (!word) return std::nullopt;
  const auto known = std::find_if(std::begin(kWaitKinds), std::end(kWaitKinds),
                                  [&](const WaitKind& one) { return one.word == *word; });
  if (known == std::end(kWaitKinds)) {
    line.Fail("unknown kind '" + *word + "'");
    return std::nullopt;
  }
  WaitRow row{.kind = known->kind, .function = line.Key("function").value_or(std::string(known->function))};
  row.detail = line.Key("detail").value_or("");
  row.where = line.Key("where").value_or("");
  line.Read(line.Key("others"), ParseDuration, &row.others_cpu_ns);
  return row;
}

// One of several words by its place; an error if it is none of them.
template <typename Enum>
void Choose(Line& line, std::string_view key, std::initializer_list<std::string_view> words, Enum* out) {
  const auto text = line.Key(key);
  if (!text) return;
  const auto at = std::find(words.begin(), words.end(), *text);
  if (at == words.end()) return line.Fail("unknown " + std::string(key) + " '" + *text + "'");
  *out = static_cast<Enum>(at - words.begin());
}

}  // namespace

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

void Parser::Resampled(Line& line) {
  const std::filesystem::path given = line.Need(line.Plain(), "a file");
  Result<Resample> read = Resample::Read((std::filesystem::path(file_name_).parent_path() / given).string());
  if (!read.ok()) return line.Fail(read.error().what + ": " + read.error().where);
  line.Int(line.Key("block"), &read.value().block);
  line.Read(line.Key("scale"), ParsePpm, &read.value().scale_ppm);
  if (read.value().block < 1) line.Fail("block= needs a positive number");
  spec_.resample = std::make_shared<const Resample>(std::move(read).value());
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
  else if (verb == "gloo")
    s.gloo = true;
  else if (verb == "dispatch")
    line.Read(line.Plain(), ParseDuration, &s.dispatch_ns);
  else if (verb == "sensors") {
    s.sensors.period_ns = 100'000'000;
    line.Read(line.Key("period"), ParseDuration, &s.sensors.period_ns);
    line.Int(line.Key("clock"), &s.sensors.clock_mhz);
  } else if (verb == "throttle") {
    ThrottleSpec throttle;
    line.Int(std::optional(line.Need(line.Key("rank"), "rank=")), &throttle.rank);
    line.Int(line.Key("clock"), &throttle.clock_mhz);
    line.Int(line.Key("reasons"), &throttle.reasons);
    s.throttled.push_back(throttle);
  } else if (verb == "stacks") {
    StackSpec stacks;
    line.Int(std::optional(line.Need(line.Key("rank"), "rank=")), &stacks.rank);
    line.Int(line.Key("compared"), &stacks.compared);
    line.Read(line.Key("period"), ParseDuration, &stacks.period_ns);
    if (stacks.period_ns <= 0) line.Fail("period= needs some time");
    s.stacks.push_back(stacks);
  } else if (verb == "kineto")
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
    else if (mode == "helper")
      s.progress = Progress::kHelper;
    else
      line.Fail("progress is none, test, thread or helper");
  } else if (verb == "network") {
    line.Read(line.Key("alpha"), ParseDuration, &s.alpha_ns);
    line.Read(line.Key("bandwidth"), ParseRate, &s.bandwidth);
    line.Read(line.Key("skew"), ParseDuration, &s.skew_ns);
    line.Read(line.Key("call"), ParseDuration, &s.call_ns);
    line.Read(line.Key("noise"), ParsePpm, &s.noise_ppm);
    if (const auto by = line.Key("collectives")) {
      s.moves = *by == "pairs" ? Moves::kPairs : *by == "tree" ? Moves::kTree : Moves::kRing;
      if (s.moves == Moves::kRing && *by != "ring") line.Fail("collectives= needs ring, pairs or tree");
    }
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
  } else if (verb == "resample") {
    Resampled(line);
  } else if (verb == "link") {
    LinkSpec& link = s.links.emplace_back();
    line.Int(line.Key("node"), &link.node);
    if (link.node < 0) {
      line.Int(std::optional(line.Need(line.Key("rank"), "rank=")), &link.from);
      line.Int(std::optional(line.Need(line.Key("to"), "to=")), &link.to);
    } else if (const auto word = line.Plain()) {
      link.only_out = *word == "out";
      if (!link.only_out) line.Fail("unknown word '" + *word + "'");
    }
    line.Read(line.Key("bandwidth"), ParseRate, &link.bandwidth);
    if (link.bandwidth <= 0)
      line.Read(std::optional(line.Need(line.Key("by"), "by= or bandwidth=")), ParseDuration, &link.by_ns);
  } else if (verb == "late" || verb == "slow" || verb == "starve" || verb == "stall") {
    Disturbance d;
    line.Int(std::optional(line.Need(line.Key("rank"), "rank=")), &d.rank);
    if (verb == "late" || verb == "stall")
      line.Read(std::optional(line.Need(line.Key("by"), "by=")), ParseDuration, &d.by_ns);
    else
      line.Read(std::optional(line.Need(line.Key("factor"), "factor=")), ParsePpm, &d.factor_ppm);
    Steps(line, &d.steps);
    d.at = line.Key("at").value_or("");
    if (verb == "stall") d.wait = Wait(line);
    (verb == "late" ? s.late : verb == "slow" ? s.slow : verb == "stall" ? s.stall : s.starve).push_back(d);
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

}  // namespace lockstep::make_run
