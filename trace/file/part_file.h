#pragma once
// A file that appears whole under its name, however many processes write the same one at once.

#include <string>
#include <string_view>

#include "core/own_file.h"

namespace lockstep::trace {

// Written under a name of its own beside the final one (core/own_file.h), locked as long as it is written, and renamed.
// A target that is not a plain file (/dev/stdout, a pipe) is written directly. Thread: one at a time.
class PartFile {
 public:
  PartFile() = default;
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  // Removes what was not published.
  ~PartFile() { Drop(); }

  // All three return an errno, 0 for none.
  int Open(const std::string& path);
  int Write(std::string_view bytes) { return WriteAll(fd_.get(), bytes); }
  int Publish();
  void Drop();

  int fd() const { return fd_.get(); }
  // Where it is written now, for code that opens it by name.
  const std::string& part() const { return part_; }

 private:
  std::string path_, part_;
  OwnedFd fd_;
  bool in_place_ = false;
};

// A directory of files that belong together, written in the same way: PART.d, in use as long as the file PART is.
class PartDirectory {
 public:
  // An errno, 0 for none.
  int Open(const std::string& path);
  ~PartDirectory() { Drop(); }
  PartDirectory() = default;
  PartDirectory(const PartDirectory&) = delete;
  PartDirectory& operator=(const PartDirectory&) = delete;

  const std::string& directory() const { return directory_; }
  // Renames it; EEXIST or ENOTEMPTY if a directory of that name exists, which then stays unchanged.
  int Publish();
  // Removes a finished directory, so that no reader ever finds half of it under its name. Returns an errno.
  static int Remove(const std::string& path);
  void Drop();

 private:
  std::string path_, directory_;
  PartFile lock_;
};

// Whether a file or directory of this name is a part, which readers ignore.
bool IsPart(std::string_view name);

// Removes what killed writers left in `directory`: parts of this user, with their directories, and lock files
// (merge/work_lock.h, cli/input/import_cache.cc) that no process holds. Without locks nothing is removed.
void RemoveLeftovers(const std::string& directory);

}  // namespace lockstep::trace
