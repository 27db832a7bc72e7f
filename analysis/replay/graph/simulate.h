#pragma once
// Plays a graph: computes when each operation begins and ends. It uses discrete events in order of time, so everything
// that depends on the order of time (which kernel comes first on a stream, what a synchronisation waits for) is decided
// in the replay and not taken from the trace.
//
// The rules, after Lumos (MLSys'25, 3), Daydream (ATC'20, 4) and ByteDance's what-if analysis (OSDI'25, 3.2; its rule
// for collectives: end of a member = latest arrival + the member's transfer):
//   begin = max(end of what it needs + lag, end of what is before it on its lane) + its delay
//   end   = begin + duration; of a collective's member: latest begin of all members + duration. Where members are not
//           awaited or do not wait (merge/match/awaited.h): of a member that waits, the later of its own begin and the
//           latest begin of those for which it waits, + duration
// Interference slows operations that run at the same time on one rank, recomputed at every event:
//   compute    runs at 1 / (1 + compute_slowdown) of its speed while a transfer is active on its rank
//   transfers  run at 1 / (1 + transfer_slowdown * share of its members that compute)

#include <cstdint>
#include <memory>
#include <vector>

#include "analysis/replay/graph/graph.h"
#include "core/result.h"

namespace lockstep::replay {

struct Structure;

struct Interference {
  double compute_slowdown = 0, transfer_slowdown = 0;  // At least 0.
  bool any() const { return compute_slowdown > 0 || transfer_slowdown > 0; }
};

struct Schedule {
  std::vector<std::int64_t> begin_ns, end_ns;  // Per operation. The begin of a member is its arrival.
  // The operation after which an operation began: the last one that it needed, that enqueued it, or that was before it
  // on its lane; kNone: there is none, it could begin at 0.
  std::vector<std::uint32_t> cause;
  // Per collective: of the members that are awaited, the one that arrived last (of several, the lowest); kNone: none is
  // awaited.
  std::vector<std::uint32_t> last_arrival;
  // Per set of peers (Graph::AddPeers), the same of those in it.
  std::vector<std::uint32_t> last_peer;
  std::int64_t length_ns = 0;  // Latest end.
};

// Keeps what does not change between runs of one graph: durations, delays and lags are read again by each Run, lanes
// and needs are not. One thread; several simulators can run in parallel. O(operations + needs) if nothing depends on
// the order of time (propagate.h), times log operations otherwise.
class Simulator {
 public:
  explicit Simulator(const Graph& graph);  // Must outlive this.
  ~Simulator();
  // kMalformed if operations wait for each other forever: contains their number and names the first.
  Result<Schedule> Run(const Interference& interference = {}) const;

 private:
  const Graph& graph_;
  std::unique_ptr<const Structure> structure_;
};

// The member whose arrival begins the transfer of a collective's member: the member itself, if it does not wait or
// arrived after all others for which it waits.
std::uint32_t WaitedFor(const Graph& graph, const Schedule& schedule, std::uint32_t member);

// The chain of causes that ends in `operation`, in order of time; for a member of a collective it contains the last
// arriver's operations. Every operation on it begins when the one before it ends, plus lags and delays.
std::vector<std::uint32_t> CriticalChain(const Graph& graph, const Schedule& schedule, std::uint32_t operation);

}  // namespace lockstep::replay
