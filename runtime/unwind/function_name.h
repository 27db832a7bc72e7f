#pragma once
// A function's name for people.

#include <string>
#include <string_view>

namespace lockstep::unwind {

// "_ZN4demo7Collate4CallEi" -> "demo::Collate::Call": without return type and arguments. What is not mangled stays,
// without what a compiler has appended (".cold", ".constprop.0").
std::string FunctionName(std::string_view symbol);

}  // namespace lockstep::unwind
