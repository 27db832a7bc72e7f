#pragma once
// Element types as PyTorch and NumPy call them, and their sizes.

#include <cstdint>
#include <iterator>
#include <string_view>

#include "core/collective.h"

namespace lockstep {

struct DataTypeText {
  std::string_view name;    // "" unknown.
  std::uint32_t bytes = 0;  // Of one element; 0 unknown: there is none such, or it is the user's own.
};

inline constexpr DataTypeText kDataTypeTexts[] = {{},
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
                                                  {"derived"}};
static_assert(std::size(kDataTypeTexts) == static_cast<std::size_t>(DataType::kDerived) + 1);

// Of a code of DataType; codes that it does not have are unknown.
constexpr DataTypeText TextOfDataType(std::uint16_t code) {
  return code < std::size(kDataTypeTexts) ? kDataTypeTexts[code] : DataTypeText{};
}
constexpr std::uint32_t ElementBytes(DataType type) { return TextOfDataType(static_cast<std::uint16_t>(type)).bytes; }

// The type of such a name; PyTorch's variants of 8 bits ("float8_e4m3fn") are one type.
constexpr DataType DataTypeNamed(std::string_view name) {
  for (std::size_t code = 1; code < std::size(kDataTypeTexts); ++code) {
    const std::string_view text = kDataTypeTexts[code].name;
    if (name == text || (text.starts_with("float8") && name.starts_with(text))) return static_cast<DataType>(code);
  }
  return DataType::kUnknown;
}

}  // namespace lockstep
