#pragma once
// Memory that holds nothing but zeros need not be there: most columns of a large table are zero throughout, because
// nothing of the kind occurred.

#include <cstddef>
#include <type_traits>
#include <vector>

namespace lockstep {

// Gives pages back to the system that hold only zeros. They read as zeros afterwards, and become memory again where
// something is written. `data`: memory of the heap (private and anonymous). Does nothing below a few pages, or where
// the system declines. Linear, but stops at the first byte of a block that is not zero. Thread: nobody writes to it
// meanwhile.
void GiveBackZeroPages(void* data, std::size_t bytes);

template <typename T>
void GiveBackZeroPages(std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  GiveBackZeroPages(values.data(), values.size() * sizeof(T));
}

}  // namespace lockstep
