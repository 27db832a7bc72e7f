#pragma once
// Computes what each rank's late arrivals cost the others, unit by unit.

#include <cstdint>
#include <span>
#include <vector>

#include "analysis/communication/clock_resolution.h"
#include "analysis/communication/exposure.h"
#include "analysis/context.h"

namespace lockstep::analysis {

// Whether a collective says who came last: all members are there, and their arrivals can be compared, or one was waited
// for.
inline bool SaysWhoCameLast(const Context& context, std::size_t collective) {
  const auto& t = context.tables().collectives;
  return (context.Comparable(collective) && t.seen[collective] >= t.expected[collective]) ||
         context.WaitsForOne(collective);
}

// Per unit and rank (position), over the unit's collectives. A rank counts as on time if it is within the clocks'
// resolution for that instance.
struct LatenessTable {
  // Mean of arrival minus the lower median arrival, ns.
  std::vector<std::vector<double>> mean_ns;
  // The sum of its positive values: no rank waits longer for this rank, as long as most ranks are on time.
  std::vector<std::vector<std::int64_t>> behind_ns;
  // The same sum over lateness within the resolution, which better clocks might show.
  std::vector<std::vector<std::int64_t>> blurred_ns;
  // Of WorkBeyond, per unit: the lower median itself.
  std::vector<std::int64_t> middle_ns = {};
};
LatenessTable Lateness(const Context& context);

// The same of a rank's own work in each step, computing and loading input, against the lower median of all ranks. In a
// run without steps in each of rules::kWorkPieces parts of the rank's operations, fewer where these are few, or of
// time, where the ranks' operations are not alike: from their files, empty where one cannot be read, or one of two has
// a task of its own.
LatenessTable WorkBeyond(const Context& context);
// How long ranks wait for others in MPI_Finalize, on average, because nothing made them wait before; 0 if that is no
// part of the recording that is worth naming.
std::int64_t WaitAtTheEnd(const Context& context);
// Whether collectives that were posted early ended because the last rank came to its wait: who it waits for is not seen
// in them, because when each of them began to move is not known.
bool WaitsUnseen(const Context& context, const Analysis& analysis);

using Series = std::vector<std::vector<double>>;
// values[unit][rank] as series[rank][unit].
Series ByRank(const Series& values);
// Drops the small series of a test by size: their autocorrelation is that of the noise.
Series LargeOf(Series series);

// Ranks suspected together. Each is compared with the last of the others, so that two that are equally late do not hide
// each other.
class Suspects {
 public:
  Suspects(const Context& context, const std::vector<std::size_t>& positions);
  bool Contains(std::size_t position) const { return contains_[position]; }

  struct Arrival {
    std::size_t position;
    std::int64_t arrival_ns;
  };
  // The suspects that arrived at a collective after all others, by more than the clocks' resolution.
  std::span<const Arrival> Late(std::size_t collective) const {
    return std::span(late_).subspan(first_[collective], first_[collective + 1] - first_[collective]);
  }
  // When the last of the others arrived.
  std::int64_t OthersArrival(std::size_t collective) const { return others_ns_[collective]; }

 private:
  std::vector<bool> contains_;
  std::vector<Arrival> late_;
  std::vector<std::size_t> first_;       // Per collective and one more.
  std::vector<std::int64_t> others_ns_;  // Per collective.
};

// The ranks whose waiting determines the price of a late rank: all, or an even selection of them in large jobs.
// Positions, ascending.
std::vector<std::size_t> WaitingRanks(const Context& context);

// How long one waiting rank waits for which other rank, per unit, ns. Several collectives in flight count once; time in
// which another of the waiting rank's collectives transfers does not count. With its activity it is exactly the exposed
// part; without (null) it is at most the step's exposed wait and waiting for other threads' collectives.
struct Waits {
  // [culprit][unit]; empty for ranks for which it never waits. For a suspect: from the arrival of the last rank that is
  // not a suspect to the suspect's; for others: from the second to last arrival to theirs, if they are last.
  std::vector<std::vector<std::int64_t>> by;
  std::vector<std::int64_t> suspects;  // [unit]: for any of the suspects.
};
Waits WaitsFor(const Context& context, std::size_t waiting_rank, const Suspects& suspects,
               const ExposedActivity* activity);

}  // namespace lockstep::analysis
