#include "core/function_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <vector>

namespace lockstep {
namespace {

bool InIdentifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '~' || c == '$';
}

void RemoveAll(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

// The position of the closing bracket for the one that opens at `at`; text.size() if it does not close.
std::size_t Closing(std::string_view text, std::size_t at) {
  const char open = text[at], close = open == '(' ? ')' : open == '{' ? '}' : '>';
  std::size_t depth = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    if (text[i] == open) ++depth;
    if (text[i] == close && --depth == 0) return i;
  }
  return text.size();
}

// Removes namespaces and classes in front of names, arguments of functions, and lambdas.
std::string Unqualified(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '(' || text[i] == '{') {
      const std::size_t end = Closing(text, i);
      // A cast in front of an enumerator, "(Mode)3", is removed as well.
      i = std::min(end + 1, text.size());
      continue;
    }
    if (!InIdentifier(text[i])) {
      plain += text[i++];
      continue;
    }
    std::size_t end = i;
    while (end < text.size() && InIdentifier(text[end])) ++end;
    const std::string_view word = text.substr(i, end - i);
    const bool qualifies = text.substr(end, 2) == "::";
    if (!qualifies && word != "operator") plain += word;
    i = qualifies ? end + 2 : end;
  }
  // Remove what connected the parts that were removed.
  for (const std::string_view rest : {"::", " const"}) RemoveAll(plain, rest);
  for (const std::string_view space : {" >", " ,"})
    for (std::size_t at = plain.find(space); at != std::string::npos; at = plain.find(space)) plain.erase(at, 1);
  return plain;
}

bool IsCommon(std::string_view argument) {
  static constexpr std::string_view kTypes[] = {"float", "double",   "int",           "long",        "short",  "char",
                                                "bool",  "unsigned", "true",          "false",       "half",   "__half",
                                                "Half",  "BFloat16", "__nv_bfloat16", "nv_bfloat16", "signed", "void"};
  static constexpr std::string_view kHelpers[] = {"array",
                                                  "Array",
                                                  "OffsetCalculator",
                                                  "TrivialOffsetCalculator",
                                                  "LoadWithoutCast",
                                                  "StoreWithoutCast",
                                                  "LoadWithCast",
                                                  "StoreWithCast"};
  if (std::none_of(argument.begin(), argument.end(),
                   [](char c) { return std::isalpha(static_cast<unsigned char>(c)); }))
    return true;
  const std::size_t end =
      static_cast<std::size_t>(std::find_if_not(argument.begin(), argument.end(), InIdentifier) - argument.begin());
  const std::string_view first = argument.substr(0, end);
  if (std::isdigit(static_cast<unsigned char>(argument[0])) != 0) return true;  // "4u"
  return std::find(std::begin(kTypes), std::end(kTypes), first) != std::end(kTypes) ||
         std::find(std::begin(kHelpers), std::end(kHelpers), first) != std::end(kHelpers);
}

// Keeps only template arguments that distinguish the function; if none remains, the bare name is left.
std::string Telling(std::string_view text) {
  const std::size_t open = text.find('<');
  if (open == std::string_view::npos) return std::string(text);
  const std::size_t close = Closing(text, open);
  if (close == text.size()) return std::string(text);
  std::string arguments;
  std::size_t depth = 0, begin = open + 1;
  for (std::size_t i = open + 1; i <= close; ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>' && i < close) --depth;
    if (i < close && (text[i] != ',' || depth > 0)) continue;
    std::string_view argument = text.substr(begin, i - begin);
    while (!argument.empty() && argument.front() == ' ') argument.remove_prefix(1);
    begin = i + 1;
    if (argument.empty() || IsCommon(argument)) continue;
    arguments += (arguments.empty() ? "" : ", ") + Telling(argument);
  }
  std::string told(text.substr(0, open));
  if (!arguments.empty()) told += '<' + arguments + '>';
  return told + std::string(text.substr(close + 1));
}

// A mangled name that the demangler does not accept (vendors' extensions): its own identifier first, then the rest
// unchanged. "" if it has no identifier.
std::string OfMangled(std::string_view name) {
  name.remove_prefix(2);
  const bool nested = name.starts_with('N');
  if (nested) name.remove_prefix(1);
  std::string_view last;
  while (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
    std::size_t length = 0, digits = 0;
    for (; digits < name.size() && digits < 4 && std::isdigit(static_cast<unsigned char>(name[digits])) != 0; ++digits)
      length = 10 * length + static_cast<std::size_t>(name[digits] - '0');
    if (length == 0 || digits + length > name.size()) break;
    last = name.substr(digits, length);
    name.remove_prefix(digits + length);
    if (!nested) break;
  }
  if (last.empty()) return "";
  return name.empty() ? std::string(last) : std::string(last) + '<' + std::string(name) + '>';
}

}  // namespace

std::string Demangled(std::string_view name) {
  if (name.ends_with(".kd")) name.remove_suffix(3);
  std::string text(name);
  if (!name.starts_with("_Z")) return text;
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> readable(abi::__cxa_demangle(text.c_str(), nullptr, nullptr, &status),
                                                        std::free);
  return status == 0 && readable ? std::string(readable.get()) : text;
}

std::string PlainFunction(std::string_view name) {
  if (name.starts_with("_Z")) {
    std::string plain = OfMangled(name);
    return plain.empty() ? std::string(name) : plain;
  }
  std::string text(name);
  for (const std::string_view nowhere : {"(anonymous namespace)::", "{anonymous}::", "<unnamed>::"})
    RemoveAll(text, nowhere);
  if (const std::size_t clone = text.find(" [clone"); clone != std::string::npos) text.resize(clone);
  const std::size_t first = text.find('(');
  const bool arguments = text.ends_with(')') && first != std::string::npos && first > 0 && text[first - 1] != ' ';
  if (!arguments && text.find("::") == std::string::npos && text.find('<') == std::string::npos)
    return std::string(name);
  // Removes the result type of a function. In other texts a space does not end a type.
  if (text.starts_with("void ")) text.erase(0, 5);
  std::string plain = Unqualified(text);
  while (!plain.empty() && plain.back() == ' ') plain.pop_back();
  return plain.empty() ? std::string(name) : plain;
}

std::string TellingFunction(std::string_view name) {
  std::string plain = PlainFunction(name);
  return plain == name ? plain : Telling(plain);
}

std::string ShortFunction(std::string_view name, std::size_t bytes) {
  if (name.size() <= bytes) return std::string(name);
  std::string text = PlainFunction(name);
  if (text.size() <= bytes || text == name) return text;
  text = Telling(text);
  const std::size_t open = text.find('<');
  if (text.size() <= bytes || open == std::string::npos || open < 2) return text;
  // The end of the function's own name is removed if that is sufficient.
  constexpr std::size_t kLeastOfName = 8;
  const std::size_t excess = text.size() - bytes + 2;
  if (open >= kLeastOfName + excess) text = text.substr(0, open - excess) + ".." + text.substr(open);
  return text;
}

}  // namespace lockstep
