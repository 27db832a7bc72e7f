#pragma once
// Names of C++ functions, kernels above all, as people read them.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// "_Z3fooi" as "foo(int)"; the name itself where it is not mangled. ".kd" of AMD's kernel descriptors goes.
std::string Demangled(std::string_view name);

// What tells the function from others: without its result, arguments, namespaces and the lambdas within. A text that is
// no C++ name comes back as it is.
std::string PlainFunction(std::string_view name);

// The same without template arguments that other kernels have as well: numbers, types of elements, helpers of
// PyTorch's.
std::string TellingFunction(std::string_view name);

// In at most so many bytes, as far as that goes: the whole name, else the plain
// one, else the telling one, of which the end of what is in front of the arguments goes. Functors stay longest.
std::string ShortFunction(std::string_view name, std::size_t bytes);

}  // namespace lockstep
