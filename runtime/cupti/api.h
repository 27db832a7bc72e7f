#pragma once
// Finds the libcupti of the process and its functions.

#include <cstddef>
#include <cstdint>

#include "runtime/cupti/abi.h"

namespace lockstep::cupti {

// A function is null where the library does not have it. Results as enum Result.
struct Api {
  int (*get_version)(std::uint32_t* version);
  int (*register_callbacks)(BufferRequested, BufferCompleted);
  int (*register_timestamp)(TimestampCallback);
  int (*enable)(std::uint32_t kind);
  int (*disable)(std::uint32_t kind);
  int (*flush_all)(std::uint32_t flags);
  int (*get_next_record)(std::uint8_t* buffer, std::size_t valid_bytes, AnyRecord** record);
  int (*get_dropped)(void* context, std::uint32_t stream, std::size_t* dropped);
  int (*set_attribute)(int attribute, std::size_t* value_bytes, void* value);
  int (*get_attribute)(int attribute, std::size_t* value_bytes, void* value);
  int (*set_thread_id_type)(int type);
  int (*get_callback_name)(int domain, std::uint32_t callback, const char** name);
  int (*get_result_string)(int result, const char** text);
  int (*enable_runtime_api)(std::uint32_t callback, std::uint8_t enable);
  int (*enable_driver_api)(std::uint32_t callback, std::uint8_t enable);
  int (*enable_event_timestamps)(std::uint8_t enable);
  int (*enable_all_sync_records)(std::uint8_t enable);
  int (*enable_device_graph)(std::uint8_t enable);
  int (*finalize)();
  std::uint32_t version;  // As cuptiGetVersion numbers them: 13 = CUDA 11.0 ... 28 = 12.9.1, 130000 = 13.0.
  char path[512];         // Where the library is.
};

// How long the records of each kind are in the loaded library; 0 for a kind that it does not know.
struct RecordSizes {
  std::uint32_t bytes[kKindLimit];
};

// Finds libcupti and fills in `api`. A library that the process has loaded already is preferred, because two copies
// would compete for the driver. Returns null, or why there is none; `why` may be used for the text. Thread: not on a
// hot path; may load a library.
const char* FindCupti(Api& api, char* why, std::size_t why_bytes);

// The libcupti that the process has loaded already, and its path; null if it has none.
void* LoadedCupti(char* path, std::size_t path_bytes);

// Whether PyTorch is in the process, whose profiler uses CUPTI.
bool TorchIsLoaded();

// Asks get_next_record, which returns a record only if the whole of it lies within the valid bytes.
void MeasureRecords(const Api& api, RecordSizes& sizes);

}  // namespace lockstep::cupti
