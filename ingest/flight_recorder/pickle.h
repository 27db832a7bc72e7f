#pragma once
// Reads pickles of plain values. A pickle is a program, and Python runs what it names; this reader knows the opcodes
// that make plain values only, so there is nothing that a file could run.

#include <string_view>

#include "core/result.h"
#include "ingest/flight_recorder/document.h"

namespace lockstep::flight_recorder {

bool BeginsLikePickle(std::string_view first_bytes);

// Dicts, lists, tuples (which become lists), texts, bytes, numbers, booleans and None, of protocols 2 to 5. The texts
// of the document are parts of `bytes`. Neither time nor memory grow faster than the file, however it is nested or
// refers to itself.
// kMalformed: it holds classes, functions or other objects, or is cut off or damaged.
Result<Parsed> ReadPickle(std::string_view bytes);

}  // namespace lockstep::flight_recorder
