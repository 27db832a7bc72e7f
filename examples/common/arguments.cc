#include "examples/common/arguments.h"

#include <charconv>
#include <cstdint>
#include <cstdio>

namespace lockstep::example {
namespace {

std::string Shown(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", number);
  return text;
}

}  // namespace

template <typename T>
void Arguments::Number(const char* name, T& value, Range range, const char* help) {
  const auto set = [&value, range](std::string_view text) -> std::string {
    T read{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
    if (error != std::errc() || end != text.data() + text.size()) return "is no number, or none of this kind";
    const auto number = static_cast<double>(read);
    if (!(number >= range.least))
      return range.least > 0 && range.least < 1 ? "is not above 0" : "is below " + Shown(range.least);
    if (number > range.most) return "is above " + Shown(range.most);
    value = read;
    return {};
  };
  options_.push_back({name, "NUMBER (" + Shown(static_cast<double>(value)) + ")", help, set});
}
template void Arguments::Number(const char*, int&, Range, const char*);
template void Arguments::Number(const char*, std::int64_t&, Range, const char*);
template void Arguments::Number(const char*, std::uint64_t&, Range, const char*);
template void Arguments::Number(const char*, double&, Range, const char*);

void Arguments::AddChoice(const char* name, const std::vector<std::string>& words, const std::string& chosen,
                          std::function<void(std::size_t)> choose, const char* help) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : "|") + word;
  const auto set = [words, all, choose = std::move(choose)](std::string_view text) -> std::string {
    for (std::size_t i = 0; i < words.size(); ++i)
      if (words[i] == text) {
        choose(i);
        return {};
      }
    return "is none of " + all;
  };
  options_.push_back({name, all + " (" + chosen + ")", help, set});
}

void Arguments::Text(const char* name, std::string& value, const char* help) {
  options_.push_back({name, "TEXT", help, [&value](std::string_view text) {
                        value = text;
                        return std::string();
                      }});
}

void Arguments::Texts(const char* name, std::vector<std::string>& values, char separator, const char* help) {
  options_.push_back({name, "TEXT ...", help, [&values, separator](std::string_view text) {
                        for (std::size_t at = 0; separator != 0 && (at = text.find(separator)) != text.npos;) {
                          values.emplace_back(text.substr(0, at));
                          text.remove_prefix(at + 1);
                        }
                        values.emplace_back(text);
                        return std::string();
                      }});
}

void Arguments::Flag(const char* name, bool& value, const char* help) {
  options_.push_back({name, "", help, [&value](std::string_view) {
                        value = true;
                        return std::string();
                      }});
}

int Arguments::Parse(int argc, char** argv, std::string& said) const {
  const auto wrong = [&](const std::string& what) {
    said = what + "\nRun with --help for more information.\n";
    return 2;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h") {
      said = Help();
      return 0;
    }
    const std::size_t equals = word.find('=');
    const std::string name(word.substr(0, equals));
    const Option* option = nullptr;
    for (const Option& one : options_)
      if (one.name == name) option = &one;
    const bool given = equals != word.npos;
    if (option == nullptr) return wrong(name + " is no option of " + program_);
    if (option->shown.empty()) {
      if (given) return wrong(name + " takes no value");
      option->set({});
      continue;
    }
    if (!given && i + 1 == argc) return wrong(name + " needs a value");
    const std::string_view value = given ? word.substr(equals + 1) : std::string_view(argv[++i]);
    if (const std::string what = option->set(value); !what.empty())
      return wrong(name + ": '" + std::string(value) + "' " + what);
  }
  return -1;
}

std::string Arguments::Help() const {
  std::string text = description_ + "\nusage: " + program_ + " [OPTIONS]\n\n";
  for (const Option& option : options_)
    text += "  " + option.name + (option.shown.empty() ? "" : " ") + option.shown + "\n      " + option.help + "\n";
  return text;
}

}  // namespace lockstep::example
