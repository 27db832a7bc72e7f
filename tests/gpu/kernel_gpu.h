#pragma once
// A GPU that runs kernels of known length on one stream: NVIDIA's through libcuda alone, so that this is built and run
// without CUDA, or that of the tests. What the GPU refuses ends the process with one line, 77 where there is no GPU.

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "tests/fakes/cupti/fake_gpu.h"

namespace gpu_kernels {

enum Kernel : std::uint8_t { kWarm, kPlug, kTwoMs, kTenMs, kShort, kNode };
inline constexpr std::array<const char*, 6> kNames{"warm", "plug", "two_ms", "ten_ms", "short_kernel", "node"};

[[noreturn]] inline void Leave(int code, const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(code);
}

class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) Leave(77, dlerror());
  }
  template <typename Function>
  Function Find(const char* name) const {
    void* const found = dlsym(handle_, name);
    if (found == nullptr) Leave(77, std::string("no ") + name + " here");
    return reinterpret_cast<Function>(found);
  }
  template <typename... Arguments>
  void Call(const char* name, Arguments... arguments) const {
    Check(Find<int (*)(Arguments...)>(name)(arguments...), name);
  }
  static void Check(int result, const char* name) {
    if (result != 0) Leave(1, std::string(name) + " says " + std::to_string(result));
  }

 private:
  void* handle_;
};

class Gpu {
 public:
  virtual ~Gpu() = default;
  int warm_ups = 0;  // Kernels launched at the start.
  virtual void Launch(Kernel kernel, double us) = 0;
  // Records an event behind what was launched: its number.
  virtual int Mark() = 0;
  // Both are reached.
  virtual double MsBetween(int first, int second) = 0;
  // Makes the graph that Replay launches: so many kernels, one after the other.
  virtual void MakeGraph(Kernel kernel, int nodes, double us) = 0;
  virtual void Replay() = 0;
  virtual void Wait() = 0;
  // Memory of the GPU that is not free, whoever has it.
  virtual std::uint64_t UsedBytes() = 0;
};

class NvidiaGpu final : public Gpu {
 public:
  explicit NvidiaGpu(const std::function<void()>& before_context) : cuda_("libcuda.so.1") {
    // No context yet: CUPTI's settings for a context are those at its making.
    if (const int code = cuda_.Find<int (*)(unsigned)>("cuInit")(0); code != 0)
      Leave(77, "no GPU: cuInit says " + std::to_string(code));
    before_context();
    void* context = nullptr;
    cuda_.Call("cuDevicePrimaryCtxRetain", &context, 0);
    cuda_.Call("cuCtxSetCurrent", context);
    void* module = nullptr;
    const auto load = cuda_.Find<int (*)(void**, const void*)>("cuModuleLoadData");
    // The oldest targets that the compilers of CUDA 11 and 13 take: drivers compile them for any later GPU.
    if (load(&module, Ptx("sm_52").c_str()) != 0)
      Library::Check(load(&module, Ptx("sm_75").c_str()), "cuModuleLoadData");
    for (std::size_t i = 0; i < kNames.size(); ++i)
      cuda_.Call("cuModuleGetFunction", &functions_[i], module, kNames[i]);
    launch_ = cuda_.Find<decltype(launch_)>("cuLaunchKernel");
    replay_ = cuda_.Find<decltype(replay_)>("cuGraphLaunch");
    cuda_.Call("cuStreamCreate", &stream_, 1u);  // Not one that waits for the default stream.
    constexpr double kCycles = 50e6;
    cycles_per_us_ = 1;
    for (int turn = 0; turn < 3; ++turn, ++warm_ups) {  // The GPU's clock rises in the first ones.
      const int begin = Mark();
      Launch(kWarm, kCycles / (turn == 0 ? 1 : cycles_per_us_));
      const int end = Mark();
      Wait();
      cycles_per_us_ = kCycles / (MsBetween(begin, end) * 1000);
    }
  }
  void Launch(Kernel kernel, double us) override {
    auto cycles = static_cast<std::uint64_t>(us * cycles_per_us_);
    void* parameters[] = {&cycles};
    Library::Check(launch_(functions_[kernel], 1, 1, 1, 1, 1, 1, 0, stream_, parameters, nullptr), "cuLaunchKernel");
  }
  int Mark() override {
    void*& event = events_.emplace_back();
    cuda_.Call("cuEventCreate", &event, 0u);
    cuda_.Call("cuEventRecord", event, stream_);
    return static_cast<int>(events_.size()) - 1;
  }
  double MsBetween(int first, int second) override {
    float ms = 0;
    cuda_.Call("cuEventElapsedTime", &ms, events_.at(static_cast<std::size_t>(first)),
               events_.at(static_cast<std::size_t>(second)));
    return ms;
  }
  void MakeGraph(Kernel kernel, int nodes, double us) override {
    void* graph = nullptr;
    cuda_.Call("cuStreamBeginCapture_v2", stream_, 0u);
    for (int i = 0; i < nodes; ++i) Launch(kernel, us);
    cuda_.Call("cuStreamEndCapture", stream_, &graph);
    cuda_.Call("cuGraphInstantiateWithFlags", &graph_, graph, 0ull);
  }
  void Replay() override { Library::Check(replay_(graph_, stream_), "cuGraphLaunch"); }
  void Wait() override { cuda_.Call("cuStreamSynchronize", stream_); }
  std::uint64_t UsedBytes() override {
    std::size_t free = 0, total = 0;
    cuda_.Call("cuMemGetInfo_v2", &free, &total);
    return total - free;
  }

