#pragma once
// Numbers of JSON text without a detour through double, which is 256 ns coarse at
// today's nanoseconds since 1970.

#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::kineto {

// text x 10^scale, digits that are left behind the point cut. None if it is no finite
// decimal number or does not fit.
std::optional<std::int64_t> ScaledDecimal(std::string_view text, int scale);

// An id: 64 bits, with or without sign; the upper half of unsigned ones comes out
// negative, so that different ids stay different. kAbsent if it is none.
std::int64_t ParseId(std::string_view text);

}  // namespace lockstep::kineto
