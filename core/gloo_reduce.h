#pragma once
// How PyTorch's gloo divides a reduction to one rank among its members.

#include <algorithm>
#include <cstdint>

namespace lockstep {

// gloo's reduce divides the data into as many chunks as there are members, and passes each chunk around the ring of
// members, towards lower numbers, until it has come to the one that it is of. Chunks have at least two segments of
// whole elements and of at most 1 MiB, so that few elements (a loss that is logged: one) fill only the first chunks.
// The number of chunks that are not empty, which are those of the members with the lowest numbers; 0: not known.
// gloo/reduce.cc and reduce.h, the same from 2018 to 2025.
constexpr std::uint32_t GlooReduceChunks(std::uint32_t members, std::uint64_t bytes, std::uint64_t element_bytes) {
  constexpr std::uint64_t kLargestSegment = 1 << 20;
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 60;  // Damaged recordings have any: no sum overflows below.
  if (members == 0 || bytes == 0 || bytes > kMostBytes || element_bytes == 0 || element_bytes > kLargestSegment)
    return 0;
  const auto parts = [](std::uint64_t whole, std::uint64_t part) { return (whole - 1) / part + 1; };  // Rounded up.
  const std::uint64_t largest = element_bytes * (kLargestSegment / element_bytes);
  const std::uint64_t segment =
      parts(std::min(parts(bytes, std::uint64_t{members} * 2), largest), element_bytes) * element_bytes;
  const std::uint64_t segments = std::max(parts(bytes, segment), std::uint64_t{members} * 2);
  const std::uint64_t chunk = parts(segments, members) * segment;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(members, parts(bytes, chunk)));
}

}  // namespace lockstep
