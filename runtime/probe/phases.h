#pragma once
// Labels of a program (torch.profiler.record_function), for the functions that Python calls (python_calls.cc).

namespace lockstep::probe {

enum class LabelBegun {
  kNot,        // It is not recorded.
  kKept,       // `name` and `text` are used until EndLabel gives the name back.
  kTellFirst,  // Nothing was done: what is known of the process has to be written before.
};

// The label that `owner` is begins on this thread; labels need not nest. `name`: the object that `text` belongs to.
// `*dropped`: the name of a label that was given up for it, if that is so. Thread: any.
LabelBegun BeginLabel(const void* owner, const void* name, const char* text, const void** dropped);

// The owner's label that began last on this thread ends. -> its name, null if none is open.
const void* EndLabel(const void* owner);

}  // namespace lockstep::probe
