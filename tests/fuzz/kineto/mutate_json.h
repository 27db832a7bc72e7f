#pragma once
// Damage that knows what JSON is made of: bytes alone rarely get past the first bracket.

#include <cstdint>
#include <random>
#include <string>

namespace lockstep::fuzz {

// One change: an object, string, number or bracket removed, repeated, moved, replaced
// by another of the text or by one that parsers trip over.
void MutateJson(std::string& json, std::mt19937_64& random);

}  // namespace lockstep::fuzz
