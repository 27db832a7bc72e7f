#pragma once
// Names that a mistyped word may stand for.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::cli {

// How many letters were left out, added, replaced or exchanged with a neighbour.
std::size_t EditDistance(std::string_view a, std::string_view b);

// The name of `names` that `word` is most like: it begins one of them, or differs in no more than a third of its
// letters; the first of several. "" if there is none.
std::string Nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace lockstep::cli
