#pragma once
// Faults on request: what goes wrong in real jobs, at a known place and size, so
// that a diagnosis can be compared with the truth.

#include <string>
#include <vector>

#include "examples/common/arguments.h"
#include "examples/common/pace.h"

namespace lockstep::example {

// As written on the command line.
struct FaultTexts {
  std::vector<std::string> slow_rank, slow_input, stall, late_start, slow_link;
};
void AddFaultOptions(Arguments& arguments, FaultTexts& texts);

struct Faults {
  struct Stall {
    int every_steps = 0;  // 0: none.
    double ms = 0;
  };
  // By rank.
  std::vector<double> slow;      // Factor of all compute, 1 healthy.
  std::vector<double> input_ms;  // On top of loading a batch.
  std::vector<Stall> stall;
  std::vector<double> link_us;  // Before each collective.
};
// Returns an error text, empty if fine.
std::string ParseFaults(const FaultTexts& texts, int ranks, Faults& faults);

// --late-start: sleeps before MPI_Init, so it reads the launcher's environment for
// the rank and the words themselves; what is wrong with them is said later, by
// ParseFaults.
void StartLate(int argc, char** argv);

// The faults of one rank, at the places of a training loop where they belong.
class FaultInjector {
 public:
  // Keeps the reference.
  FaultInjector(const Faults& faults, int rank, Pace& pace);

  double slow() const { return slow_; }
  void AfterInput() { pace_.Delay(input_ns_); }
  void BetweenPasses(int step);
  void BeforeCollective() { pace_.Delay(link_ns_); }

 private:
  double slow_, input_ns_, link_ns_;
  Faults::Stall stall_;
  Pace& pace_;
};

}  // namespace lockstep::example
