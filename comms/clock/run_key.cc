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

#include "core/own_file.h"

namespace lockstep::clock {
namespace {

constexpr char kKeyFile[] = "/.clock-key";

Error Unusable(const std::string& path, const std::string& why) {
  return Error{ErrorCode::kIo, "the run's key cannot be shared: " + why, path,
               "use a run directory of your own (--output) that all nodes see"};
}

// Returns errno, or 0 for success, also if another agent was first. Without hard links (some FUSE and SMB mounts) a
// second agent may replace the first one's file within the same moment. The two then disagree, which costs clock
// exchanges and nothing else.
int MakeKeyFile(const std::string& path) {
  RunKey key{};
  if (!RandomBytes(key)) return EIO;
  const int error = CreateFile(path, {reinterpret_cast<const char*>(key.data()), key.size()}, 0600);
  return error == EEXIST ? 0 : error;
}

std::string_view NameOf(ProofOf side) {
  switch (side) {
    case ProofOf::kClient:
      return "lockstep clock 2 client";
    case ProofOf::kServer:
      return "lockstep clock 2 server";
    case ProofOf::kPlace:
      return "lockstep clock 2 place";
    case ProofOf::kClientFrame:
      return "lockstep files 1 client";
    case ProofOf::kServerFrame:
      return "lockstep files 1 server";
  }
  return "";
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
  OwnedFd fd = OpenPlain(path, O_RDONLY);
  // Tried twice, because a run that ends now removes its file.
  for (int attempt = 0; attempt < 2 && !fd.open() && errno == ENOENT; ++attempt) {
    if (const int error = MakeKeyFile(path); error != 0) return Unusable(path, strerror(error));
    fd = OpenPlain(path, O_RDONLY);
  }
  if (!fd.open())
    return Unusable(path, errno == ELOOP    ? "it is a link"
                          : errno == EINVAL ? "it is not a regular file"
                                            : strerror(errno));
  struct stat about {};
  RunKey key{};
  if (fstat(fd.get(), &about) != 0) return Unusable(path, strerror(errno));
  if (about.st_uid != geteuid()) return Unusable(path, "it belongs to another user");
  if ((about.st_mode & 077) != 0) return Unusable(path, "others may read it");
  if (about.st_size != static_cast<off_t>(key.size()) || !ReadAt(fd.get(), 0, key.data(), key.size()) || IsEmpty(key))
    return Unusable(path, "it holds no key");
  return key;
}

void RemoveSharedRunKey(const std::string& directory) { unlink((directory + kKeyFile).c_str()); }

Proof Prove(const RunKey& key, ProofOf side, std::span<const std::uint8_t> hello,
            std::span<const std::uint8_t> challenge, std::initializer_list<std::span<const std::uint8_t>> said) {
  const std::string_view name = NameOf(side);
  hmac_sha256_ctx context;
  hmac_sha256_set_key(&context, key.size(), key.data());
  hmac_sha256_update(&context, name.size(), reinterpret_cast<const std::uint8_t*>(name.data()));
  hmac_sha256_update(&context, hello.size(), hello.data());
  hmac_sha256_update(&context, challenge.size(), challenge.data());
  for (const std::span<const std::uint8_t> part : said) hmac_sha256_update(&context, part.size(), part.data());
  Proof proof{};
  hmac_sha256_digest(&context, proof.size(), proof.data());
  return proof;
}

}  // namespace lockstep::clock
