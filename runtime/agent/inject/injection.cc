#include "runtime/agent/inject/injection.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "core/env.h"
#include "core/own_file.h"
#include "core/ring_layout.h"
#include "runtime/agent/inject/elf_file.h"
#include "runtime/agent/inject/gpu_injection.h"
#include "runtime/agent/rundir/list_entries.h"

extern char** environ;

namespace lockstep::agent {
namespace {

constexpr const char* kNvtx = "NVTX_INJECTION64_PATH";
constexpr const char* kPython = "PYTHONPATH";
constexpr const char* kAsan = "ASAN_OPTIONS";

std::string Directory(const std::string& path) { return path.substr(0, path.rfind('/')); }

// ld.so(8) splits LD_PRELOAD at colons and spaces and has no quoting, so the libraries are reached through a link whose
// name needs none. The link's name is unique, so that no other process can have created it.
std::string LinkTo(const std::string& directory) {
  for (const char* place : {"/dev/shm", "/tmp"}) {
    std::string holder = std::string(place) + "/lockstep-lib-XXXXXX";
    if (::mkdtemp(holder.data()) == nullptr) continue;
    std::string link = holder + "/lib";
    if (::symlink(directory.c_str(), link.c_str()) == 0) return link;
    ::rmdir(holder.c_str());
  }
  return {};
}

}  // namespace

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

std::string OtherLoader(const std::string& path) {
  const ElfFacts elf = LookAtElf(path);
  if (elf.elf && !elf.elf64) return path + " is a 32-bit program, and Lockstep's libraries are 64-bit";
  // glibc's are ld-linux-*.so.N and ld64.so.N on every architecture.
  const std::string_view name = BaseName(elf.interpreter);
  if (!elf.has_interpreter || name.starts_with("ld-linux") || name.starts_with("ld64.so")) return {};
  return path + " is loaded by " + std::string(name) + ", and Lockstep's libraries need glibc";
}

std::string NoPreload(const std::string& path, bool superuser) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  const bool other_user = (info.st_mode & S_ISUID) != 0 && info.st_uid != ::geteuid();
  const bool other_group = (info.st_mode & S_ISGID) != 0 && info.st_gid != ::getegid();
  const std::string ignored = ": ld.so ignores LD_PRELOAD for it";
  if (other_user || other_group) return path + " is set-" + (other_user ? "user" : "group") + "-id" + ignored;
  if (::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0 && !superuser)
    return path + " has capabilities" + ignored;
  const ElfFacts elf = LookAtElf(path);
  return elf.elf && !elf.has_interpreter ? path + " is linked statically: there is no ld.so to load Lockstep's library"
                                         : "";
}

std::string UnseenMpi(const std::string& program) {
  const OwnMpi own = LookForMpi(program);
  if (own.library) return program + " has an MPI library linked into it, whose calls ld.so does not lead elsewhere";
  if (!own.hidden.empty())
    return program + " has wrappers of another tool linked into it that it hides (" + own.hidden + ")";
  return {};
}

std::string LocateLibrary(const std::string& entry) {
  if (entry.find('/') != std::string::npos) return entry;
  std::string places = Environment("LD_LIBRARY_PATH");
  places +=
      ":/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu:/lib/aarch64-linux-gnu:/usr/lib/aarch64-linux-gnu"
      ":/lib64:/usr/lib64:/lib:/usr/lib:/usr/local/lib";
  for (const std::string& directory : ListEntries(places, ":"))
    if (std::string path = directory + "/" + entry; ::access(path.c_str(), R_OK) == 0) return path;
  return {};
}

void Injection::RemoveLink() const {
  if (link.empty()) return;
  ::unlink(link.c_str());
  ::rmdir(Directory(link).c_str());
}

