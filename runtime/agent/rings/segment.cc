#include "runtime/agent/rings/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>
#include <utility>

#include "core/byte_text.h"
#include "core/file_lock.h"
#include "core/own_file.h"
#include "core/segment_name.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14, <asm-generic/mman-common.h>
#endif

namespace lockstep::agent {

// How much of a file system this segment may take: bytes in all, and slots of the first ring.
struct SegmentSizes {
  std::uint64_t total = 0, available = 0;
  std::uint32_t main_slots = 0;
  bool limited = true;  // A tmpfs without a size limit reports 0 blocks in all.
  std::uint64_t main_bytes() const { return kRingHeaderBytes + std::uint64_t{main_slots} * kSlotBytes; }
};

namespace {

constexpr std::uint64_t kPageBytes = 4096;
// Zeroing pages is most of what a segment costs: 0.2 ms per MiB, and a node may have hundreds of ranks that write next
// to nothing. So a ring is populated while it fills, always this part of it ahead of the writer.
constexpr std::uint64_t kAheadPart = 8;
constexpr int kMostNames = 100;
constexpr std::uint32_t kMinSlots = 2048;  // A text of kMaxStringBytes takes 129.

std::uint32_t SlotsFor(std::uint64_t bytes) {
  const std::uint64_t slots = std::clamp<std::uint64_t>(bytes / kSlotBytes, kMinSlots, std::uint64_t{1} << 30);
  return static_cast<std::uint32_t>(std::bit_floor(slots));
}

std::uint64_t RoundUp(std::uint64_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

// No process uses these pages yet, so writing back what is there is safe.
void Touch(std::byte* begin, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kPageBytes) {
    volatile std::byte* page = begin + at;
    *page = *page;
  }
}

SegmentSizes PlanSizes(const SegmentRequest& request, const struct statvfs& room, bool disk) {
  SegmentSizes sizes;
  sizes.main_slots = SlotsFor(request.main_ring_bytes);
  // The first ring must fit, or no thread gets one.
  sizes.total = RoundUp(std::max(request.total_bytes, kArenaOffset + sizes.main_bytes()));
  sizes.available = static_cast<std::uint64_t>(room.f_bavail) * room.f_frsize;
  sizes.limited = room.f_blocks != 0;
  // Containers have 64 MiB by default, and MPI and PyTorch's workers need part of it, later: they would fail if we took
  // it. Small rings in memory are better than rings on a disk.
  std::uint64_t share = request.most_bytes;
  if (!disk && sizes.limited) {
    const std::uint64_t all = static_cast<std::uint64_t>(room.f_blocks) * room.f_frsize;
    share = std::min(
        share, std::min(sizes.available / 2, all / 16) / static_cast<std::uint64_t>(std::max(request.local_slots, 1)));
  }
  if (share < sizes.total) {
    sizes.total = share / kPageBytes * kPageBytes;
    while (sizes.main_slots > kMinSlots && kArenaOffset + 4 * sizes.main_bytes() > sizes.total) sizes.main_slots /= 2;
  }
  if (kArenaOffset + sizes.main_bytes() > sizes.total) {
    if (!disk && sizes.limited) sizes.available /= 2 * static_cast<std::uint64_t>(std::max(request.local_slots, 1));
    sizes.total = RoundUp(kArenaOffset + sizes.main_bytes());
  }
  return sizes;
}

void FillHeader(SegmentHeader& header, const SegmentRequest& request, const SegmentSizes& sizes) {
  header.magic = kSegmentMagic;
  header.version = kSegmentVersion;
  header.header_bytes = sizeof(SegmentHeader);
  header.segment_bytes = sizes.total;
  header.agent_pid = ::getpid();
  header.run_hash = request.run_hash;
  header.slot_rank = -1;
  header.spool_inode = request.spool_inode;
  if (::getrandom(&header.spool_nonce, sizeof header.spool_nonce, GRND_NONBLOCK) < 0)
    header.spool_nonce = static_cast<std::uint64_t>(::clock()) << 32 ^ header.spool_inode ^ (std::uint64_t{1} << 63);
  header.main_ring_slots = sizes.main_slots;
  header.other_ring_slots = std::min(SlotsFor(request.other_ring_bytes), sizes.main_slots);
  header.next_free.store(kArenaOffset);
}

}  // namespace

Result<Segment> Segment::Create(const SegmentRequest& request) {
  Segment segment;
  SegmentName name{static_cast<unsigned>(::geteuid()), request.run_hash, request.slot, static_cast<int>(::getpid())};
  for (; name.number < kMostNames; ++name.number) {
    bool taken = false;
    segment.tmpfs_trouble_ = segment.TryAt(request.tmpfs_dir + "/" + FormatSegmentName(name), request, false, &taken);
    // An agent with the same pid in another pid namespace, of a run with the same id, has this name.
    if (!taken) break;
  }
  if (segment.tmpfs_trouble_.empty()) return segment;
  std::string disk_trouble = "no directory for it";
  if (!request.disk_path.empty()) {
    bool taken = false;
    disk_trouble = segment.TryAt(request.disk_path, request, true, &taken);
    if (disk_trouble.empty()) return segment;
  }
  return Error{ErrorCode::kIo, "no shared memory for the rings: " + segment.tmpfs_trouble_ + "; " + disk_trouble,
               request.tmpfs_dir, "free space in " + request.tmpfs_dir + ", or lower --ring-total"};
}

std::string Segment::TryAt(const std::string& path, const SegmentRequest& request, bool disk, bool* taken) {
  const std::string directory = path.substr(0, path.rfind('/'));
  struct statvfs room;
  if (::statvfs(directory.c_str(), &room) != 0) return directory + ": " + std::strerror(errno);
  const SegmentSizes sizes = PlanSizes(request, room, disk);
  if (sizes.limited && sizes.available < sizes.total)
    return directory + " has " + ByteText(static_cast<double>(sizes.available)) + " for it, " +
           ByteText(static_cast<double>(sizes.total)) + " are needed";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    *taken = errno == EEXIST;
    return path + ": " + std::strerror(errno);
  }
  const char* failed = Map(fd, request, sizes);
  if (failed != nullptr) {
    const int error = errno;
    if (view_.base != nullptr) ::munmap(view_.base, view_.bytes);
    view_ = {};
    fd_ = -1;
    ::close(fd);
    ::unlink(path.c_str());
    return path + ": " + failed + ": " + std::strerror(error);
  }
  on_disk_ = disk;
  path_ = path;
  return "";
}

