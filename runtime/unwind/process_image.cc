#include "runtime/unwind/process_image.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <fcntl.h>
#include <gelf.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/own_file.h"
#include "runtime/unwind/function_name.h"

namespace lockstep::unwind {
namespace {

constexpr std::size_t kMostFrames = 256;
constexpr const char* kKernelCode = "[vdso]";

// All processes of a kernel have the same code of its own in them: this one's stands for that of another.
Elf* KernelCode(std::size_t bytes) {
  const unsigned long here = ::getauxval(AT_SYSINFO_EHDR);
  if (here == 0) return nullptr;
  return elf_memory(reinterpret_cast<char*>(here), bytes);
}

int FindElf(Dwfl_Module* module, void**, const char* name, Dwarf_Addr, char** file_name, Elf** elf) {
  if (std::strcmp(name, kKernelCode) == 0) {
    Dwarf_Addr begin = 0, end = 0;
    dwfl_module_info(module, nullptr, &begin, &end, nullptr, nullptr, nullptr, nullptr);
    *elf = KernelCode(end - begin);
    return -1;
  }
  if (name[0] != '/') return -1;
  const int file = ::open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (file >= 0 && (::fstat(file, &status) != 0 || !S_ISREG(status.st_mode))) {
    ::close(file);
    return -1;
  }
  if (file >= 0) *file_name = ::strdup(name);
  return file;
}

// Debug information of the system, and no other: what is looked for by name could come from anywhere.
char* g_debug_path = nullptr;
const Dwfl_Callbacks kCallbacks = {.find_elf = FindElf,
                                   .find_debuginfo = dwfl_standard_find_debuginfo,
                                   .section_address = dwfl_offline_section_address,
                                   .debuginfo_path = &g_debug_path};

std::string TextOf(const char* text) { return text == nullptr ? "" : text; }

// "7f00-7f01 r-xp 00000000 00:00 0    [vdso]".
bool KernelCodeAt(const std::string& maps, Dwarf_Addr* begin, Dwarf_Addr* end) {
  const std::size_t at = maps.find(kKernelCode);
  if (at == std::string::npos) return false;
  const std::size_t line = maps.rfind('\n', at);
  unsigned long from = 0, to = 0;
  if (std::sscanf(maps.c_str() + (line == std::string::npos ? 0 : line + 1), "%lx-%lx", &from, &to) != 2) return false;
  *begin = from;
  *end = to;
  return true;
}

}  // namespace

struct Callbacks {
  static pid_t NextThread(Dwfl*, void* image, void** thread) {
    const Dwarf_Word number = static_cast<ProcessImage*>(image)->stack_.thread->thread;
    return std::exchange(*thread, image) == nullptr ? static_cast<pid_t>(number) : 0;
  }
  static bool GetThread(Dwfl*, pid_t, void* image, void** thread) {
    *thread = image;
    return true;
  }
  static bool ReadMemory(Dwfl*, Dwarf_Addr address, Dwarf_Word* word, void* image) {
    const ProcessImage::Stack& stack = static_cast<ProcessImage*>(image)->stack_;
    const std::uint64_t begin = stack.thread->stack_begin, bytes = stack.thread->stack_bytes;
    if (address < begin || address - begin > bytes || bytes - (address - begin) < sizeof *word) return false;
    std::memcpy(word, stack.bytes + (address - begin), sizeof *word);
    return true;
  }
  static bool SetRegisters(Dwfl_Thread* thread, void* image) {
    const agent::ThreadRequest& request = *static_cast<ProcessImage*>(image)->stack_.thread;
    const std::uint64_t* values = request.registers.value;
    if (request.all_registers != 0) return dwfl_thread_state_registers(thread, 0, agent::kRegisters, values);
    dwfl_thread_state_register_pc(thread, values[agent::kCounterRegister]);
    return dwfl_thread_state_registers(thread, agent::kStackRegister, 1, values + agent::kStackRegister);
  }
  static int TakeFrame(Dwfl_Frame* frame, void* argument) {
    auto& image = *static_cast<ProcessImage*>(argument);
    Dwarf_Addr address = 0;
    bool interrupted = false;  // It stands at this instruction; others stand behind a call.
    if (!dwfl_frame_pc(frame, &address, &interrupted) || address == 0) return DWARF_CB_ABORT;
    if (image.stack_.frames.size() == kMostFrames) {
      image.stack_.cut = true;
      return DWARF_CB_ABORT;
    }
    image.stack_.frames.push_back(&image.NameOf(interrupted ? address : address - 1));
    return DWARF_CB_OK;
  }
};

ProcessImage::ProcessImage(std::string maps) : maps_(std::move(maps)), dwfl_(dwfl_begin(&kCallbacks)) {
  if (dwfl_ == nullptr) return;
  dwfl_report_begin(dwfl_);
  if (FILE* file = ::fmemopen(maps_.data(), maps_.size(), "r"); file != nullptr) {
    dwfl_linux_proc_maps_report(dwfl_, file);
    std::fclose(file);
  }
  if (Dwarf_Addr begin = 0, end = 0; KernelCodeAt(maps_, &begin, &end))
    dwfl_report_module(dwfl_, kKernelCode, begin, end);
  dwfl_report_end(dwfl_, nullptr, nullptr);
}

ProcessImage::~ProcessImage() {
  if (dwfl_ != nullptr) dwfl_end(dwfl_);
}

std::vector<const Frames*> ProcessImage::Unwind(const agent::ThreadRequest& thread, const char* stack,
                                                std::string* why) {
  static const Dwfl_Thread_Callbacks kThreads = {.next_thread = Callbacks::NextThread,
                                                 .get_thread = Callbacks::GetThread,
                                                 .memory_read = Callbacks::ReadMemory,
                                                 .set_initial_registers = Callbacks::SetRegisters,
                                                 .detach = nullptr,
                                                 .thread_detach = nullptr};
  stack_ = {.thread = &thread, .bytes = stack};
  const auto number = static_cast<pid_t>(thread.thread);
  // The program's own file comes first and says which processor it is for.
  if (!attached_) attached_ = dwfl_ != nullptr && dwfl_attach_state(dwfl_, nullptr, number, &kThreads, this);
  if (!attached_) {
    *why = "its files could not be read";
    return {};
  }
  const int result = dwfl_getthread_frames(dwfl_, number, Callbacks::TakeFrame, this);
  if (stack_.cut) *why = "it has more frames";
  if (result < 0 && !stack_.cut)
    *why = thread.all_registers != 0 ? "how it goes on is not known"
                                     : "it was not stopped, so how it goes on is not known";
  return std::move(stack_.frames);
}

const Frames& ProcessImage::NameOf(Dwarf_Addr address) {
  const auto at = names_.find(address);
  if (at != names_.end()) return at->second;
  return names_.emplace(address, Find(address)).first->second;
}

void ProcessImage::AddInlined(Dwfl_Module* module, Dwarf_Addr address, Frame frame, const std::string& function,
                              Frames& frames) {
  Dwarf_Addr bias = 0;
  Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
  // The innermost scope at the address, and then what it is in: dwarf_getscopes goes on with where an inlined function
  // was written, which says nothing about who called it.
  Dwarf_Die *at = nullptr, *scopes = nullptr;
  int count = unit == nullptr ? 0 : dwarf_getscopes(unit, address - bias, &at);
  if (count > 0) count = dwarf_getscopes_die(&at[0], &scopes);
  std::free(at);
  Dwarf_Files* files = nullptr;
  std::size_t file_count = 0;
  if (count > 0) dwarf_getsrcfiles(unit, &files, &file_count);
  for (int i = 0; i < count && dwarf_tag(&scopes[i]) != DW_TAG_subprogram; ++i) {
    if (dwarf_tag(&scopes[i]) != DW_TAG_inlined_subroutine) continue;
    const char* name = dwarf_diename(&scopes[i]);
    frame.function = name == nullptr ? "[inlined]" : FunctionName(name);
    frames.push_back(frame);
    Dwarf_Attribute attribute;
    Dwarf_Word line = 0, file = 0;
    if (dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_line, &attribute), &line) == 0)
      frame.line = static_cast<int>(line);
    if (files != nullptr && dwarf_formudata(dwarf_attr(&scopes[i], DW_AT_call_file, &attribute), &file) == 0)
      frame.file = TextOf(dwarf_filesrc(files, file, nullptr, nullptr));
  }
  std::free(scopes);
  frame.function = function;
  frames.push_back(std::move(frame));
}

Frames ProcessImage::Find(Dwarf_Addr address) {
  Dwfl_Module* module = dwfl_addrmodule(dwfl_, address);
  if (module == nullptr) return {{.function = "[unknown]"}};
  Dwarf_Addr begin = 0;
  const char* path = dwfl_module_info(module, nullptr, &begin, nullptr, nullptr, nullptr, nullptr, nullptr);
  Frame frame{.module = TextOf(path)};
  GElf_Off offset = 0;
  GElf_Sym symbol;
  const char* name = dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  char place[32];
  std::snprintf(place, sizeof place, "+0x%lx]", static_cast<unsigned long>(address - begin));
  const std::string function = name != nullptr ? FunctionName(name) : "[" + std::string(BaseName(frame.module)) + place;
  if (Dwfl_Line* line = dwfl_module_getsrc(module, address); line != nullptr) {
    int number = 0;
    frame.file = TextOf(dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr));
    frame.line = number;
  }
  Frames frames;
  AddInlined(module, address, std::move(frame), function, frames);
  return frames;
}

}  // namespace lockstep::unwind
