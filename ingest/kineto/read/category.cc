#include "ingest/kineto/read/category.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::kineto {
namespace {

struct Name {
  std::string_view text;
  Category category;
};

// libkineto/src/ActivityType.cpp (2021 to 2026): "Kernel", "Memcpy", "Operator" and the
// like until the spring of 2022, then kernel, gpu_memcpy, cpu_op.
constexpr Name kNames[] = {
    {"cpu_op", Category::kCpuOp},
    {"kernel", Category::kKernel},
    {"ac2g", Category::kFlow},
    {"fwdbwd", Category::kFlow},
    {"cuda_runtime", Category::kRuntime},
    {"cuda_driver", Category::kDriver},
    {"python_function", Category::kPythonFunction},
    {"gpu_memcpy", Category::kMemcpy},
    {"gpu_memset", Category::kMemset},
    {"cuda_sync", Category::kSync},
    {"user_annotation", Category::kUserAnnotation},
    {"gpu_user_annotation", Category::kGpuUserAnnotation},
    {"cpu_instant_event", Category::kInstant},
    {"overhead", Category::kOverhead},
    {"operator", Category::kCpuOp},
    {"runtime", Category::kRuntime},
    {"hip_runtime", Category::kRuntime},
    {"xpu_runtime", Category::kRuntime},
    {"mtia_runtime", Category::kRuntime},
    {"glow_runtime", Category::kRuntime},
    {"privateuse1_runtime", Category::kRuntime},
    {"driver", Category::kDriver},
    {"hip_driver", Category::kDriver},
    {"xpu_driver", Category::kDriver},
    {"privateuse1_driver", Category::kDriver},
    {"concurrent_kernel", Category::kKernel},
    {"memcpy", Category::kMemcpy},
    {"memset", Category::kMemset},
    {"cuda_synchronization", Category::kSync},
    {"synchronization", Category::kSync},
    {"hip_sync", Category::kSync},
    {"xpu_sync", Category::kSync},
    {"user_scope", Category::kUserAnnotation},
};
constexpr std::size_t kLongest = 32, kCommon = 14;

}  // namespace

Category CategoryOf(std::string_view text) {
  // As today's Kineto writes them; the rest is rare.
  for (std::size_t i = 0; i < kCommon; ++i)
    if (kNames[i].text == text) return kNames[i].category;
  char lower[kLongest];
  if (text.size() > kLongest) return Category::kOther;
  for (std::size_t i = 0; i < text.size(); ++i)
    lower[i] = static_cast<char>(text[i] >= 'A' && text[i] <= 'Z' ? text[i] + ('a' - 'A') : text[i]);
  const std::string_view wanted(lower, text.size());
  for (const Name& name : kNames)
    if (name.text == wanted) return name.category;
  return Category::kOther;
}

}  // namespace lockstep::kineto
