#pragma once
// Notes for comms/pmpi/agreement.h in the launcher's own key-value store, which
// every MPI process is connected to and which ends with the job: PMIx. Nothing of
// it is collective, it crosses hosts, and it needs neither a shared directory nor
// our agents. Found in the process, since Open MPI loads it; without it (Slurm's
// PMI-2, an internal copy under other names) there is no board.

#include <cstdint>

#include "comms/pmpi/agreement.h"

namespace lockstep::pmpi {

class PmixBoard final : public AgreementBoard {
 public:
  // `world_rank`: of this process in MPI_COMM_WORLD, which is its rank in the PMIx
  // namespace, or there is no board.
  explicit PmixBoard(int world_rank);
  bool usable() const { return namespace_ != nullptr; }

  bool Post(Note note, bool yes) override;
  bool Publish() override;
  // Blocks in whole seconds at most; the thread sleeps.
  Reply Await(int peer, Note note, std::int64_t deadline_ns) override;

 private:
  const char* namespace_ = nullptr;
};

}  // namespace lockstep::pmpi
