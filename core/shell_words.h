#pragma once
// Commands as lines that a POSIX shell reads as the same words, and back.

#include <cctype>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The word as it is where no character of it means anything to a shell, else in quotes.
inline std::string ShellQuoted(std::string_view word) {
  bool plain = !word.empty();
  for (const char c : word)
    plain = plain && (std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                      std::string_view("-_./=:,+@%^").find(c) != std::string_view::npos);
  if (plain) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

// The words of a line: of quotes and backslashes what ShellQuoted() writes, and double quotes around words.
inline std::vector<std::string> ShellWords(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false, escaped = false;
  char quote = 0;
  for (const char c : line) {
    if (escaped) {
      word += c;
      escaped = false;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\\') {
      escaped = in_word = true;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (in_word) words.push_back(std::move(word));
  return words;
}

}  // namespace lockstep
