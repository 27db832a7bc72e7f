// Inputs of the fuzzers of others' files through an ordinary build of what they fuzz: a corpus, and then so many
// damaged copies of its files. The seed alone decides which.
//
//   fuzz_replay NAME CORPUS INPUTS SEED FINDING

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "fuzz/mutate.h"

// Of fuzz_NAME.cc, by the names that CMakeLists.txt gives them.
extern "C" int TestKineto(const std::uint8_t* data, std::size_t size);
extern "C" int TestFlightRecorder(const std::uint8_t* data, std::size_t size);
extern "C" int TestRas(const std::uint8_t* data, std::size_t size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed);

namespace {

using namespace lockstep::fuzz;

Random random_numbers;
Bytes input;
const char* finding;

// What was read when it happened is kept.
void Keep(int signal) {
  const int fd = ::open(finding, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || ::write(fd, input.data(), input.size()) < 0) std::perror(finding);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

std::uint8_t* Data() { return reinterpret_cast<std::uint8_t*>(input.data()); }

Bytes ReadBytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  const std::vector<char> text{std::istreambuf_iterator<char>(in), {}};
  Bytes bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most) {
  Bytes bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  Damage(bytes, {}, random_numbers);
  bytes.resize(std::min(bytes.size(), most));
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string_view name = argv[1];
  const auto test = name == "kineto" ? TestKineto : name == "ras" ? TestRas : TestFlightRecorder;
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[2])) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> corpus;
  for (const std::filesystem::path& path : paths) corpus.push_back(ReadBytes(path));
  if (corpus.empty()) return 2;
  random_numbers = Random(std::strtoull(argv[4], nullptr, 10));
  finding = argv[5];
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) std::signal(signal, Keep);
  const std::size_t inputs = std::strtoull(argv[3], nullptr, 10);
  for (std::size_t i = 0; i < corpus.size() + inputs; ++i) {
    input = corpus[i < corpus.size() ? i : random_numbers() % corpus.size()];
    if (i >= corpus.size() && name == "kineto") {
      const std::size_t size = input.size(), most = 2 * size + 1024;
      input.resize(most);
      input.resize(LLVMFuzzerCustomMutator(Data(), size, most, static_cast<unsigned>(random_numbers())));
    } else if (i >= corpus.size()) {
      Damage(input, corpus[random_numbers() % corpus.size()], random_numbers);
    }
    ::alarm(60);
    test(Data(), input.size());
  }
  std::printf("%s: %zu files, %zu damaged ones\n", argv[1], corpus.size(), inputs);
  return 0;
}
