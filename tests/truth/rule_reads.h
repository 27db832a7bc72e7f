#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace lockstep::rules {

// Which rows of Table() `run` reads, on the calling thread; all of them where that cannot be seen (not x86-64).
std::vector<bool> ReadBy(const std::function<void()>& run);

}  // namespace lockstep::rules
