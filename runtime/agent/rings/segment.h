#pragma once
// The agent's side of the shared segment (core/ring_layout.h): creates the file, allocates its space ahead of use, and
// populates its rings ahead of their writers.
//
// Agent and probes hold the file's shared lock (core/file_lock.h), the probes through their mapping. A process that
// gets the exclusive lock therefore knows that no process writes to the segment any more, whichever pid namespace that
// process was in.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/ring_layout.h"

namespace lockstep::agent {

struct SegmentRequest {
  std::string tmpfs_dir = "/dev/shm";
  std::string disk_path;  // Used when tmpfs has no space left; "": fail instead.
  std::uint64_t run_hash = 0;
  std::int32_t slot = 0;
  std::int32_t local_slots = 1;   // The number of agents that share the tmpfs.
  std::uint64_t spool_inode = 0;  // Inode of the spool that its records go to.
  // Upper limit of the mapping. It is less if the tmpfs is small: half of what is free, and all but a 16th of it in
  // all, are left to the job.
  std::uint64_t total_bytes = 0;
  std::uint64_t most_bytes = UINT64_MAX;  // By other limits (memory_limits.h); never less than the least rings take.
  std::uint64_t main_ring_bytes = 0, other_ring_bytes = 0;  // Rounded down to powers of two of slots.
};

struct SegmentSizes;

class Segment {
 public:
  // Creates a zeroed header with magic, sizes and ring capacities filled in; the first ring's memory is allocated and
  // its beginning populated. Returns kIo with the reason if there is no space.
  static Result<Segment> Create(const SegmentRequest& request);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&&) = delete;
  ~Segment();  // Unmaps the segment; the file stays until Remove().

  const SegmentView& view() const { return view_; }
  const std::string& path() const { return path_; }
  std::uint64_t device() const { return device_; }  // Of the file system that holds it.
  bool on_disk() const { return on_disk_; }
  const std::string& tmpfs_trouble() const { return tmpfs_trouble_; }  // The reason why the segment is on disk.

  // Allocates up to `ahead` bytes beyond what is in use. Cheap if there is nothing to do. If there is no space, nothing
  // changes, and the probe counts NoRing.
  void ExtendAhead(std::uint64_t ahead);
  // Populates the pages that the rings' writers will reach next, an eighth of a ring ahead of each. Call it at every
  // tick; a writer that is faster zeroes its pages itself (0.3 us each).
  void PopulateAhead();
  void Remove();

 private:
  Segment() = default;
  // Returns "" if the segment was mapped, else the reason. *taken is set if another process has the name.
  std::string TryAt(const std::string& path, const SegmentRequest& request, bool disk, bool* taken);
  // Returns null if the file was locked and mapped and its header filled in, else what failed; errno is set.
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
