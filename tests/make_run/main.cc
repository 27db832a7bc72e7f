// make_run SPEC OUT [--set key=value ...] [--kineto "words"] [--jobs N]: see README.md.

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "make_run/run_directory.h"

int main(int argc, char** argv) {
  std::vector<std::string> plain, sets;
  unsigned jobs = 0;
  std::string kineto;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--set" && i + 1 < argc)
      sets.emplace_back(argv[++i]);
    else if (word == "--kineto" && i + 1 < argc)
      kineto = "\nkineto " + std::string(argv[++i]) + "\n";
    else if (word == "--jobs" && i + 1 < argc)
      jobs = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    else
      plain.push_back(word);
  }
  if (plain.size() != 2) {
    std::cerr << "usage: make_run SPEC.run OUT [--set key=value ...] [--kineto \"words\"] [--jobs N]\n";
    return 2;
  }
  std::ifstream file(plain[0]);
  if (!file) {
    fmt::print(stderr, "error: cannot read the description\n  {}\n  try: tests/make_run/README.md\n", plain[0]);
    return 2;
  }
  std::ostringstream text;
  text << file.rdbuf();
  const auto made = lockstep::make_run::MakeRun(text.str() + kineto, plain[0], plain[1], sets, jobs);
  if (made.ok()) return 0;
  fmt::print(stderr, "error: {}\n  {}\n  try: {}\n", made.error().what, made.error().where, made.error().hint);
  return 1;
}
