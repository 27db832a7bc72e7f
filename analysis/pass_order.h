#pragma once
// What the passes read and write of an Analysis, and the order that follows from it.

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/context.h"
#include "analysis/core/model.h"

namespace lockstep::analysis {

// Parts of an Analysis: its members, but for what is added to stragglers later.
// clang-format off
#define LS_PARTS(X)                                                                                              \
  X(run_dir) X(run) X(hang) X(trust) X(summary) X(ranks) X(steps) X(truncated) X(collectives) X(arrivals) X(p2p)         \
  X(groups) X(gpus) X(buckets) X(fsdp) X(replay_skipped) X(replay) X(overlap) X(stragglers)                      \
  X(stragglers_replayed) X(counterfactual) X(critical_path) X(delays) X(findings) X(impossible_findings) X(idle_causes) X(additivity) X(losses)        \
  X(unrecorded) X(comm_on_path_ns) X(without_core_share) X(wait_only) X(mostly_posted) X(suspicious) X(verdict) X(remarks)
// clang-format on
enum class Section : std::uint8_t {
#define LS_PART(name) name,
  LS_PARTS(LS_PART)
#undef LS_PART
};
inline constexpr auto kSectionNames = std::to_array<std::string_view>({
#define LS_PART(name) #name,
    LS_PARTS(LS_PART)
#undef LS_PART
});

class Sections {
 public:
  template <std::same_as<Section>... P>
  constexpr Sections(P... parts) : bits_((0 | ... | (std::uint64_t{1} << static_cast<unsigned>(parts)))) {}
  constexpr bool Has(Section part) const { return ((bits_ >> static_cast<unsigned>(part)) & 1) != 0; }

 private:
  std::uint64_t bits_;
};

struct Pass {
  std::string_view name;
  std::string_view needs;  // What it lacks when `applies` says no; shown to the user.
  bool (*applies)(const Context&);
  void (*run)(const Context&, Analysis&);
  Sections reads, writes;
  // Passes that write one part (lists, mostly) name their predecessor: the order of the entries shows.
  std::array<std::string_view, 2> after{};
};

// A pass runs after those that it names and after those that write what it reads without writing it as well; passes
// that nothing orders keep the order of the list. Empty, with `problem` set, if a pass reads what no other writes, two
// write one part and neither comes after the other, an unknown pass is named, or passes wait for each other.
std::vector<std::size_t> OrderOf(std::span<const Pass> passes, std::string& problem);

// All passes.
std::span<const Pass> Passes();

}  // namespace lockstep::analysis
