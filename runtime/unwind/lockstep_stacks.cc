// lockstep-stacks: finds the names of stacks that its agent has copied (runtime/agent/stacks/stack_request.h). It reads
// from its standard input, a socket, how long a request is, and ends with its agent.

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "core/own_file.h"
#include "runtime/agent/stacks/stack_request.h"
#include "runtime/unwind/process_image.h"

namespace lockstep::unwind {
namespace {

// An agent has few processes, and each of them maps the same files again and again.
constexpr std::size_t kMostImages = 4;

class Images {
 public:
  ProcessImage& Of(std::string_view maps) {
    for (auto& image : images_)
      if (image->maps() == maps) return *image;
    if (images_.size() == kMostImages) images_.pop_front();
    images_.push_back(std::make_unique<ProcessImage>(std::string(maps)));
    return *images_.back();
  }

 private:
  std::deque<std::unique_ptr<ProcessImage>> images_;
};

void AddField(std::string& text, std::string_view field) {
  text += '\t';
  for (const char c : field) text += static_cast<unsigned char>(c) < ' ' ? '?' : c;
}

// A build of the interpreter may have a function for each instruction, which the loop's jumps to.
std::string_view MarkOf(std::string_view function) {
  if (function.starts_with("_PyEval_EvalFrameDefault")) return "e";
  return function.starts_with("_TAIL_CALL_") ? "s" : "";
}

std::string Answer(Images& images, std::string_view request) {
  std::string text;
  agent::StackRequest head;
  const auto take = [&](std::size_t bytes) {
    const std::string_view part = request.substr(0, bytes);
    request.remove_prefix(part.size());
    return part;
  };
  if (request.size() < sizeof head) return text;
  std::memcpy(&head, take(sizeof head).data(), sizeof head);
  ProcessImage& image = images.Of(take(head.maps_bytes));
  for (std::uint32_t i = 0; i < head.threads; ++i) {
    agent::ThreadRequest thread;
    if (request.size() < sizeof thread) break;
    std::memcpy(&thread, take(sizeof thread).data(), sizeof thread);
    const std::string_view stack = take(thread.stack_bytes);
    thread.stack_bytes = stack.size();
    std::string why;
    const auto places = image.Unwind(thread, stack.data(), &why);
    text += "T\t" + std::to_string(thread.thread);
    AddField(text, why);
    text += '\n';
    for (const Frames* frames : places) {
      for (const Frame& frame : *frames) {
        text += 'F';
        AddField(text, frame.module);
        AddField(text, frame.function);
        AddField(text, frame.file);
        AddField(text, std::to_string(frame.line));
        AddField(text, MarkOf(frame.function));
        text += '\n';
      }
    }
  }
  return text;
}

// -1: the agent has ended.
std::int64_t NextSize() {
  std::string line;
  char c = 0;
  ssize_t got;
  while ((got = ::read(STDIN_FILENO, &c, 1)) == 1 && c != '\n') line += c;
  std::int64_t size = -1;
  if (got == 1) std::from_chars(line.data(), line.data() + line.size(), size);
  return size;
}

int Serve() {
  Images images;
  for (std::int64_t size; (size = NextSize()) >= 0;) {
    const std::string request = ReadUpTo(agent::kRequestFile, 0, static_cast<std::size_t>(size));
    const std::string answer = Answer(images, request);
    if (::ftruncate(agent::kRequestFile, 0) != 0 || ::lseek(agent::kRequestFile, 0, SEEK_SET) != 0 ||
        WriteAll(agent::kRequestFile, answer) != 0)
      return 1;
    const std::string line = agent::SizeLine(answer.size());
    if (::send(STDIN_FILENO, line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size())) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::unwind

int main() { return lockstep::unwind::Serve(); }
