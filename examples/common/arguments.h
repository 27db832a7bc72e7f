#pragma once
// The command line of an example: options with a value, as `--name VALUE` or `--name=VALUE`, and flags. Of an option
// that is there twice the last value counts. A library for this would take longer to compile than the rest of an
// example.

#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::example {

// Both ends are allowed.
struct Range {
  double least, most = std::numeric_limits<double>::infinity();
};

class Arguments {
 public:
  static constexpr Range kPositive{std::numeric_limits<double>::min()}, kNotNegative{0};

  Arguments(std::string description, std::string program)
      : description_(std::move(description)), program_(std::move(program)) {}

  // What is given to these is written when Parse meets the option; its value until then is the default.
  // T: int, std::int64_t, std::uint64_t or double.
  template <typename T>
  void Number(const char* name, T& value, Range range, const char* help);
  template <typename E>
  void Choice(const char* name, E& value, const std::vector<std::pair<std::string, E>>& choices, const char* help) {
    std::vector<std::string> words;
    std::string chosen;
    for (const auto& [word, of] : choices) {
      words.push_back(word);
      if (of == value) chosen = word;
    }
    AddChoice(
        name, words, chosen, [&value, choices](std::size_t at) { value = choices[at].second; }, help);
  }
  void Text(const char* name, std::string& value, const char* help);
  // May be there several times; each value is cut at `separator`, if it is not 0.
  void Texts(const char* name, std::vector<std::string>& values, char separator, const char* help);
  void Flag(const char* name, bool& value, const char* help);

  // -1, or the exit code with which the program should end after printing `said`: 0 for --help, 2 for an error.
  int Parse(int argc, char** argv, std::string& said) const;

 private:
  struct Option {
    std::string name, shown, help;                     // `shown`: of its value; empty for a flag.
    std::function<std::string(std::string_view)> set;  // Gives what is wrong with a value, empty if nothing is.
  };
  void AddChoice(const char* name, const std::vector<std::string>& words, const std::string& chosen,
                 std::function<void(std::size_t)> choose, const char* help);
  std::string Help() const;

  std::string description_, program_;
  std::vector<Option> options_;
};

}  // namespace lockstep::example
