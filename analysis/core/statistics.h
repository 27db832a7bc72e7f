#pragma once
// Block bootstrap and block permutation. Deterministic: the
// generator is seeded by the caller and no standard distribution is used (their
// output differs between library versions).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "analysis/rules/run.h"
#include "core/order_statistics.h"

namespace lockstep::analysis {

// splitmix64.
class SeededRandom {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next();
  std::size_t Below(std::size_t n) { return static_cast<std::size_t>(Next() % n); }  // Bias < n / 2^64.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

// How many neighbouring values to keep together: twice the autocorrelation time
// of the series (AR(1) estimate, largest over the series), at least 1, and such
// that at least ten blocks remain where there are ten values.
// `jobs`: threads, 0: all allowed cores; they never change the result.
std::size_t BlockLength(const std::vector<std::vector<double>>& series, unsigned jobs = 1);
// The same, where a change of level at one time does not count as correlation.
std::size_t BlockLengthApartFromShift(const std::vector<std::vector<double>>& series, unsigned jobs = 1);

enum class Statistic : std::uint8_t { kMedian, kMean };

double MeanOf(const std::vector<double>& values);  // 0 of none.

// Values whose plain mean is the weighted mean of `values`, so that a bootstrap's is, too. No weights: all alike.
std::vector<double> Weighted(const std::vector<std::int64_t>& values, const std::vector<double>& weights);

// Lengths that form two groups: those of at least `least_ns` and the shorter ones.
struct TwoGroups {
  std::int64_t least_ns = 0;
  std::size_t count = 0;                   // Of the longer ones.
  std::int64_t mean_ns = 0, other_ns = 0;  // Of the longer ones and of the others, floored.
};
// Of the divisions into longer and shorter ones that which explains most of the variance (Otsu, IEEE Transactions on
// Systems, Man, and Cybernetics 9, 1979), if it explains enough of it (rules::kTwoGroupsExplained), if the longer ones
// are that much longer on average (kTwoGroupsTimes), and if what they have beyond the others is worth it
// (kNameShare). One long stall makes a group, too.
std::optional<TwoGroups> FindTwoGroups(std::vector<std::int64_t> lengths_ns);

// Is this in too few of the steps for its lower median to show it, and in enough of them (a fifth, and at least two) to
// be no accident? Then its mean is what it costs. A step has it if its value is at least `worth`.
bool IsIntermittent(const std::vector<std::int64_t>& by_step, double worth);

// 95 % interval by moving-block bootstrap with `rounds` resamples.
std::pair<double, double> BootstrapInterval(const std::vector<double>& values, std::size_t block, Statistic statistic,
                                            std::uint64_t seed, std::size_t rounds = rules::kBootstrapRounds);

struct PermutationOptions {
  std::size_t rounds = rules::kTestRounds;
  double interesting = 1;
  // The subjects whose p is wanted; empty: all. The others' p is 1.
  std::vector<std::size_t> asked = {};
  unsigned jobs = 1;  // Threads, 0: all allowed cores; they never change the result.
};

// Is some subject (rank) larger than the others more consistently than chance, throughout or from some unit on?
// values[unit][subject]. The statistic is a subject's mean rank among the subjects of its unit (ties share), so that
// one wild unit counts no more than a mild one, in standard errors; of all units, or of those from one of them on if
// that is more. The null shuffles whole blocks of units, which keeps their autocorrelation, over units and subjects,
// and takes the largest statistic of all subjects and beginnings, which makes p family-wise. Returns p per subject,
// never below 1 / (rounds + 1). Subjects so large that no shuffle would reach them, by a bound, take none: they have
// the least p. Ends early once none of the other subjects' p can be below `interesting`: then these are 1.
std::vector<double> ConsistencyTest(const std::vector<std::vector<double>>& values, std::size_t block,
                                    std::uint64_t seed, const PermutationOptions& options = {});
// The same for rare events: uses the values themselves, so that an extreme unit stays extreme whichever subject it is
// assigned to, and always all units.
std::vector<double> RareExcessTest(const std::vector<std::vector<double>>& values, std::size_t block,
                                   std::uint64_t seed, const PermutationOptions& options = {});
// Is the median of the differences of a pair other than 0? By moving-block bootstrap, two-sided; never below
// 1 / (rounds + 1).
double PairedTest(const std::vector<double>& differences, std::size_t block, std::uint64_t seed,
                  std::size_t rounds = rules::kTestRounds);

// What a change of each of several ranks has in common: the lower median. Of two the one that changed less shows it.
double CommonChange(const std::vector<double>& changes);

}  // namespace lockstep::analysis
