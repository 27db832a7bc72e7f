#pragma once
// What is mapped in a process, for libdwfl: it unwinds copies of stacks and finds names in the mapped files.

#include <elfutils/libdwfl.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/agent/stacks/stack_request.h"

namespace lockstep::unwind {

struct Frame {
  std::string module, function, file;  // Path; name; path of the source, "" unknown.
  int line = 0;
};

// One place may stand for several functions, of which the compiler has put one into the other. Innermost first.
using Frames = std::vector<Frame>;

class ProcessImage {
 public:
  // `maps`: lines of /proc/PID/maps.
  explicit ProcessImage(std::string maps);
  ProcessImage(const ProcessImage&) = delete;
  ProcessImage& operator=(const ProcessImage&) = delete;
  ~ProcessImage();

  const std::string& maps() const { return maps_; }
  // Innermost first. *why: what is missing; "" nothing.
  std::vector<const Frames*> Unwind(const agent::ThreadRequest& thread, const char* stack, std::string* why);

 private:
  friend struct Callbacks;
  struct Stack {
    const agent::ThreadRequest* thread = nullptr;
    const char* bytes = nullptr;
    std::vector<const Frames*> frames;
    bool cut = false;
  };
  const Frames& NameOf(Dwarf_Addr address);
  Frames Find(Dwarf_Addr address);
  void AddInlined(Dwfl_Module* module, Dwarf_Addr address, Frame frame, const std::string& function, Frames& frames);

  std::string maps_;
  Dwfl* dwfl_ = nullptr;
  bool attached_ = false;
  Stack stack_;  // The one that is being unwound.
  std::map<Dwarf_Addr, Frames> names_;
};

}  // namespace lockstep::unwind
