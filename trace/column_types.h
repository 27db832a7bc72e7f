#pragma once
// Names and widths of the schema's column types.

#include <cstddef>
#include <string_view>

#include "core/schema.h"

namespace lockstep {

std::size_t WidthOf(schema::ColumnType type);      // Bytes.
std::string_view NameOf(schema::ColumnType type);  // "u32"

}  // namespace lockstep
