#pragma once
// Notes for comms/pmpi/agreement.h in PMIx, the launcher's key-value store, to which every MPI
// process is connected and which ends with the job. None of its calls is collective, it works across
// hosts, and it needs neither a shared directory nor our agents. It is found in the process, because
// Open MPI loads it. Without it (Slurm's PMI-2, an internal copy under other names) there is no
// board.

#include <cstdint>

#include "comms/pmpi/agreement.h"

namespace lockstep::pmpi {

class PmixBoard final : public AgreementBoard {
 public:
  // `world_rank`: of this process in MPI_COMM_WORLD. If it is not the rank in the PMIx namespace, there is no
  // board.
  explicit PmixBoard(int world_rank);
  bool usable() const { return namespace_ != nullptr; }

  bool Post(Note note, bool yes) override;
  bool Publish() override;
  // Blocks in whole seconds at most; the thread sleeps meanwhile.
  Reply Await(int peer, Note note, std::int64_t deadline_ns) override;

 private:
  const char* namespace_ = nullptr;
};

}  // namespace lockstep::pmpi
