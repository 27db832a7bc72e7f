#pragma once
// Clock anchors: exchanges between the ranks of an MPI application inside its own
// MPI_Init and MPI_Finalize, on a private communicator. They give the alignment
// its ends, and say to the agents where the reference rank's clock service is.
//
// No MPI call that another rank must join is made before every rank's probe has
// agreed to it (comms/pmpi/agreement.h): in MPI_Init through the launcher's
// key-value store, in MPI_Finalize through messages on the private communicator.
// Without agreement there are no anchors, and nothing else is different; each rank
// asks alone where the clock service is, in the launcher's store or, where it has
// none, by MPI's names (comms/pmpi/reference_names.h).
//
// Only PMPI functions are called, through comms/pmpi/pmpi_table.h. After an
// agreement the communicator is made, which nobody may give up; every wait on it
// ends at SegmentHeader.anchor_timeout_ms, and then the exchange is abandoned for
// good (mailbox state 2, or 3 if the address was had alone: core/reference.h).

#include "core/ring_layout.h"

namespace lockstep::pmpi {

// After PMPI_Init(_thread) has returned MPI_SUCCESS, on the calling thread, before any other thread may know of it.
// `able`: the wrappers are the ones that the application calls. Does nothing if it ran before.
void ClockAnchorAtInit(const SegmentView& segment, bool able);

// Before PMPI_Finalize, on the calling thread. Frees the private communicator.
void ClockAnchorAtFinalize(const SegmentView& segment);

}  // namespace lockstep::pmpi
