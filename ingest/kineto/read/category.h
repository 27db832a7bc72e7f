#pragma once
// Names of activity kinds: today's Kineto, older ones and other vendors' plugins.

#include <string_view>

#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::kineto {

// kOther if unknown. Letters' case does not matter.
Category CategoryOf(std::string_view text);

}  // namespace lockstep::kineto
