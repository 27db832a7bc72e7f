#pragma once
// Writes a tar archive (POSIX ustar) sequentially; the size of a member need not be known beforehand.

#include <cstdint>
#include <string>
#include <string_view>

#include "export/common/out_file.h"

namespace lockstep::exporters {

class Tar {
 public:
  explicit Tar(OutFile& out) : out_(out) {}
  void Add(const std::string& name, std::string_view content);
  // The two empty blocks at the end.
  void Finish();

  // Everything that is written to the file between Begin and End is one member. Names below 100 bytes, sizes below 8
  // GiB (larger ones get the base-256 form that GNU tar and libarchive read).
  class Member {
   public:
    explicit Member(OutFile& out) : out_(out) {}
    void Begin(const std::string& name);
    void End();

   private:
    OutFile& out_;
    std::string name_;
    std::uint64_t header_at_ = 0;
  };

 private:
  OutFile& out_;
};

}  // namespace lockstep::exporters
