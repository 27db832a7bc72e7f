#pragma once
// The files of a run at one place: what is there, and their contents. Nothing there is changed. The work is done by
// programs that every host has (sh, sha256sum, tar).

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/gather/place.h"
#include "cli/gather/shell.h"
#include "core/result.h"

namespace lockstep::cli {

inline constexpr std::string_view kManifestName = "manifest.json";

struct ListedFile {
  std::string name;  // "manifest.json", "rank-00005.h5", "rank-00005.p2.h5", "rank-00005.spool"
  std::uint64_t bytes = 0;
  std::string digest;  // SHA-256 in hexadecimal digits; "" if the file cannot be read.
};

struct Listing {
  std::vector<ListedFile> files;  // The manifest first, if there is one.
  bool below_ranks = true;        // Rank files are in ranks/; otherwise beside the manifest, as some imports have them.
};

class Source {
 public:
  // `rsh`: the words before the host's name. On this machine they are not used.
  Source(Place place, std::vector<std::string> rsh) : place_(std::move(place)), rsh_(std::move(rsh)) {}
  const Place& place() const { return place_; }

  // kNotFound, kIo: the place was not reached, or is no directory; says what the remote shell or host said last.
  Result<Listing> List() const;
  // A tar archive of these files, by their names in the listing, in pieces. Fails as List does.
  Result<ShellEnd> Send(const std::vector<std::string>& names, bool below_ranks,
                        const std::function<bool(std::string_view)>& take) const;

 private:
  Result<ShellEnd> Run(const std::string& script, const std::function<bool(std::string_view)>& take) const;
  Place place_;
  std::vector<std::string> rsh_;
};

// Whether Lockstep gives files of a run this name.
bool IsRunFileName(std::string_view name);

}  // namespace lockstep::cli