 private:
  static std::string Ptx(const std::string& target) {
    std::string text = ".version 7.0\n.target " + target + "\n.address_size 64\n";
    for (const std::string name : kNames)
      text += ".visible .entry " + name + "(.param .u64 " + name + "_cycles)\n{\n.reg .u64 begin, now, cycles;\n" +
              ".reg .pred more;\nld.param.u64 cycles, [" + name + "_cycles];\nmov.u64 begin, %clock64;\n" +
              "again:\nmov.u64 now, %clock64;\nsub.u64 now, now, begin;\nsetp.lt.u64 more, now, cycles;\n" +
              "@more bra again;\nret;\n}\n";
    return text;
  }

  Library cuda_;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*replay_)(void*, void*);
  std::array<void*, kNames.size()> functions_{};
  void *stream_ = nullptr, *graph_ = nullptr;
  std::vector<void*> events_;
  double cycles_per_us_ = 0;
};

// tests/fakes/cupti/fake_gpu.h, which is one library with the libcupti that records it.
class TestGpu final : public Gpu {
 public:
  TestGpu(const std::string& path, const std::function<void()>& before_context) : fake_(path) {
    before_context();
    fake_.Call("fake_gpu_init");
    launch_ = fake_.Find<decltype(launch_)>("fake_gpu_launch");
    graph_launch_ = fake_.Find<decltype(graph_launch_)>("fake_gpu_graph_launch");
    end_ns_ = fake_.Find<decltype(end_ns_)>("fake_gpu_stream_end_ns");
    stream_ = fake_.Find<std::uint32_t (*)()>("fake_gpu_stream_create")();
  }
  void Launch(Kernel kernel, double us) override { launch_(stream_, kNames[kernel], Ns(us)); }
  int Mark() override {
    marks_.push_back(end_ns_(stream_));
    return static_cast<int>(marks_.size()) - 1;
  }
  double MsBetween(int first, int second) override {
    return static_cast<double>(marks_.at(static_cast<std::size_t>(second)) -
                               marks_.at(static_cast<std::size_t>(first))) /
           1e6;
  }
  void MakeGraph(Kernel kernel, int nodes, double us) override {
    nodes_.assign(static_cast<std::size_t>(nodes), {});
    for (fake_gpu_kernel& node : nodes_) {
      node.name = kNames[kernel];
      node.duration_ns = Ns(us);
    }
  }
  void Replay() override { graph_launch_(stream_, 5, nodes_.data(), static_cast<int>(nodes_.size())); }
  void Wait() override { fake_.Find<std::uint32_t (*)(std::uint32_t)>("fake_gpu_stream_synchronize")(stream_); }
  std::uint64_t UsedBytes() override { return 0; }

 private:
  static std::int64_t Ns(double us) { return us > 0 ? static_cast<std::int64_t>(us * 1000) : 1000; }

  Library fake_;
  std::uint32_t (*launch_)(std::uint32_t, const char*, std::int64_t);
  std::uint32_t (*graph_launch_)(std::uint32_t, std::uint32_t, const fake_gpu_kernel*, int);
  std::int64_t (*end_ns_)(std::uint32_t);
  std::uint32_t stream_ = 0;
  std::vector<std::int64_t> marks_;
  std::vector<fake_gpu_kernel> nodes_;
};

}  // namespace gpu_kernels
