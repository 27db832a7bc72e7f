#pragma once
// Describes the schema in words: the descriptions in HDF5 files, and the generated part of docs/trace-format.md.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/schema.h"

namespace lockstep::trace {

// What the column is, the value that means "unknown", and what its codes mean:
// "rank in the job, -1 unknown", "0 none 1 mpi 2 env 3 nccl 4 slot".
std::string DescriptionOf(const schema::ColumnInfo& column);

// Of a column of role kEnum, all codes with their names, one per line: "0 none\n1 mpi". "" for other columns.
std::string CodesOf(const schema::ColumnInfo& column);
// The same for the codes that are wanted.
std::string CodesOf(const schema::ColumnInfo& column, const std::function<bool(std::int64_t)>& wanted);

// The clock of a moment: "rank", "cluster", "other". "" for other columns.
std::string_view ClockNameOf(const schema::ColumnInfo& column);

std::string SchemaMarkdown();

}  // namespace lockstep::trace
