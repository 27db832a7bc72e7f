#pragma once
// Gives a vector's memory back. Assigning {} does not: it is an empty list, for which the memory is kept.

#include <vector>

namespace lockstep::merge {

template <typename T>
void Release(std::vector<T>& values) {
  std::vector<T>().swap(values);
}

}  // namespace lockstep::merge
