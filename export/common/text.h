#pragma once
// Texts for files: names come from the application and may contain any bytes, but text files contain UTF-8 only.

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::exporters {

// Replaces bytes that are not UTF-8 by U+FFFD; valid text is returned unchanged. `scratch` holds the result if it
// differs.
std::string_view ValidUtf8(std::string_view text, std::string& scratch);

// Appends "text" with its quotes, escaped for JSON.
void AppendJsonText(std::string& out, std::string_view text);
// Appends one cell of a CSV file, in quotes where it needs them (RFC 4180).
void AppendCsvText(std::string& out, std::string_view text);
void AppendInt(std::string& out, std::int64_t value);
void AppendUnsigned(std::string& out, std::uint64_t value);
// Microseconds with three decimals, so that no nanosecond is lost.
void AppendMicroseconds(std::string& out, std::int64_t ns);

}  // namespace lockstep::exporters
