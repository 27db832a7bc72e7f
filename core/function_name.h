#pragma once
// Shortens names of C++ functions, mainly kernels, so that people can read them.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep {

// "_Z3fooi" becomes "foo(int)"; a name that is not mangled is returned unchanged. ".kd" (AMD) is removed.
std::string Demangled(std::string_view name);

// The part that distinguishes the function: without its result, arguments, namespaces and the lambdas within. A text
// that is not a C++ name is returned unchanged.
std::string PlainFunction(std::string_view name);

// The same without template arguments that many kernels share: numbers, element types, PyTorch's
// helpers.
std::string TellingFunction(std::string_view name);

// Shortened to so many bytes if possible: the whole name, else the plain one, else the telling one, whose beginning is
// kept while the end of the function's own name is removed. Names of functors are kept longest.
std::string ShortFunction(std::string_view name, std::size_t bytes);

}  // namespace lockstep
