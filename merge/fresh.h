#pragma once
// Whether the existing timeline was made of the present files, with the same options, by the same rules. OpenFresh,
// OpenOrMerge, SeenFiles and Changed (merge.h) are in the same source.

#include <string>
#include <string_view>

#include "merge/merge.h"

namespace lockstep::merge {

std::string_view ClockName(ClockChoice choice);
// The options on which the result depends, besides the rank files; not the number of threads.
std::string OptionsHash(const MergeOptions& options);
// Names and sizes of the files that a merge reads.
std::string InputsHash(const std::string& run_dir);

}  // namespace lockstep::merge
