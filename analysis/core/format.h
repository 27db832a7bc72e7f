#pragma once
// Formats numbers for people. At most three significant digits; floating point is used here for the first
// time.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::analysis {

std::string Duration(std::int64_t ns);                       // "412 ms", "3.1 us", "0"
std::string MeanDuration(double ns);                         // The same of what need not be whole, rounded once.
std::string Percent(std::int64_t part, std::int64_t whole);  // "83 %", "0.4 %", "-" if whole <= 0
std::string Percent(double fraction);
std::string Bytes(std::uint64_t bytes);                        // "1.42 GB" (powers of 1000)
std::string MeanBytes(double bytes);                           // The same of what need not be whole, rounded once.
std::string Bandwidth(double bytes_per_second);                // "13.3 GB/s"
std::string Count(std::int64_t n);                             // "1 842 113"
std::string RankList(const std::vector<std::int32_t>& ranks);  // "0-3,8"; ascending input
// For a sentence: "rank 3", "ranks 3, 17 and 412", "ranks 4-7", "ranks 3, 17, 412 and 9 others"; in the order given
// but for neighbours, of which a run of three and more in sequence is one item.
std::string RankNames(const std::vector<std::int32_t>& ranks);
// "a, b and c".
std::string Listed(const std::vector<std::string>& names, std::string_view last = " and ");
// RankList if it takes at most so many columns, else its beginning: "0-3,8,11,.. (412 in all)".
std::string ShortRankList(const std::vector<std::int32_t>& ranks, std::size_t columns = 40);
// "1 rank", "4 ranks".
std::string Plural(std::int64_t n, const char* noun);
// Of a mean, which need not be whole: "12.3", "1 842".
std::string Mean(double value);
std::string PluralOfMean(double value, const char* noun);  // "1 kernel", "12.3 kernels", "1 842 kernels".
// Of what only a plural names, such as a loss's sentence: "3 spans that overlap", "spans that overlap: 1"; "no spans",
// which is no number of them, has none.
std::string CountOf(std::uint64_t n, std::string_view plural);
// "1st", "2nd", "11th", "23rd".
std::string Ordinal(std::int64_t n);
// The names of those of NVML's bits that cost performance: "power cap, heat (hardware)".
std::string ThrottleReasons(std::uint64_t reasons);

}  // namespace lockstep::analysis
