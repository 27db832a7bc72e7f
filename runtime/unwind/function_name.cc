#include "runtime/unwind/function_name.h"

#include <cxxabi.h>

#include <cstdlib>

namespace lockstep::unwind {
namespace {

constexpr std::size_t kMostName = 200;

// "void f<int>(int) const" -> "f<int>".
std::string Bare(std::string name) {
  // Arguments: the last pair of brackets outside of all others, if something stands before it. "(anonymous namespace)"
  // and "operator()" are followed by more of the name.
  int depth = 0;
  std::size_t open = std::string::npos, close = std::string::npos;
  for (std::size_t i = name.size(); i-- > 0;) {
    const char c = name[i];
    if (c == ')' || c == '}' || (c == '>' && (i == 0 || name[i - 1] != '-'))) {
      if (depth++ == 0 && c == ')') close = i;
    } else if (c == '(' || c == '{' || c == '<') {
      if (--depth == 0 && c == '(') {
        open = i;
        break;
      }
      if (depth < 0) return name;  // operator<, operator->: as it is.
    }
  }
  const std::string_view behind = close == std::string::npos ? "" : std::string_view(name).substr(close + 1);
  if (open != std::string::npos && open > 0 && !behind.starts_with("::")) name.erase(open);
  // A return type is there for templates only.
  if (name.find("operator") != std::string::npos) return name;
  depth = 0;
  for (std::size_t i = name.size(); i-- > 0;) {
    const char c = name[i];
    if (c == ')' || c == '}' || c == '>') ++depth;
    if (c == '(' || c == '{' || c == '<') --depth;
    if (c == ' ' && depth == 0) return name.substr(i + 1);
  }
  return name;
}

}  // namespace

std::string FunctionName(std::string_view symbol) {
  symbol = symbol.substr(0, symbol.find('@'));  // The symbol's version.
  const std::size_t appended = symbol.find('.', 1);
  std::string plain(symbol.substr(0, appended));
  if (plain.starts_with("_Z")) {
    int status = 0;
    if (char* text = abi::__cxa_demangle(plain.c_str(), nullptr, nullptr, &status); text != nullptr) {
      plain = Bare(text);
      std::free(text);
    }
  }
  if (plain.size() > kMostName) plain = plain.substr(0, kMostName) + "..";
  return plain;
}

}  // namespace lockstep::unwind
