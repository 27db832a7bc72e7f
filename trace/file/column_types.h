#pragma once
// Operations on the schema's columns of any type.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/schema.h"

namespace lockstep::trace {

std::string_view NameOf(schema::ColumnType type);  // "u32"

// Fills in `count` values that mean "not known", as a reader does where a file has none.
void FillUnknown(const schema::ColumnInfo& column, std::byte* out, std::uint64_t count);

}  // namespace lockstep::trace
