#include "comms/pmpi/fortran.h"

#include <link.h>
#include <string.h>

#include "comms/pmpi/loaded.h"
#include "comms/pmpi/traced.h"

namespace lockstep::pmpi {
namespace {

struct Text {
  std::atomic<std::uintptr_t> begin, end;
};
Text g_text[64];  // Filled from the front; empty entries match no address. There are two such libraries of Fortran.
std::atomic<bool> g_other_tools{false};
std::atomic<std::uint32_t> g_strangers{0};

// Open MPI's; MPICH's, as its build, Debian, Intel and Cray name it.
bool IsBinding(const char* name) {
  for (const char* known : {"libmpi_mpifh", "libmpi_usempi", "libmpifort", "libmpichfort", "libmpichf90"})
    if (strncmp(name, known, strlen(known)) == 0) return true;
  return false;
}

// Of Open MPI: ROMIO calls MPI for itself.
bool IsModule(const char* name) { return strncmp(name, "mca_", 4) == 0 || strncmp(name, "libmca_", 7) == 0; }

int Look(dl_phdr_info* info, std::size_t, void*) {
  const char* name = info->dlpi_name != nullptr ? strrchr(info->dlpi_name, '/') : nullptr;
  name = name != nullptr ? name + 1 : info->dlpi_name;
  if (name == nullptr) return 0;
  const bool tools = g_other_tools.load(std::memory_order_relaxed);
  if (!IsBinding(name) && (!tools || IsModule(name) || !RefersToMpi(*info))) return 0;
  std::uintptr_t begin = 0, end = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    begin = info->dlpi_addr + part.p_vaddr;
    end = begin + part.p_memsz;
  }
  for (Text& text : g_text) {
    const std::uintptr_t there = text.begin.load(std::memory_order_relaxed);
    if (there != 0 && there != begin) continue;
    text.end.store(end, std::memory_order_relaxed);
    text.begin.store(begin, std::memory_order_relaxed);
    return 0;
  }
  return 0;
}

bool Inside(std::uintptr_t address) {
  for (const Text& text : g_text) {
    const std::uintptr_t begin = text.begin.load(std::memory_order_relaxed);
    if (begin == 0) return false;
    if (address - begin < text.end.load(std::memory_order_relaxed) - begin) return true;
  }
  return false;
}

}  // namespace

void HearOtherTools() {
  g_other_tools.store(true, std::memory_order_relaxed);
  FindFortranBindings();
}

bool PassesOn(const void* caller) {
  const auto address = reinterpret_cast<std::uintptr_t>(caller);
  if (Inside(address)) [[likely]]
    return true;
  // A binding may be loaded after MPI has started (f2py modules), so the search is repeated, less often over time.
  const std::uint32_t strangers = g_strangers.fetch_add(1, std::memory_order_relaxed);
  if ((strangers & (strangers + 1)) != 0 && strangers % 64 != 0) return false;
  FindFortranBindings();
  return Inside(address);
}

void FindFortranBindings() { dl_iterate_phdr(Look, nullptr); }

}  // namespace lockstep::pmpi