Result<Injection> PlanInjection(const Libraries& libraries, const std::string& segment_path,
                                const std::string& program) {
  const std::string found = FindProgram(program), interpreter = ScriptInterpreter(found);
  const std::string path = interpreter.empty() ? found : FindProgram(interpreter);
  if (std::string other = OtherLoader(path); !other.empty())
    return Error{ErrorCode::kUnsupported, std::move(other), "build it with glibc, for 64 bits"};
  Injection injection;
  if (const std::string none = NoPreload(path, ::geteuid() == 0); !none.empty())
    injection.notices.push_back(none + ": nothing of it is recorded, only dynamic programs that it starts");
  Libraries named = libraries;
  std::string directory = Directory(libraries.probe);
  const bool unnamable = directory.find_first_of(" :") != std::string::npos;
  if (unnamable || libraries.gpu.size() > kLongestPluginPath) {
    injection.link = LinkTo(directory);
    if (injection.link.empty() && unnamable)
      return Error{ErrorCode::kUnsupported, "the probe's directory has a space or colon in its path", directory,
                   "move it, or name another with LOCKSTEP_LIBRARY_DIR"};
  }
  if (!injection.link.empty()) {
    directory = injection.link;
    for (std::string* library : {&named.probe, &named.mpi, &named.gpu})
      if (!library->empty()) *library = directory + "/" + std::string(BaseName(*library));
  }

  const std::string preload = Environment("LD_PRELOAD");
  if (!named.mpi.empty()) {
    if (std::string unseen = UnseenMpi(found); !unseen.empty()) {
      injection.refused.push_back({kMpiSource, std::move(unseen), kMpiRemedy});
      named.mpi.clear();
    }
  }
  injection.variables.emplace_back(env::kSegment, segment_path);
  injection.variables.emplace_back("LD_PRELOAD", PreloadValue(preload, named));

  // AddressSanitizer's runtime ends a program in which another library was loaded before it (GCC 12, Clang 14). Ours
  // define nothing that it intercepts.
  if (const std::string asan = Environment(kAsan); asan.find("verify_asan_link_order") == std::string::npos)
    injection.variables.emplace_back(kAsan, asan + (asan.empty() ? "" : ":") + "verify_asan_link_order=0");

  const std::string nvtx = Environment(kNvtx);
  if (nvtx.empty() || BaseName(nvtx) == BaseName(named.probe)) {
    injection.variables.emplace_back(kNvtx, named.probe);
  } else {
    injection.refused.push_back({"NVTX", std::string(kNvtx) + " names another tool's library: " + nvtx,
                                 "run without that tool (nsys, ncu) to record NVTX ranges"});
  }

  if (!named.gpu.empty()) PlanGpuInjection(named.gpu, preload, injection);

  if (const std::string python = directory + "/python"; ::access(python.c_str(), X_OK) == 0) {
    std::string value = python;
    const std::string existing = Environment(kPython);
    // An empty entry means the working directory (Python 3.11), so ":/mine" differs from "/mine". An empty variable has
    // no entries.
    for (std::size_t at = 0; !existing.empty() && at <= existing.size();) {
      const std::size_t end = std::min(existing.find(':', at), existing.size());
      const std::string entry = existing.substr(at, end - at);
      if (entry != python) value += ":" + entry;
      at = end + 1;
    }
    injection.variables.emplace_back(kPython, value);
  }
  return injection;
}

long EnclosingAgent(int rank) {
  const std::string path = Environment(env::kSegment);
  if (path.empty()) return 0;
  const OwnedFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  SegmentHeader header;
  if (!fd.open() || !ReadAt(fd.get(), 0, &header, sizeof header) || header.magic != kSegmentMagic ||
      header.version != kSegmentVersion)
    return 0;
  if (header.slot_rank != rank || header.agent_gone.load(std::memory_order_relaxed) != 0) return 0;
  const auto pid = static_cast<pid_t>(header.agent_pid);
  return pid > 0 && pid != ::getpid() && (::kill(pid, 0) == 0 || errno == EPERM) ? pid : 0;
}

}  // namespace lockstep::agent
