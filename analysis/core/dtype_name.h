#pragma once
// Element types as PyTorch and NumPy call them.

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep::analysis {

// Of core/collective.h's DataType; "" unknown.
constexpr std::string_view DtypeName(std::uint16_t dtype) {
  constexpr std::array<std::string_view, 17> kNames = {
      "",        "int8",     "uint8",   "int16",   "uint16",      "int32",       "uint32", "int64",  "uint64",
      "float16", "bfloat16", "float32", "float64", "float8_e4m3", "float8_e5m2", "byte",   "derived"};
  return dtype < kNames.size() ? kNames[dtype] : std::string_view();
}

}  // namespace lockstep::analysis
