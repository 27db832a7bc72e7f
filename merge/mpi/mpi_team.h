#pragma once
// The processes of an MPI job as a team.

#include "merge/team.h"

namespace lockstep::merge {

// MPI_Init to MPI_Finalize. Thread: the main thread only; others must not call MPI.
class MpiTeam final : public MergeTeam {
 public:
  MpiTeam(int& argc, char**& argv);
  ~MpiTeam() override;
  MpiTeam(const MpiTeam&) = delete;
  MpiTeam& operator=(const MpiTeam&) = delete;

  unsigned index() const override { return index_; }
  unsigned count() const override { return count_; }
  std::vector<std::string> Share(const std::string& bytes) override;

 private:
  unsigned index_ = 0, count_ = 1;
};

}  // namespace lockstep::merge
