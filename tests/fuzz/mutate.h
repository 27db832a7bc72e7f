#pragma once
// Damage, as disks, copies and other programs do it, and as nobody would think of.

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace lockstep::fuzz {

using Bytes = std::vector<std::byte>;
using Random = std::mt19937_64;

// A number that code written for sane values trips over: 0, -1, powers of two and
// their neighbours, the ends of every width, or any.
std::uint64_t Extreme(Random& random);

// One to a few of: bytes and integers replaced, slots swapped, stretches repeated,
// removed, taken from `other` or zeroed, the end cut off. Mostly in one area, which
// gets further into a reader than damage everywhere.
void Damage(Bytes& bytes, const Bytes& other, Random& random);

// Gives every spool block a good checksum again, so that what is behind it is read.
void SealSpoolBlocks(Bytes& bytes);

}  // namespace lockstep::fuzz
