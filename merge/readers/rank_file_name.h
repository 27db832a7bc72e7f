#pragma once
// The names of files in a run's ranks/: which slot and process, and what kind of file.

#include <charconv>
#include <cstdint>
#include <string_view>

namespace lockstep::merge {

// rank-00005.p2.h5.part -> slot 5, process 2, part.
struct RankFileName {
  std::int64_t slot = -1;  // -1: not named like a rank file.
  std::uint32_t process = 1;
  enum Kind : std::uint8_t { kH5, kSpool, kPart, kOther } kind = kOther;
};

inline RankFileName ParseRankFileName(std::string_view name) {
  RankFileName parsed;
  const auto ends = [&](std::string_view suffix, RankFileName::Kind kind) {
    if (parsed.kind != RankFileName::kOther || !name.ends_with(suffix)) return;
    parsed.kind = kind;
    name.remove_suffix(suffix.size());
  };
  ends(".h5", RankFileName::kH5), ends(".spool", RankFileName::kSpool), ends(".h5.part", RankFileName::kPart);
  if (!name.starts_with("rank-")) return parsed;
  name.remove_prefix(5);
  std::int64_t slot = 0;
  const char* end = name.data() + name.size();
  auto [at, error] = std::from_chars(name.data(), end, slot);
  if (error != std::errc()) return parsed;
  if (at != end && end - at > 2 && at[0] == '.' && at[1] == 'p') {
    const auto process = std::from_chars(at + 2, end, parsed.process);
    at = process.ec == std::errc() ? process.ptr : at;
  }
  if (at == end) parsed.slot = slot;
  return parsed;
}

}  // namespace lockstep::merge
