#pragma once
// The arguments by which PyTorch describes communication, in its CPU events and in its kernels.

#include <string_view>

#include "ingest/kineto/map/local_strings.h"
#include "ingest/map/mapped.h"

namespace lockstep::ingest {

// False: the key is no argument of communication.
bool TakeCommArg(std::string_view key, std::string_view value, LocalStrings& strings, CommArgs& args);

}  // namespace lockstep::ingest
