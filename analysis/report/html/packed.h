#pragma once
// Encodes the data of a report's page: columns of integers are packed, texts are made safe.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

using PageJson = nlohmann::ordered_json;  // Keys in the order written: same run, same bytes.

// In a packed column: not known; null in the page.
inline constexpr std::int64_t kUnknownCell = INT64_MIN;

// {"packed": base64, "n": count, "width": w, "base": b, "unit": u}: value = b + u * raw, where raw has w bytes, the
// lowest first, all ones unknown; the raws' first bytes lie together, then their second and so on, deflated (zlib).
// Exact (u = 1) unless the values span more than 2^48 - 2.
PageJson Packed(const std::vector<std::int64_t>& values);

// For a column whose values need not be exact: keeps `bits` significant bits, so that it packs better.
void RoundTo(int bits, std::vector<std::int64_t>& values);

// Makes a program's text safe for a page: valid UTF-8; control characters and those that change the direction of text
// or hide it are shown by their number; text longer than `most` characters is cut, which is shown.
std::string Harmless(std::string_view text, std::size_t most = 4000);
// The same for every text inside, except packed columns.
void MakeHarmless(PageJson& json);

// For the inside of <script type="application/json">: without any character that could end it.
std::string ScriptSafe(const PageJson& json);
// For text between tags, and for attribute values.
std::string HtmlEscaped(std::string_view text);

}  // namespace lockstep::report
