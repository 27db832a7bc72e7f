#pragma once
// What can be done with the schema's columns whatever their type.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/schema.h"

namespace lockstep::trace {

std::string_view NameOf(schema::ColumnType type);  // "u32"

// `count` values that say "not known", as a reader fills in where a file has none.
void FillUnknown(const schema::ColumnInfo& column, std::byte* out, std::uint64_t count);

}  // namespace lockstep::trace
