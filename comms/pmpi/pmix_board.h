#pragma once
// Notes for comms/pmpi/agreement.h, and what one rank tells all others alone, in PMIx, the launcher's key-value store,
// to which every MPI process is connected and which ends with the job. None of its calls is collective, it works across
// hosts, and it needs neither a shared directory nor our agents. It is found in the process, because
// Open MPI loads it. Without it (Slurm's PMI-2, an internal copy under other names) there is no
// board.

#include <cstddef>
#include <cstdint>

#include "comms/pmpi/agreement.h"

namespace lockstep::pmpi {

class PmixBoard final : public AgreementBoard {
 public:
  // `world_rank`: of this process in MPI_COMM_WORLD. If it is not the rank in the PMIx namespace, there is no
  // board.
  explicit PmixBoard(int world_rank);
  bool usable() const { return namespace_ != nullptr; }

  // A text that other ranks can read after Publish, of this rank; not part of any agreement. False: it cannot be
  // written.
  bool Tell(const char* text);
  // That of another rank, if it is there by `deadline_ns` (RawNs) and shorter than `bytes`.
  bool Ask(int peer, char* text, std::size_t bytes, std::int64_t deadline_ns);

  bool Post(Note note, bool yes) override;
  bool Publish() override;
  // The thread sleeps meanwhile.
  Reply Await(int peer, Note note, std::int64_t deadline_ns) override;

 private:
  const char* namespace_ = nullptr;
};

}  // namespace lockstep::pmpi
