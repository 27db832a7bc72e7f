#pragma once
// Numbers as people read them. Three significant digits at most; floating point
// begins here and nowhere earlier.

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

std::string Duration(std::int64_t ns);                       // "412 ms", "3.1 us", "0"
std::string Percent(std::int64_t part, std::int64_t whole);  // "83 %", "0.4 %", "-" if whole <= 0
std::string Percent(double fraction);
std::string Bytes(std::uint64_t bytes);                        // "1.42 GB" (powers of 1000)
std::string Bandwidth(double bytes_per_second);                // "13.3 GB/s"
std::string Count(std::int64_t n);                             // "1 842 113"
std::string RankList(const std::vector<std::int32_t>& ranks);  // "0-3,8"; ascending input
// "1 rank", "4 ranks".
std::string Plural(std::int64_t n, const char* noun);

}  // namespace lockstep
