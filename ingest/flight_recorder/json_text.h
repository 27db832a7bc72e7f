#pragma once
// Reads the JSON form of dumps.

#include <string_view>

#include "core/result.h"
#include "ingest/flight_recorder/document.h"

namespace lockstep::flight_recorder {

// kMalformed: it is no JSON, cut off, or nested deeper than any dump.
Result<Parsed> ReadJson(std::string_view text);

}  // namespace lockstep::flight_recorder
