#pragma once
// Files of a slot whose program failed. Its agent has a tenth of a second before the launcher may kill it, and so has
// rank 0's, which takes such files at once, also while its own program still runs (file_receiver.h).

#include "runtime/agent/send/file_sender.h"

namespace lockstep::agent {

// Sends one file to rank 0's agent if that is done within `limit_ms`; returns whether it was. What is not done by then
// is left to a thread that ends with this process, and rank 0's agent keeps none of it.
bool SendInHaste(FileSender::Setup setup, const FileToSend& file, std::int64_t limit_ms);

}  // namespace lockstep::agent
