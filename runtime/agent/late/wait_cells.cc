#include "runtime/agent/late/wait_cells.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/hash.h"
#include "core/own_file.h"

namespace lockstep::agent {
namespace {

constexpr std::uint64_t kCellMagic = 0x314c4c4543534c55;
constexpr std::int32_t kMostRead = 1024;
constexpr std::int64_t kShortestLookNs = 500'000'000, kLongestLookNs = 60'000'000'000;
constexpr std::int64_t kLooksPerSecond = 128;  // Of all ranks together.

// Writer and reader are of one build and one byte order.
struct StoredCell {
  std::uint64_t magic = 0, sum = 0;
  WaitCell cell;
};
static_assert(std::is_trivially_copyable_v<StoredCell>);

std::uint64_t SumOf(const WaitCell& cell) {
  Hash64 hash;
  hash.Add(static_cast<std::uint64_t>(static_cast<std::uint32_t>(cell.rank)) << 32 |
           static_cast<std::uint32_t>(cell.compare_with));
  hash.Add(cell.beat);
  for (const WaitSum& sum : cell.sums) {
    hash.Add(sum.comm);
    hash.Add(sum.count);
    hash.Add(static_cast<std::uint64_t>(sum.ns));
  }
  return hash.value();
}

off_t PlaceOf(std::int32_t rank) { return static_cast<off_t>(rank) * static_cast<off_t>(sizeof(StoredCell)); }

// It may be read while it is written: then its sum is wrong, and the next look finds it whole.
bool Whole(const StoredCell& stored, std::int32_t rank) {
  return stored.magic == kCellMagic && stored.cell.rank == rank && stored.sum == SumOf(stored.cell);
}

}  // namespace

WaitCells::WaitCells(const std::string& directory, std::int32_t rank, std::int32_t ranks)
    : path_(directory + "/.waits"), rank_(rank), ranks_(ranks), first_(rank / kMostRead * kMostRead) {
  count_ = std::clamp(ranks - first_, 1, kMostRead);
}

std::int64_t WaitCells::period_ns() const {
  return std::clamp(std::int64_t{1'000'000'000} * ranks_ / kLooksPerSecond, kShortestLookNs, kLongestLookNs);
}

// It is opened each time: network file systems read what others wrote when a file is opened.
std::vector<WaitCell> WaitCells::Exchange(const WaitCell& own) const {
  std::vector<WaitCell> others;
  const OwnedFd file(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  if (!file.open()) return others;
  const StoredCell mine{kCellMagic, SumOf(own), own};
  if (::pwrite(file.get(), &mine, sizeof mine, PlaceOf(rank_)) != static_cast<ssize_t>(sizeof mine)) return others;
  const std::string bytes = ReadUpTo(file.get(), static_cast<std::uint64_t>(PlaceOf(first_)),
                                     static_cast<std::size_t>(count_) * sizeof(StoredCell));
  for (std::int32_t i = 0; static_cast<std::size_t>(i + 1) * sizeof(StoredCell) <= bytes.size(); ++i) {
    StoredCell stored;
    std::memcpy(static_cast<void*>(&stored), bytes.data() + static_cast<std::size_t>(i) * sizeof stored, sizeof stored);
    if (first_ + i != rank_ && Whole(stored, first_ + i)) others.push_back(stored.cell);
  }
  return others;
}

void WaitCells::Leave() const {
  const OwnedFd file = OpenOwn(path_, O_RDWR);
  if (!file.open()) return;
  const StoredCell empty{};
  if (::pwrite(file.get(), &empty, sizeof empty, PlaceOf(rank_)) != static_cast<ssize_t>(sizeof empty)) return;
  constexpr std::size_t kPiece = 8192 * sizeof(StoredCell);
  for (std::uint64_t at = 0;; at += kPiece) {
    const std::string bytes = ReadUpTo(file.get(), at, kPiece);
    for (std::size_t i = 0; i + sizeof(StoredCell) <= bytes.size(); i += sizeof(StoredCell)) {
      std::uint64_t magic = 0;
      std::memcpy(&magic, bytes.data() + i, sizeof magic);
      if (magic == kCellMagic) return;
    }
    if (bytes.size() < kPiece) break;
  }
  RemoveOwn(path_);
}

}  // namespace lockstep::agent
