#include "core/shell_words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep {
namespace {

TEST(ShellWords, AQuotedLineIsTheSameWords) {
  const std::vector<std::string> words = {
      "python", "-u", "/data/my runs/train ü.py", "it's", "", "a\\b", "\"", "$(x)", "''", "--lr=1"};
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + ShellQuoted(word);
  EXPECT_EQ(ShellWords(line), words) << line;
  EXPECT_EQ(line.find("python -u '"), 0u) << "plain words stay as they are";
}

TEST(ShellWords, LinesThatPeopleWrite) {
  EXPECT_EQ(ShellWords("  a   \"b c\" 'd'e "), (std::vector<std::string>{"a", "b c", "de"}));
  EXPECT_EQ(ShellWords("open 'quote"), (std::vector<std::string>{"open", "quote"}));
  EXPECT_TRUE(ShellWords("").empty());
  EXPECT_EQ(ShellQuoted(""), "''");
}

}  // namespace
}  // namespace lockstep
