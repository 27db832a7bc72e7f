#include "comms/clock/run_key.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "core/hex.h"

namespace lockstep::clock {
namespace {

constexpr char kKeyFile[] = "/.clock-key";

Error Unusable(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kIo, "the run's key cannot be shared: " + why, path,
               "use a run directory of your own (--output) that all nodes see"};
}

// errno, 0 for success. Never shows a part: it is written under another name and linked in place, which refuses to
// replace, over NFS too.
int MakeKeyFile(const std::string& path) {
  RunKey key{};
  std::uint64_t name = 0;
  if (!RandomBytes(key) || !RandomBytes({reinterpret_cast<std::uint8_t*>(&name), sizeof name})) return EIO;
  // Random, because process ids repeat on other hosts.
  const std::string fresh = path + "." + Hex(name);
  const int fd = open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return errno;
  const bool written = write(fd, key.data(), key.size()) == static_cast<ssize_t>(key.size());
  int error = written ? 0 : (errno != 0 ? errno : ENOSPC);
  close(fd);
  if (written && link(fresh.c_str(), path.c_str()) != 0) {
    error = errno == EEXIST ? 0 : errno;
    // No hard links here (some FUSE and SMB mounts): the first to rename may be replaced by a second within the same
    // moment, and the two then disagree, which costs clock exchanges and nothing else.
    if (error == EPERM || error == ENOTSUP || error == ENOSYS)
      error = access(path.c_str(), F_OK) == 0 || rename(fresh.c_str(), path.c_str()) == 0 ? 0 : errno;
  }
  unlink(fresh.c_str());
  return error;
}

}  // namespace

bool RandomBytes(std::span<std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return true;
}

bool SameSecret(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return a.size() == b.size() && memeql_sec(a.data(), b.data(), a.size()) != 0;
}

bool IsEmpty(const RunKey& key) {
  return std::all_of(key.begin(), key.end(), [](std::uint8_t byte) { return byte == 0; });
}

Result<RunKey> SharedRunKey(const std::string& directory) {
  const std::string path = directory + kKeyFile;
  int fd = -1;
  // Twice: a run that ends here takes its file away.
  for (int attempt = 0; attempt < 2 && fd < 0; ++attempt) {
    // O_NONBLOCK: nobody's pipe keeps us waiting.
    fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) break;
    if (errno == ELOOP) return Unusable(path, "it is a link");
    if (errno != ENOENT) return Unusable(path, strerror(errno));
    if (const int error = MakeKeyFile(path); error != 0) return Unusable(path, strerror(error));
    fd = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  }
  if (fd < 0) return Unusable(path, strerror(errno));
  struct stat about {};
  RunKey key{};
  const bool seen = fstat(fd, &about) == 0;
  const ssize_t got = seen && S_ISREG(about.st_mode) ? read(fd, key.data(), key.size()) : -1;
  close(fd);
  if (!seen || !S_ISREG(about.st_mode)) return Unusable(path, "it is not a regular file");
  if (about.st_uid != geteuid()) return Unusable(path, "it belongs to another user");
  if ((about.st_mode & 077) != 0) return Unusable(path, "others may read it");
  if (about.st_size != static_cast<off_t>(key.size()) || got != static_cast<ssize_t>(key.size()) || IsEmpty(key))
    return Unusable(path, "it holds no key");
  return key;
}

void RemoveSharedRunKey(const std::string& directory) { unlink((directory + kKeyFile).c_str()); }

Proof Prove(const RunKey& key, ProofOf side, std::span<const std::uint8_t> hello,
            std::span<const std::uint8_t> challenge) {
  constexpr std::string_view kClient = "lockstep clock 2 client", kServer = "lockstep clock 2 server";
  const std::string_view name = side == ProofOf::kClient ? kClient : kServer;
  hmac_sha256_ctx context;
  hmac_sha256_set_key(&context, key.size(), key.data());
  hmac_sha256_update(&context, name.size(), reinterpret_cast<const std::uint8_t*>(name.data()));
  hmac_sha256_update(&context, hello.size(), hello.data());
  hmac_sha256_update(&context, challenge.size(), challenge.data());
  Proof proof{};
  hmac_sha256_digest(&context, proof.size(), proof.data());
  return proof;
}

}  // namespace lockstep::clock
