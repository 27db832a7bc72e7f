#include "runtime/agent/slot/file_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

namespace lockstep::agent {
namespace {

constexpr std::size_t kLeastInFileBytes = 1 << 20;
constexpr std::size_t kBlockHeadBytes = 4096;  // In front of a block: its size.

struct Blocks {
  std::atomic<std::byte*> begin = nullptr, end = nullptr;  // Any thread asks whether a block is one of these.
  std::size_t bytes = 0, used = 0;
  int fd = -1;
};
constinit Blocks g_blocks;
constinit std::atomic<std::size_t> g_in_use = 0;
constinit thread_local bool t_in_file = false;

void* TakeBlock(std::size_t bytes) {
  if (bytes > g_blocks.bytes) return nullptr;
  bytes = (bytes + 2 * kBlockHeadBytes - 1) / kBlockHeadBytes * kBlockHeadBytes;
  if (bytes > g_blocks.bytes - g_blocks.used) return nullptr;
  const std::size_t at = g_blocks.used;
  // A store to a hole of a full disk raises SIGBUS.
  if (::fallocate(g_blocks.fd, 0, static_cast<off_t>(at), static_cast<off_t>(bytes)) != 0) return nullptr;
  g_blocks.used += bytes;
  ++g_in_use;
  std::memcpy(g_blocks.begin + at, &bytes, sizeof bytes);
  return g_blocks.begin + at + kBlockHeadBytes;
}

bool IsBlock(const void* memory) {
  const auto* at = static_cast<const std::byte*>(memory);
  return at >= g_blocks.begin.load(std::memory_order_relaxed) && at < g_blocks.end.load(std::memory_order_relaxed);
}

// The pages are dropped without being written.
void GiveBack(void* memory) {
  const std::byte* block = static_cast<std::byte*>(memory) - kBlockHeadBytes;
  std::size_t bytes;
  std::memcpy(&bytes, block, sizeof bytes);
  ::fallocate(g_blocks.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, block - g_blocks.begin,
              static_cast<off_t>(bytes));
  --g_in_use;
}

// If something outlives it, the file goes with this process.
void Release() {
  if (g_blocks.begin == nullptr || g_in_use != 0) return;
  ::munmap(g_blocks.begin, g_blocks.bytes);
  ::close(g_blocks.fd);
  g_blocks.begin = g_blocks.end = nullptr;
}

bool IsMemory(int fd) {
  struct statfs info {};
  return ::fstatfs(fd, &info) != 0 || info.f_type == TMPFS_MAGIC || info.f_type == RAMFS_MAGIC;
}

}  // namespace

FileMemory::FileMemory(const std::string& directory, std::uint64_t most_bytes) {
  Release();
  if (g_blocks.begin != nullptr) return;
  const int fd = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return;
  void* begin = MAP_FAILED;
  if (!IsMemory(fd) && ::fallocate(fd, 0, 0, kBlockHeadBytes) == 0)
    begin = ::mmap(nullptr, most_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (begin == MAP_FAILED) {
    ::close(fd);
    return;
  }
  g_blocks.bytes = most_bytes;
  g_blocks.used = 0;
  g_blocks.fd = fd;
  g_blocks.begin = static_cast<std::byte*>(begin);
  g_blocks.end = g_blocks.begin + most_bytes;
  t_in_file = true;
}

FileMemory::~FileMemory() {
  if (!t_in_file) return;
  t_in_file = false;
  Release();
}

bool FileMemory::in_file() const { return t_in_file; }

}  // namespace lockstep::agent

// The standard library's other forms call these, but for those of over-aligned types.
void* operator new(std::size_t bytes) {
  using namespace lockstep::agent;
  if (t_in_file && bytes >= kLeastInFileBytes)
    if (void* block = TakeBlock(bytes); block != nullptr) return block;
  for (;;) {
    if (void* memory = std::malloc(bytes != 0 ? bytes : 1); memory != nullptr) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

// libstdc++'s calls the one above; that of a sanitizer's runtime is a block of its own kind, which `free` does not
// take.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return ::operator new(bytes);
  } catch (...) {
    return nullptr;
  }
}

void operator delete(void* memory) noexcept {
  using namespace lockstep::agent;
  if (IsBlock(memory))
    GiveBack(memory);
  else
    std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept { ::operator delete(memory); }
