#pragma once
// Clock anchors: exchanges between the ranks of an MPI application inside its own
// MPI_Init and MPI_Finalize, on a private communicator. They give the alignment
// its ends, and tell the agents where the reference rank's clock service is.
//
// Only PMPI functions are called, through comms/pmpi/pmpi_table.h. Nothing blocks:
// every wait ends at SegmentHeader.anchor_timeout_ms, then the exchange is
// abandoned for good (mailbox state 2, loss AnchorAbandoned by its reader).

#include "core/ring_layout.h"

namespace lockstep {

// After PMPI_Init(_thread) has returned MPI_SUCCESS, on the calling thread. Does
// nothing unless SegmentHeader.anchors_allowed, or if it ran before.
void ClockAnchorAtInit(const SegmentView& segment);

// Before PMPI_Finalize, on the calling thread. Frees the private communicator.
void ClockAnchorAtFinalize(const SegmentView& segment);

}  // namespace lockstep