const char* Segment::Map(int fd, const SegmentRequest& request, const SegmentSizes& sizes) {
  struct stat info {};
  // A recovery that looks for leftovers may have removed the file between creating and locking.
  if (TryLockShared(fd) == Locked::kHeld || ::fstat(fd, &info) != 0 || info.st_nlink == 0) return "lock";
  if (::ftruncate(fd, static_cast<off_t>(sizes.total)) != 0) return "ftruncate";
  void* base = ::mmap(nullptr, sizes.total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (base == MAP_FAILED) return "mmap";
  view_ = {static_cast<std::byte*>(base), sizes.total};
  fd_ = fd;
  full_ = false;
  // The header's page must be allocated before it is written: a write to a tmpfs page for which there is no memory
  // raises SIGBUS.
  if (::fallocate(fd, 0, 0, static_cast<off_t>(RoundUp(kArenaOffset))) != 0 && errno != EOPNOTSUPP) return "fallocate";
  FillHeader(*new (view_.base) SegmentHeader{}, request, sizes);
  if (!ExtendTo(kArenaOffset + sizes.main_bytes())) return "fallocate";
  const std::uint64_t first = kRingHeaderBytes + std::uint64_t{sizes.main_slots} * kSlotBytes / kAheadPart;
  if (!Populate(0, kArenaOffset + first)) return "populating";
  populated_ = {first};
  device_ = info.st_dev;
  return nullptr;
}

Segment::Segment(Segment&& other) noexcept
    : view_(std::exchange(other.view_, {})),
      path_(std::move(other.path_)),
      tmpfs_trouble_(std::move(other.tmpfs_trouble_)),
      populated_(std::move(other.populated_)),
      fd_(std::exchange(other.fd_, -1)),
      device_(other.device_),
      on_disk_(other.on_disk_),
      full_(other.full_),
      removed_(other.removed_) {}

Segment::~Segment() {
  if (view_.base != nullptr) ::munmap(view_.base, view_.bytes);
  if (fd_ >= 0) ::close(fd_);
}

bool Segment::ExtendTo(std::uint64_t end) {
  SegmentHeader& header = view_.header();
  const std::uint64_t ready = header.ready_bytes.load(std::memory_order_relaxed);
  end = std::min(RoundUp(end), view_.bytes);
  if (end <= ready) return true;
  int rc;
  do {
    rc = ::fallocate(fd_, 0, static_cast<off_t>(ready), static_cast<off_t>(end - ready));
  } while (rc != 0 && errno == EINTR);
  // Without fallocate only populating the pages makes sure that there is space.
  if (rc != 0 && (errno != EOPNOTSUPP || !Populate(ready, end))) return false;
  header.ready_bytes.store(end, std::memory_order_release);
  return true;
}

bool Segment::Populate(std::uint64_t begin, std::uint64_t end) {
  begin = begin / kPageBytes * kPageBytes;
  end = std::min(RoundUp(end), view_.bytes);
  if (begin >= end) return true;
  if (::madvise(view_.base + begin, end - begin, MADV_POPULATE_WRITE) == 0) return true;
  // ENOMEM, EFAULT and EHWPOISON mean that there is no memory. Any other error comes from an older kernel, where only
  // pages that no process uses yet can be touched.
  if (errno == ENOMEM || errno == EFAULT) return false;
  if (begin >= view_.header().next_free.load(std::memory_order_acquire)) Touch(view_.base + begin, end - begin);
  return true;
}

void Segment::PopulateAhead() {
  const std::uint32_t used = std::min(view_.header().rings_used.load(std::memory_order_acquire), kMaxRings);
  if (populated_.size() < used) populated_.resize(used);
  for (std::uint32_t i = 0; i < used; ++i) {
    const RingEntry& entry = view_.rings()[i];
    const std::uint64_t offset = __atomic_load_n(&entry.offset, __ATOMIC_RELAXED);
    const std::uint64_t capacity = __atomic_load_n(&entry.capacity_slots, __ATOMIC_RELAXED);
    const std::uint64_t all = kRingHeaderBytes + capacity * kSlotBytes;
    if (offset == 0 || populated_[i] >= all || offset > view_.bytes || all > view_.bytes - offset) continue;
    const std::uint64_t head = std::min(view_.ring(offset).head.load(std::memory_order_relaxed), capacity);
    // Once half of what was ahead is used up: a page or two at every look would cost a system call for each ring.
    if (kRingHeaderBytes + (head + capacity / kAheadPart / 2) * kSlotBytes <= populated_[i]) continue;
    const std::uint64_t wanted = std::min(all, kRingHeaderBytes + (head + capacity / kAheadPart) * kSlotBytes);
    Populate(offset + populated_[i], offset + wanted);
    populated_[i] = wanted;
  }
}

void Segment::ExtendAhead(std::uint64_t ahead) {
  if (full_) return;
  const std::uint64_t used = view_.header().next_free.load(std::memory_order_acquire);
  full_ = !ExtendTo(used + ahead);
}

void Segment::Remove() {
  if (!removed_) RemoveOwn(path_);
  removed_ = true;
}

}  // namespace lockstep::agent
