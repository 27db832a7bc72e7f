#pragma once
// Columns that a rank file leaves out because every row holds what readers fill in for an absent one. The table's
// attribute says what they are, for readers that do not know the schema.

#include <string>
#include <string_view>

#include "core/schema.h"

namespace lockstep::trace {

// A text of fixed length: a line per column, LeftOutLine.
inline constexpr char kLeftOutAttribute[] = "left_out";

// "NAME TYPE UNIT VALUE\n", and behind the value of a code its name.
std::string LeftOutLine(const schema::ColumnInfo& column);

// Whether such lines name the column.
bool IsLeftOut(std::string_view lines, const schema::ColumnInfo& column);

}  // namespace lockstep::trace
