#pragma once
// The few functions of libtorch that the observer uses, found by their symbols when PyTorch is there. No header of
// PyTorch is needed, and one build serves all versions.
//
// at::RecordFunction is how PyTorch tells profilers what runs (ATen/record_function.h). Work of ProcessGroupGloo is a
// RecordFunction of scope USER_SCOPE ("gloo:all_reduce"), begun and ended by the backend's thread around what it does
// for it (c10d/ProcessGroupGloo.cpp, recordAsyncWorkProfilingInfo); of messages by the callers. Operators have another
// scope, so an observer of this one costs them nothing. Layouts and symbols are the same in PyTorch 1.13, 2.11
// and 2.15.

#include <cstddef>
#include <cstdint>
#include <memory>

namespace lockstep::c10d {

struct RecordFunction;  // at::RecordFunction

// at::ObserverContext: PyTorch deletes what the start callback returned through its virtual destructor.
class ObserverContext {
 public:
  virtual ~ObserverContext() = default;
  // PyTorch calls the deleting destructor of this class, and so this operator.
  static void* operator new(std::size_t bytes) noexcept;
  static void operator delete(void* memory) noexcept;

  std::uint64_t work = 0;
};

using StartCallback = std::unique_ptr<ObserverContext> (*)(const RecordFunction&);
using EndCallback = void (*)(const RecordFunction&, ObserverContext*);

// Adds both to all threads' callbacks for USER_SCOPE, for good. False: this PyTorch has no such function, or there is
// none in the process. Thread: one at a time.
bool Observe(StartCallback start, EndCallback end);

// Valid while the function's callback runs. Never null.
const char* NameOf(const RecordFunction& function);

// Of all tensors among the inputs. Known only if the whole of them is.
struct Inputs {
  bool known = false;
  std::uint64_t tensors = 0, elements = 0;
  std::uint16_t dtype = 0;  // DataType, if all have one type that is known.
};
Inputs InputsOf(const RecordFunction& function);

}  // namespace lockstep::c10d
