#pragma once
// The foreign formats of formats.def.

#include <span>
#include <string_view>

#include "ingest/foreign.h"

namespace lockstep::ingest {

std::span<const ForeignFormat* const> ForeignFormats();

// Null if there is no format of that name.
const ForeignFormat* FindFormat(std::string_view name);

}  // namespace lockstep::ingest
