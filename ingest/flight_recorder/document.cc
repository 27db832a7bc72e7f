#include "ingest/flight_recorder/document.h"

#include <charconv>
#include <cmath>

namespace lockstep::flight_recorder {

std::int64_t Document::Integer(ValueId id, std::int64_t otherwise) const {
  if (id >= values_.size()) return otherwise;
  const Value& value = values_[id];
  switch (value.kind) {
    case Kind::kInteger:
    case Kind::kBool:
      return value.integer;
    case Kind::kReal:
      return std::fabs(value.real) < 9e18 ? static_cast<std::int64_t>(value.real) : otherwise;
    case Kind::kText: {
      std::int64_t number = 0;
      const char* end = value.text.data() + value.text.size();
      const auto [stop, error] = std::from_chars(value.text.data(), end, number);
      return error == std::errc() && stop == end ? number : otherwise;
    }
    case Kind::kNull:
    case Kind::kList:
    case Kind::kDict:
      break;
  }
  return otherwise;
}

}  // namespace lockstep::flight_recorder
