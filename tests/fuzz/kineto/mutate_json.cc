#include "fuzz/kineto/mutate_json.h"

#include <algorithm>
#include <string_view>

namespace lockstep::fuzz {
namespace {

constexpr std::string_view kPieces[] = {
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\\"",
    "\\u",
    "\\ud83d",
    "\\u0000",
    " ",
    "\n",
    "\t\r\n ",
    "\xEF\xBB\xBF",
    "\xFF",
    "\xC3",
    "\x01",
    std::string_view("\0", 1),
    "null",
    "true",
    "NaN",
    "-Infinity",
    "nan",
    "-",
    "0",
    "-1",
    "1e999",
    "1.5e3",
    "-0.0",
    "1e-999999999999",
    "18446744073709551615",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775.807",
    "123456789012345678901234567890",
    "{}",
    "[]",
    "[[[[[[[[",
    "]]]]]]]]",
    "{\"ph\":",
    "},{\"ph\":\"X\",",
    "{\"name\":\"x\"}",
    "\"ph\":\"X\"",
    "\"ph\":\"M\"",
    "\"ph\":\"B\"",
    "\"cat\":\"kernel\"",
    "\"cat\":\"python_function\"",
    "\"name\":\"n\"",
    "\"ts\":1",
    "\"ts\":\"1.5\"",
    "\"ts\":NaN",
    "\"dur\":-5",
    "\"dur\":null",
    "\"pid\":\"Spans\"",
    "\"tid\":-1",
    "\"id\":7",
    "\"args\":{",
    "\"args\":{}",
    "\"args\":null",
    "\"correlation\":1",
    "\"External id\":2",
    "\"stream\":\"7\"",
    "\"Sequence number\":3",
    "\"Device Id\":0",
    "\"traceEvents\":[",
    "\"traceEvents\":",
    "],\"traceName\":\"t\"}",
    "]}",
    "\"baseTimeNanoseconds\":5",
    "\"distributedInfo\":{\"rank\":1}",
    "\"deviceProperties\":[",
};

std::size_t Under(std::mt19937_64& random, std::size_t bound) { return bound == 0 ? 0 : random() % bound; }

// From some '{', '[', '"' or digit to where it ends, as far as counting tells.
struct Span {
  std::size_t at = 0, size = 0;
};
Span AnySpan(const std::string& json, std::mt19937_64& random) {
  if (json.empty()) return {};
  static constexpr std::string_view kOpeners = "{{{[\"\"0123456789";
  const std::size_t at = json.find(kOpeners[Under(random, kOpeners.size())], Under(random, json.size()));
  if (at == std::string::npos) return {Under(random, json.size()), 1};
  const char open = json[at];
  std::size_t end = at + 1;
  if (open == '"') {
    while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, json.size());
  } else if (open == '{' || open == '[') {
    for (int depth = 1; end < json.size() && depth > 0; ++end)
      depth += json[end] == open ? 1 : json[end] == (open == '{' ? '}' : ']') ? -1 : 0;
  } else {
    while (end < json.size() && std::string_view("0123456789.eE+-").find(json[end]) != std::string_view::npos) ++end;
  }
  return {at, end - at};
}

}  // namespace

void MutateJson(std::string& json, std::mt19937_64& random) {
  const Span span = AnySpan(json, random);
  const auto piece = [&] { return std::string(kPieces[Under(random, std::size(kPieces))]); };
  switch (random() % 8) {
    case 0:
      json.erase(span.at, span.size);
      break;
    case 1:
      json.insert(span.at, json.substr(span.at, span.size) + (random() % 2 == 0 ? "," : ""));
      break;
    case 2: {
      const Span other = AnySpan(json, random);
      json.replace(span.at, span.size, json.substr(other.at, other.size));
      break;
    }
    case 3: {
      const Span other = AnySpan(json, random);
      const std::string text = json.substr(other.at, other.size);
      json.insert(std::min(span.at + span.size, json.size()), (random() % 2 == 0 ? "," : "") + text);
      break;
    }
    case 4:
      json.replace(span.at, span.size, piece());
      break;
    case 5:
      json.insert(Under(random, json.size() + 1), piece());
      break;
    case 6:
      if (span.size > 1) json.erase(span.at + (random() % 2 == 0 ? 0 : span.size - 1), 1);
      break;
    default:
      json.resize(Under(random, json.size() + 1));
      break;
  }
}

}  // namespace lockstep::fuzz
