// Where CUDA enters: cuInit calls InitializeInjection of the library that CUDA_INJECTION64_PATH names.

#include "core/ring_writer.h"

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) { return 1; }
