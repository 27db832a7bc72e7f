#pragma once
// Converts numbers and lists of a trace's event to the form of the columns.

#include <cstdint>
#include <string_view>

namespace lockstep::ingest {

// 0 for what is absent or negative.
std::uint64_t Positive(std::int64_t value);
// Ids that do not fit, -1 and CUPTI's own "none" (all ones) are none.
std::uint32_t Id32(std::int64_t value, std::uint32_t absent);
std::uint16_t Device(std::int64_t value);
// The nearest one that fits.
std::int32_t Int32(std::int64_t value);
// Elements of the tensors in "Input Dims": [[2, 3], []] or, of lists, [[[2, 3]], []]. A
// scalar's [] counts as one where it is the only tensor; -1: no tensor.
std::int64_t ElementsOf(std::string_view dims);
// The first three numbers of "[8, 4, 1]"; what is not there stays as it is.
void Three(std::string_view list, std::int32_t& x, std::int32_t& y, std::int32_t& z);

}  // namespace lockstep::ingest
