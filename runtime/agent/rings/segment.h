#pragma once
// The agent's side of the shared segment (core/ring_layout.h): makes the file,
// allocates it ahead of use and populates its rings ahead of their writers.
//
// Agent and probes hold its shared lock (core/file_lock.h), the probes by their mapping: who gets the exclusive one
// knows that nobody writes to it any more, in whatever pid namespace he asks.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/ring_layout.h"

namespace lockstep::agent {

struct SegmentRequest {
  std::string tmpfs_dir = "/dev/shm";
  std::string disk_path;  // Used when tmpfs has no room; "": fail instead.
  std::uint64_t run_hash = 0;
  std::int32_t slot = 0;
  std::int32_t local_slots = 1;   // Agents that share the tmpfs.
  std::uint64_t spool_inode = 0;  // Of the spool that its records go to.
  std::uint64_t total_bytes = 0;  // Cap of the mapping; less if the tmpfs is small, half of which is left to the job.
  std::uint64_t main_ring_bytes = 0, other_ring_bytes = 0;  // Rounded down to powers of two of slots.
};

struct SegmentSizes;

class Segment {
 public:
  // A zeroed header with magic, sizes and ring capacities filled in, and the
  // first ring's memory allocated, its beginning populated. kIo with the reason if there is no place.
  static Result<Segment> Create(const SegmentRequest& request);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();  // Unmaps; the file stays until Remove().

  const SegmentView& view() const { return view_; }
  const std::string& path() const { return path_; }
  std::uint64_t device() const { return device_; }  // Of the file system it is on.
  bool on_disk() const { return on_disk_; }
  const std::string& tmpfs_trouble() const { return tmpfs_trouble_; }  // Why it is on disk.

  // Allocates up to `ahead` bytes beyond what is in use. Cheap if there is nothing to do.
  // No space left: stays as it is, and the probe counts NoRing.
  void ExtendAhead(std::uint64_t ahead);
  // Pages that the rings' writers will reach next, an eighth of a ring ahead of each. To be
  // called at every tick; who outruns it zeroes his pages himself (0.3 us each).
  void PopulateAhead();
  void Remove();

 private:
  Segment() = default;
  // Empty string: mapped. Else the reason; *taken: the name was another's.
  std::string TryAt(const std::string& path, const SegmentRequest& request, bool disk, bool* taken);
  // Null: locked, mapped, its header filled in. Else what failed; errno is set.
  const char* Map(int fd, const SegmentRequest& request, const SegmentSizes& sizes);
  bool ExtendTo(std::uint64_t end);
  bool Populate(std::uint64_t begin, std::uint64_t end);

  SegmentView view_;
  std::string path_, tmpfs_trouble_;
  std::vector<std::uint64_t> populated_;  // Of each ring, bytes from its header on.
  int fd_ = -1;
  std::uint64_t device_ = 0;
  bool on_disk_ = false, full_ = false, removed_ = false;
};

}  // namespace lockstep::agent
