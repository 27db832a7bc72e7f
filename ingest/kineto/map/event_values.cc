#include "ingest/kineto/map/event_values.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/schema.h"
#include "ingest/kineto/read/trace_reader.h"

namespace lockstep::ingest {

using schema::kNone;

std::uint64_t Positive(std::int64_t value) {
  return value == kineto::kAbsent || value < 0 ? 0 : static_cast<std::uint64_t>(value);
}

std::uint32_t Id32(std::int64_t value, std::uint32_t absent) {
  return value == kineto::kAbsent || value < 0 || value >= kNone ? absent : static_cast<std::uint32_t>(value);
}

std::uint16_t Device(std::int64_t value) {
  return value == kineto::kAbsent || value < 0 || value > 65534 ? 0 : static_cast<std::uint16_t>(value);
}

std::int32_t Int32(std::int64_t value) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(value, INT32_MIN, INT32_MAX));
}

std::int64_t ElementsOf(std::string_view dims) {
  std::int64_t sum = 0, product = 1;
  bool any = false, in_dims = false;
  std::int64_t number = -1;
  for (const char c : dims) {
    if (c >= '0' && c <= '9') {
      const std::int64_t digit = c - '0';
      if (number < 0) number = 0;
      if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, digit, &number)) return -1;
      in_dims = true;
      continue;
    }
    if (number >= 0) {
      if (__builtin_mul_overflow(product, number, &product)) return -1;
      number = -1;
    }
    if (c == ']' && in_dims) {
      if (__builtin_add_overflow(sum, product, &sum)) return -1;
      product = 1, in_dims = false, any = true;
    }
  }
  return any ? sum : -1;
}

void Three(std::string_view list, std::int32_t& x, std::int32_t& y, std::int32_t& z) {
  std::int32_t* to[] = {&x, &y, &z};
  std::size_t at = 0;
  std::int64_t number = -1;
  for (const char c : list) {
    if (c >= '0' && c <= '9') {
      number = std::min<std::int64_t>((number < 0 ? 0 : number) * 10 + (c - '0'), INT32_MAX);
      continue;
    }
    if (number >= 0 && at < 3) *to[at++] = static_cast<std::int32_t>(number);
    number = -1;
  }
}

}  // namespace lockstep::ingest
