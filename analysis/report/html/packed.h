#pragma once
// How a report's page carries data: columns of integers packed, texts made harmless.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

using PageJson = nlohmann::ordered_json;  // Keys in the order written: same run, same bytes.

// In a packed column: not known, null in the page.
inline constexpr std::int64_t kUnknownCell = INT64_MIN;

// {"packed": base64, "n": count, "width": w, "base": b, "unit": u}: value = b + u * raw, where raw has w bytes, the
// lowest first, all ones unknown; the raws' first bytes lie together, then their second and so on, deflated (zlib).
// Exact (u = 1) unless the values span more than 2^48 - 2.
PageJson Packed(const std::vector<std::int64_t>& values);

// A column whose values need not be exact: kept to `bits` significant bits, so that it packs better.
void RoundTo(int bits, std::vector<std::int64_t>& values);

// A text that came from a program as it may stand on a page: valid UTF-8; control characters and those that turn the
// direction of text or hide it are shown by their number; what is longer than `most` characters is cut, said so.
std::string Harmless(std::string_view text, std::size_t most = 4000);
// The same for every text below, packed columns excepted.
void MakeHarmless(PageJson& json);

// For the inside of <script type="application/json">: no character that could end it.
std::string ScriptSafe(const PageJson& json);
// For text between tags and for attribute values.
std::string HtmlEscaped(std::string_view text);

}  // namespace lockstep::report
