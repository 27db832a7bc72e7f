#pragma once
// What runs by name in a step, kernels and operators and ranges, and which of these came, went or changed.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/diff/rank_phases.h"
#include "analysis/diff/spread.h"
#include "core/result.h"

namespace lockstep::analysis {
class Context;
}

namespace lockstep::diff {

enum class NameKind : std::uint8_t {
  kKernel,    // By TellingFunction; counted in the step that launched it. Its time is the GPU's.
  kOperator,  // Of the framework. Its time is the host's, less that of the operators that it calls.
  kRange,     // Of the program: lockstep.h, NVTX, record_function. Its time is the host's.
};
inline constexpr std::size_t kNameKinds = static_cast<std::size_t>(NameKind::kRange) + 1;
const char* Noun(NameKind kind);  // "kernel"

// Both are of a step and a rank: means over the ranks that recorded the kind.
struct NameSample {
  NameKind kind = NameKind::kKernel;
  std::string name;
  Spread launches, time_ns;
};

struct NamesSample {
  std::vector<NameSample> rows;                     // By kind, then time, the longest first.
  std::array<bool, kNameKinds> recorded{}, more{};  // more: further names are left out, which took less.
  std::optional<double> kernels_per_step;           // Of a rank; empty without GPU.
};

// Of the usable steps, of long runs some of them. Reads the ranks' files, and adds what else they tell: `phases`.
Result<NamesSample> NamesOf(const analysis::Context& context, std::vector<RankPhase>& phases);

enum class NameVerdict : std::uint8_t { kSame, kNew, kGone, kMore, kFewer, kSlower, kFaster, kCannotTell };
std::string_view Name(NameVerdict verdict);

struct NameResult {
  NameKind kind = NameKind::kKernel;
  std::string name;
  Spread base_launches, now_launches, base_ns, now_ns;  // count 0: it does not occur.
  Difference difference_ns;                             // Surer than 99 %, as there are many names.
  NameVerdict verdict = NameVerdict::kSame;
  bool Changed() const { return verdict != NameVerdict::kSame && verdict != NameVerdict::kCannotTell; }
};

struct NameChanges {
  std::vector<NameResult> rows;  // Those that changed first, by how much time; the others by their time.
  // New over base, of the times that all names of a kind have in common; 1 where none is known.
  std::array<double, kNameKinds> common{1, 1, 1};
};

// Of kinds that both runs recorded. `steps` of the run with fewer of them.
NameChanges CompareNames(const NamesSample& base, const NamesSample& now, std::int64_t steps, double step_ns);

}  // namespace lockstep::diff
