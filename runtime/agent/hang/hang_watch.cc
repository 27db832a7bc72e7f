#include "runtime/agent/hang/hang_watch.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/own_file.h"
#include "core/printed.h"
#include "runtime/agent/inject/libraries.h"
#include "runtime/agent/rings/segment_entries.h"
#include "runtime/agent/rundir/claim.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::agent {
namespace {

// When it asks, in multiples of --hang-after: at the allowances of hang/alarm.h, between the last two of them for waits
// that are compared with earlier ones, and seldom after them, because each answer reads what all ranks have recorded.
constexpr std::array<double, 10> kStages = {1, 2.5, 4, 6, 12, 24, 48, 96, 192, 384};
// It takes seconds as a rule, and minutes for a long run of thousands of ranks.
constexpr std::int64_t kLongestAnswerNs = 600'000'000'000;
constexpr std::uint64_t kLargeBytes = std::uint64_t{4} << 30;  // Recorded by all ranks.
constexpr std::size_t kFirstOfLarge = 3;                       // Of kStages.
constexpr std::int64_t kShortestPauseNs = 2'000'000'000, kLongestPauseNs = 60'000'000'000;
// A file of a shared file system is asked for seldom.
constexpr std::int64_t kWordPeriodNs = 5'000'000'000;
// Until slots that do not see this directory have given what they recorded (so_far.h): with stacks, and as all do so at
// about the same time.
constexpr std::int64_t kGivenWithinNs = 6'000'000'000;
// A job that somebody ends makes records, too.
constexpr std::int64_t kGoesOnNs = 3'000'000'000;
// Stacks are taken so long before they are asked for, or in half of the time if that is less: their names take a
// moment.
constexpr std::int64_t kStacksAheadNs = 2'000'000'000;
// A wait is as long as what is in the spool shows: the agent's samples are that old at most.
constexpr std::int64_t kSampleAgeNs = 300'000'000;
constexpr std::size_t kMostText = 16384, kMostJson = std::size_t{64} << 20, kMostHost = 512;
constexpr int kExitHang = 4;  // Of `lockstep hang`.

constexpr const char* kTurn = ".hang-turn";     // Locked by the agent that asks.
constexpr const char* kNow = ".hang-now";       // There while a hang has been said and nothing has moved since: where.
constexpr const char* kAgain = ".hang-again";   // There while another host's agent has repeated it.
constexpr const char* kNewText = ".hang-text";  // Answers until they are whole.
constexpr const char* kNewJson = ".hang-json";
constexpr const char* kText = "hang.txt";
constexpr const char* kJson = "hang.json";

std::string SecondsText(std::int64_t ns) { return std::to_string(ns / 1'000'000'000); }

// The threads of the slot that are inside a call or a range. One that computes outside of both waits for nobody; one
// that sleeps in a system call may wait for what another thread does (PyTorch's over gloo).
struct InsideNow {
  bool any = false;
  std::uint64_t since_ticks = 0;  // The one that has been inside its call, or asked for it, for longest; 0: none is.
};
InsideNow InsideOf(const SegmentView& segment) {
  InsideNow inside;
  for (const RingEntry& entry : UsedRings(segment)) {
    if (entry.state.load(std::memory_order_acquire) != SlotState::kActive) continue;
    const std::uint64_t offset = entry.offset;
    if (offset < kArenaOffset || offset > segment.bytes - kRingHeaderBytes) continue;
    const RingHeader& ring = segment.ring(offset);
    const bool polls = ring.polls.calls != 0, calls = ring.call_op.load(std::memory_order_relaxed) != 0;
    inside.any |= polls || calls || ring.range_depth != 0 || ring.watched_depth != 0 || ring.nvtx_depth != 0;
    if (!polls && !calls) continue;
    const std::uint64_t since = polls ? ring.polls.first_ticks : ring.call_begin_ticks.load(std::memory_order_relaxed);
    if (inside.since_ticks == 0 || since < inside.since_ticks) inside.since_ticks = since;
  }
  return inside;
}

// Whether the network between the hosts may be what stopped: then an answer of this host may not come through either.
bool NetworkMayBe(const std::string& json) {
  const nlohmann::json answer = nlohmann::json::parse(json, nullptr, false);
  if (!answer.is_object() || !answer.contains("verdicts") || !answer["verdicts"].is_array()) return false;
  return std::any_of(answer["verdicts"].begin(), answer["verdicts"].end(), [](const nlohmann::json& verdict) {
    const auto cause = verdict.find("cause");
    return cause != verdict.end() && (*cause == "all_inside" || *cause == "behind_on_gpu");
  });
}

// Of what is no wait yet in an answer, for how long it has been open; -1: there is nothing of that.
std::int64_t OldestYoung(const std::string& json) {
  const nlohmann::json answer = nlohmann::json::parse(json, nullptr, false);
  const auto ns = answer.is_object() ? answer.find("oldest_young_ns") : answer.end();
  return ns != answer.end() && ns->is_number_integer() ? ns->get<std::int64_t>() : -1;
}

// A single process waits for nobody.
bool Several(const SegmentView& segment) {
  std::size_t active = 0;
  for (const ProcessEntry& entry : UsedProcesses(segment))
    active += entry.state.load(std::memory_order_acquire) == SlotState::kActive;
  return active > 1;
}

}  // namespace

std::optional<OnHang> OnHangOf(std::string_view text) {
  if (text == "report") return OnHang{};
  if (text == "abort") return OnHang{.signal = SIGABRT};
  constexpr std::string_view kSignal = "signal:";
  if (!text.starts_with(kSignal)) return std::nullopt;
  text.remove_prefix(kSignal.size());
  int number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc{} || read.ptr != text.data() + text.size() || number < 1 || number > SIGRTMAX)
    return std::nullopt;
  return OnHang{.signal = number, .every = true};
}

bool HangIsSaid(const std::string& run_dir) {
  struct stat ignored {};
  return ::stat((run_dir + "/" + kNow).c_str(), &ignored) == 0;
}

HangWatch::HangWatch(Setup setup) : setup_(std::move(setup)) {
  const OwnedFd directory(::open(setup_.run_dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  no_locks_ = directory.open() && LocksMayHang(directory.get());
}

HangWatch::~HangWatch() { Forget(); }

void HangWatch::Look(const SegmentView& segment, std::int64_t now_ns, const Seen& seen) {
  if (setup_.stacks != nullptr) setup_.stacks->Poll();
  HearOthers(segment, now_ns);
  // Rank 0 may ask for a message again and again, and be who the others wait for, or wait for one of them.
  const bool others = setup_.slot == 0 && setup_.others_quiet && setup_.others_quiet();
  const bool moved = std::exchange(records_, seen.records) != seen.records && !others;
  if (said_ && moved && moved_ns_ == 0) moved_ns_ = now_ns;
  if (moved_ns_ != 0) {
    if (now_ns - moved_ns_ >= kGoesOnNs) SayItMoved();
    return;
  }
  const bool in_vain = PollsInVain(now_ns, seen);
  if (moved || seen.records == 0 || !AnyRecording(segment)) {
    if (setup_.so_far != nullptr && in_vain && AnyRecording(segment))
      setup_.so_far->Offer(now_ns, seen.spool_bytes);
    else if (setup_.so_far != nullptr)
      setup_.so_far->TakeBack(now_ns);
    ForgetStacks();
    return Forget();
  }
  const InsideNow inside = InsideOf(segment);
  const bool entered = std::exchange(inside_since_ticks_, inside.since_ticks) < inside.since_ticks && !others;
  if (quiet_since_ns_ == 0 || (entered && !said_)) {  // Until then it computed.
    EndAsked();
    ForgetStacks();
    quiet_since_ns_ = now_ns;
    stage_ = 0;
    again_ns_ = 0;
  }
  if (asked_ > 0) return TakeAnswer(now_ns);
  const std::int64_t quiet_ns = now_ns - quiet_since_ns_;
  if (setup_.stacks != nullptr && quiet_ns >= setup_.after_ns - std::min(kStacksAheadNs, setup_.after_ns / 2))
    setup_.stacks->Take(segment, now_ns);
  if (quiet_ns < setup_.after_ns) return;
  if (setup_.action.signal != 0 && setup_.action.every) FollowOthers(now_ns);
  const bool stacks_come = setup_.stacks != nullptr && setup_.stacks->fresh(now_ns);
  if (setup_.so_far != nullptr && !stacks_come) setup_.so_far->Offer(now_ns, seen.spool_bytes);
  // Rank 0's agent sees this slot, and answers for it.
  if (setup_.so_far != nullptr && setup_.so_far->there()) return;
  const auto quiet = static_cast<double>(quiet_ns - kSampleAgeNs), after = static_cast<double>(setup_.after_ns);
  const bool again = again_ns_ != 0 && now_ns >= again_ns_;
  if (said_ || stage_ == kStages.size() || (quiet < kStages[stage_] * after && !again)) return;
  // Of a long run it takes minutes to read what all have recorded: not for what may be a checkpoint.
  const bool large = seen.spool_bytes * static_cast<std::uint64_t>(setup_.slots) > kLargeBytes;
  if (large && quiet < kStages[kFirstOfLarge] * after) return;
  // The answer shows the stacks of all.
  if (!MayAsk(segment, inside.any || seen.blocked, others) || stacks_come || !TakeTurn(now_ns)) return;
  // By the one that asks: of thousands of ranks this takes a shared file system seconds.
  if (!elsewhere_) elsewhere_ = SomeElsewhere();
  if (*elsewhere_ && quiet - static_cast<double>(kGivenWithinNs) < kStages[stage_] * after) return;
  while (stage_ < kStages.size() && kStages[stage_] * after <= quiet) ++stage_;
  asked_again_ = again;
  again_ns_ = 0;
  asked_ns_ = now_ns;
  Ask();
}

bool HangWatch::PollsInVain(std::int64_t now_ns, const Seen& seen) {
  const std::uint64_t work = seen.records - seen.polls - seen.blocks;
  if (std::exchange(work_, work) != work || worked_ns_ == 0) worked_ns_ = now_ns;
  return seen.polls != 0 && now_ns - worked_ns_ >= setup_.after_ns;
}

bool HangWatch::SomeElsewhere() const {
  struct stat ignored {};
  for (std::int32_t slot = 0; slot < setup_.slots; ++slot)
    if (::stat(ClaimPath(setup_.run_dir, slot).c_str(), &ignored) != 0) return true;
  return false;
}

// Without locks nobody knows of the others, and only the first agent asks: for its own rank and for all others.
bool HangWatch::MayAsk(const SegmentView& segment, bool waits, bool others) const {
  if (setup_.slots < 2 && !Several(segment)) return false;
  if (others) return true;
  return no_locks_ ? setup_.slot == 0 : waits;
}

void HangWatch::Ended(std::int64_t now_ns, std::uint64_t records) {
  if (moved_ns_ == 0 && records != records_) moved_ns_ = now_ns;
  if (said_ && moved_ns_ != 0) SayItMoved();
}

void HangWatch::SayItMoved() {
  const std::string line = "it moved again after " + SecondsText(moved_ns_ - quiet_since_ns_) + " s";
  setup_.say(line);
  if (const OwnedFd text = OpenOwn(Path(kText), O_WRONLY | O_APPEND); text.open()) WriteAll(text.get(), line + "\n");
  ForgetStacks();
  Forget();
}

// Those of a program that has ended stay: they tell where it stood.
void HangWatch::ForgetStacks() {
  if (setup_.stacks != nullptr && setup_.stacks->taken() && !asked_for_stacks_) setup_.stacks->Forget();
}

void HangWatch::Forget() {
  EndAsked();
  if (said_) {
    RemoveOwn(Path(kNow));
    RemoveOwn(Path(kAgain));
  }
  if (turn_.open()) RemoveOwn(Path(kTurn));
  turn_.Reset();
  said_ = signalled_ = false;
  stage_ = 0;
  again_ns_ = 0;
  elsewhere_.reset();
  inside_since_ticks_ = 0;
  quiet_since_ns_ = moved_ns_ = next_try_ns_ = pause_ns_ = 0;
}

void HangWatch::EndAsked() {
  if (asked_ <= 0) return;
  ::kill(asked_, SIGKILL);
  ::waitpid(asked_, nullptr, 0);
  asked_ = -1;
  RemoveOwn(Path(kNewText));
  RemoveOwn(Path(kNewJson));
}

// The lock ends with its agent, so that another one asks after that. Thousands of agents may wait for it on one file
// system: they try ever more seldom.
bool HangWatch::TakeTurn(std::int64_t now_ns) {
  if (turn_.open()) return true;
  if (now_ns < next_try_ns_) return false;
  pause_ns_ = std::clamp(2 * pause_ns_, kShortestPauseNs, kLongestPauseNs);
  next_try_ns_ = now_ns + pause_ns_;
  const std::string path = Path(kTurn);
  OwnedFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file.open()) return false;
  const Locked locked = TryLockExclusive(file.get());
  no_locks_ = locked == Locked::kUnsupported;
  if (locked == Locked::kHeld || (no_locks_ && setup_.slot != 0)) return false;
  // Its last holder may have removed it meanwhile.
  struct stat mine {
  }, named{};
  if (::fstat(file.get(), &mine) != 0 || ::stat(path.c_str(), &named) != 0 || mine.st_ino != named.st_ino) return false;
  turn_ = std::move(file);
  return true;
}

void HangWatch::Ask() {
  const std::string self = setup_.program.empty() ? SelfPath() : setup_.program, text = Path(kNewText),
                    json = Path(kNewJson);
  char after[32];
  std::snprintf(after, sizeof after, "%.3f", static_cast<double>(setup_.after_ns) / 1e9);
  const std::array<const char*, 9> words = {
      self.c_str(), "hang", setup_.run_dir.c_str(), "--alarm-after", after, "-j", "1", "--json", json.c_str()};
  std::array<char*, words.size() + 1> argv{};
  for (std::size_t i = 0; i < words.size(); ++i) argv[i] = const_cast<char*>(words[i]);
  RemoveOwn(text);
  const pid_t parent = ::getpid();
  asked_ = ::fork();
  if (asked_ != 0) return;
  setup_.restore_signals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  // Ranks that wait in MPI poll on all cores. Beside one of them 19 is given 1.5 % of a core, so that a second of work
  // would take a minute.
  ::setpriority(PRIO_PROCESS, 0, 5);
  constexpr int kWhoProcess = 1, kIdleClass = 3 << 13;  // ioprio_set(2)
  ::syscall(SYS_ioprio_set, kWhoProcess, 0, kIdleClass);
  const int out = ::open(text.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0644);
  const int null = ::open("/dev/null", O_RDWR);
  if (out < 0 || null < 0) ::_exit(1);
  ::dup2(null, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(null, STDERR_FILENO);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

void HangWatch::TakeAnswer(std::int64_t now_ns) {
  int status = 0;
  const pid_t got = ::waitpid(asked_, &status, WNOHANG);
  if (got == 0 && now_ns - asked_ns_ < kLongestAnswerNs) return;
  if (got == 0) return EndAsked();
  asked_ = -1;
  if (got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == kExitHang) return Publish(now_ns);
  // Who came to its wait later than this rank did waits for long soon, too.
  const std::int64_t young_ns = OldestYoung(ReadPlain(Path(kNewJson), kMostJson));
  if (young_ns >= 0 && young_ns < setup_.after_ns && !asked_again_)
    again_ns_ = asked_ns_ + setup_.after_ns - young_ns + kSampleAgeNs;
  RemoveOwn(Path(kNewText));
  RemoveOwn(Path(kNewJson));
}

void HangWatch::Publish(std::int64_t now_ns) {
  const std::string text = ReadPlain(Path(kNewText), kMostText);
  const bool network = NetworkMayBe(ReadPlain(Path(kNewJson), kMostJson));
  MoveOver(Path(kNewText), Path(kText));
  MoveOver(Path(kNewJson), Path(kJson));
  said_ = true;
  setup_.say("nothing has moved for " + SecondsText(now_ns - quiet_since_ns_) + " s (" + Path(kText) + "):");
  SayText(text);
  RemoveOwn(Path(kAgain));  // Of one that has ended since.
  CreateFile(Path(kNow), network ? setup_.host + "\n" + trace::BootId() + "\n" : "", 0644);
  if (setup_.action.signal != 0 && !setup_.action.every) setup_.signal(setup_.action.signal);
}

void HangWatch::SayText(std::string_view rest) const {
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    setup_.say(std::string(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

void HangWatch::RepeatOthers() {
  if (said_ || repeated_) return;
  const std::string now = ReadPlain(Path(kNow), kMostHost);
  const std::string host = now.substr(0, now.find('\n'));
  if (host.empty() || now == setup_.host + "\n" + trace::BootId() + "\n") return;
  repeated_ = true;
  if (CreateFile(Path(kAgain), "", 0644) != 0) return;  // One of them is enough.
  setup_.say("an agent on " + Printed(host) + ", which may not be heard, found that nothing moves (" + Path(kText) +
             "):");
  SayText(ReadPlain(Path(kText), kMostText));
}

// Who makes records all the time is never quiet, and may be who the others wait for.
void HangWatch::HearOthers(const SegmentView& segment, std::int64_t now_ns) {
  if (setup_.slots < 2 || now_ns < next_word_ns_) return;
  next_word_ns_ = now_ns + kWordPeriodNs;
  const bool said = HangIsSaid(setup_.run_dir);
  if (said)
    RepeatOthers();
  else
    repeated_ = false;
  if (setup_.stacks == nullptr) return;
  if (said && !setup_.stacks->taken()) {
    setup_.stacks->Take(segment, now_ns);
    asked_for_stacks_ = true;
  }
  if (!said && std::exchange(asked_for_stacks_, false)) setup_.stacks->Forget();
}

void HangWatch::FollowOthers(std::int64_t now_ns) {
  if (signalled_) return;
  const bool elsewhere = setup_.so_far != nullptr && setup_.so_far->SaidElsewhere(now_ns, setup_.slots);
  if (!elsewhere && !HangIsSaid(setup_.run_dir)) return;
  signalled_ = true;
  setup_.signal(setup_.action.signal);
}

}  // namespace lockstep::agent
