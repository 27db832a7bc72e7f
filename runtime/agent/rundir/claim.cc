#include "runtime/agent/rundir/claim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <string_view>

#include "comms/launch/launch_env.h"
#include "core/own_file.h"
#include "core/rank_name.h"
#include "runtime/agent/rundir/process_state.h"
#include "trace/decode/tick_rate.h"

namespace lockstep::agent {
namespace {

// All words have the same length, so that writing the last one needs no space on a disk that is full by then.
constexpr std::string_view kRunning = "running\n", kDone = "done   \n", kFailed = "failed \n";

}  // namespace

std::string ClaimPath(const std::string& run_dir, std::int32_t slot) {
  return run_dir + "/ranks/.agent-" + FiveDigits(slot);
}

std::string ParentProcess(const launch::LaunchEnv& launch) {
  const long parent = launch.parent;
  const std::string start = ProcessStart(parent);
  // Process 1 adopts orphans, so it does not identify the process that started the agent.
  return parent <= 1 || start.empty() ? std::string() : std::to_string(parent) + "." + start + "." + PidNamespace();
}

Claim ReadClaim(const std::string& path) {
  Claim claim;
  const OwnedFd fd = OpenPlain(path, O_RDONLY);
  if (!fd.open()) return claim;
  std::istringstream lines(ReadUpTo(fd.get(), 0, 1024));
  std::string state, key, value;
  lines >> state;
  claim.state = state == "done"     ? ClaimState::kDone
                : state == "failed" ? ClaimState::kFailed
                                    : ClaimState::kRunning;  // An empty file was made when the disk was full.
  bool locked = false;
  while (lines >> key >> value) {
    if (key == "host") claim.host = value;
    if (key == "boot") claim.boot_id = value;
    if (key == "parent") claim.parent = value;
    if (key == "lock") locked = value == "ofd";
    if (key == "world") claim.world_size = std::atoi(value.c_str());
  }
  const Locked asked = AskExclusive(fd.get());
  claim.held = asked == Locked::kHeld;
  // An NFS mount with local_lock does not show the locks of other machines.
  claim.proved = claim.held || (locked && asked == Locked::kYes && claim.boot_id == trace::BootId());
  return claim;
}

Claimed MakeClaim(const std::string& path, const launch::LaunchEnv& launch, std::shared_ptr<const OwnedFd>* held,
                  int* error) {
  std::string fresh;
  OwnedFd fd = CreateBeside(path, 0644, &fresh);
  if (!fd.open()) {
    *error = errno;
    return Claimed::kNo;
  }
  std::string text(kRunning);
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += std::string(key) + " " + value + "\n";
  };
  add("host", HostName());
  add("boot", trace::BootId());
  add("lock", TryLockExclusive(fd.get()) == Locked::kYes ? "ofd" : "none");
  add("world", std::to_string(launch.slots()));
  add("parent", ParentProcess(launch));
  const ssize_t ignored = ::write(fd.get(), text.data(), text.size());
  static_cast<void>(ignored);
  *error = MoveNew(fresh, path);
  if (*error != 0) {
    ::unlink(fresh.c_str());
    return *error == EEXIST ? Claimed::kTaken : Claimed::kNo;
  }
  *held = std::make_shared<const OwnedFd>(std::move(fd));
  return Claimed::kYes;
}

void EndClaim(const OwnedFd& held, bool done) {
  const std::string_view word = done ? kDone : kFailed;
  const ssize_t ignored = ::pwrite(held.get(), word.data(), word.size(), 0);
  static_cast<void>(ignored);
}

}  // namespace lockstep::agent
