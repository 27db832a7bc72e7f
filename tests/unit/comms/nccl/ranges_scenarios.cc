// For calls_test.cc, with the real NVTX headers: NCCL's ranges as a static NCCL emits them.
//   nccl_ranges calls | windows

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>

#include <cstdint>
#include <string>

#include "runtime/lockstep.h"

namespace {

nvtxDomainHandle_t g_nccl, g_other;

template <typename T>
void Push(const char* name, std::uint64_t schema, const T& payload) {
  nvtxPayloadData_t data{NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + schema, sizeof payload, &payload};
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  event.message.registered = nvtxDomainRegisterStringA(g_nccl, name);
  event.payloadType = static_cast<std::int32_t>(NVTX_PAYLOAD_TYPE_EXT);
  event.payload.ullValue = reinterpret_cast<std::uintptr_t>(&data);
  event.reserved0 = 1;
  nvtxDomainRangePushEx(g_nccl, &event);
}
template <typename T>
void PopWith(std::uint64_t schema, const T& payload) {
  nvtxPayloadData_t data{NVTX_PAYLOAD_SCHEMA_ID_STATIC_START + schema, sizeof payload, &payload};
  nvtxRangePopPayload(g_nccl, &data, 1);
}
void Pop() { nvtxDomainRangePop(g_nccl); }

struct WithComm {
  std::uint64_t comm, bytes;
  int last;
};
struct Old {
  std::uint64_t bytes;
  int last;
};
struct Init {
  std::uint64_t comm;
  int ranks, rank, device;
};
struct Split {
  std::uint64_t comm, parent;
  int ranks, rank, device, color, key;
};

void Calls() {
  nvtxDomainRangePushEx(g_nccl, nullptr);
  PopWith(0, Init{0xa1, 8, 5, 2});
  nvtxDomainRangePushEx(g_nccl, nullptr);
  PopWith(13, Split{0xb2, 0xa1, 4, 1, 2, 0, 0});
  for (int i = 0; i < 3; ++i) {
    Push("ncclAllReduce", 5, WithComm{0xa1, 4096, 0});
    Pop();
  }
  Push("ncclAllReduce", 5, WithComm{0xb2, 64, 2});
  // Another domain's range lies across its end, and one of its own within.
  nvtxEventAttributes_t event{};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  nvtxDomainRangePushEx(g_other, &event);
  Push("ncclSend", 9, WithComm{0xb2, 32, 3});
  Pop();
  Pop();
  nvtxDomainRangePop(g_other);
  Push("ncclAllReduce", 5, WithComm{0xc3, 1, 7});  // A communicator that was never told.
  Pop();
  Push("ncclAllReduce", 5, Old{77, 4});  // Before 2.25.
  Pop();
  Push("ncclAllReduce", 5, std::uint64_t{1});  // Of no layout that is known.
  Pop();
  Push("ncclMystery", 40, WithComm{0xa1, 5, 0});
  Pop();
}

// Counted while recording is off.
void Windows() {
  for (int i = 0; i < 3; ++i) {
    Push("ncclAllReduce", 5, WithComm{0xa1, 4096, 0});
    Pop();
  }
  lockstep_start();
  Push("ncclAllReduce", 5, WithComm{0xa1, 4096, 0});
  lockstep_stop();
  Pop();
  lockstep_start();
  Push("ncclAllReduce", 5, WithComm{0xa1, 4096, 0});
  Pop();
}

}  // namespace

int main(int argc, char** argv) {
  g_nccl = nvtxDomainCreateA("NCCL");
  g_other = nvtxDomainCreateA("other");
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "calls")
    Calls();
  else
    Windows();
  return 0;
}
