#pragma once
// Element types as PyTorch and NumPy call them.

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

struct DataTypeText {
  std::string_view name;  // "" unknown.
  std::uint32_t bytes;    // Of one element; 0 unknown.
};

// Of a code of core/collective.h's DataType; codes that it does not have are unknown.
constexpr DataTypeText TextOfDataType(std::uint16_t code) {
  constexpr std::array<DataTypeText, 17> kTexts = {{{"", 0},
                                                    {"int8", 1},
                                                    {"uint8", 1},
                                                    {"int16", 2},
                                                    {"uint16", 2},
                                                    {"int32", 4},
                                                    {"uint32", 4},
                                                    {"int64", 8},
                                                    {"uint64", 8},
                                                    {"float16", 2},
                                                    {"bfloat16", 2},
                                                    {"float32", 4},
                                                    {"float64", 8},
                                                    {"float8_e4m3", 1},
                                                    {"float8_e5m2", 1},
                                                    {"byte", 1},
                                                    {"derived", 0}}};
  return code < kTexts.size() ? kTexts[code] : DataTypeText{};
}

}  // namespace lockstep
