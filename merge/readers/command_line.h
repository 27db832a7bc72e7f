#pragma once
// How a manifest's command is shown: as a line that a shell reads as the same words.

#include <nlohmann/json.hpp>
#include <string>

#include "core/shell_words.h"

namespace lockstep::merge {

// `words`: an array; what is no text in it is left out. `imported`: what an import calls its command, which are names
// for people and no words of a shell.
inline std::string CommandLine(const nlohmann::json& words, bool imported) {
  std::string line;
  for (const auto& word : words)
    if (word.is_string()) {
      const auto text = word.get<std::string>();
      line += (line.empty() ? "" : " ") + (imported ? text : ShellQuoted(text));
    }
  return line;
}

}  // namespace lockstep::merge
