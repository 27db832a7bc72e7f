#pragma once
// Which device and context the rows of a report's tables are of. Not every table of every version fills these columns:
// SYNCHRONIZATION of 2026.2 has 0 in deviceId whatever the device. What one table leaves out, others say.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::nsys {

// The rows that one table of the report gave, as columns of a rank's table.
struct PlaceColumns {
  std::span<std::uint16_t> device;
  std::span<std::uint32_t> context;
  std::span<const std::uint32_t> stream;
};

// Fills contexts, then devices, of tables that have 0 in all rows of the process: a stream is of one context and a
// context of one device, if other tables agree on it. `kernels`: how many tables, from the first, know their place
// best. `told`: devices of contexts by the report's own list, for contexts that no such table has.
void FillPlaces(std::span<const PlaceColumns> tables, std::size_t kernels,
                const std::vector<std::pair<std::uint32_t, std::uint16_t>>& told);

}  // namespace lockstep::nsys
