#pragma once
// Facts: what hooks inside the application know about the run and no event says.
// One line of text each, "name\tkey=value\tkey=value" (record kFact).
//
//   ddp_bucket          model, bucket, bytes, cap, dtype, rebuilt, parameters   -> a row of gradient_buckets
//   python_isolated                                                             -> loss PythonIsolated
//   torch_unhooked      what                                                    -> loss TorchHook
//   torch_hook_missing  part, why                                               -> loss TorchHook
//   any other           -> row of meta "fact.NAME", the second of a name "fact.NAME.2" and so on; its value is the
//                          rest of the line. Of these analysis reads torch_backend (name, recorded, size),
//                          torch_ranges (backend, whose operations are ranges), torch_unrecorded (backend, what),
//                          torch_group_use (backend; of the steps so far: steps, used: those in which a group of it did
//                          something, operations, covered: those within calls that are ranges; uncounted: groups that
//                          do not number what they do; the last line holds), mpi_unrecorded (library, why: also a loss
//                          BackendNotCaptured), oom_kills (text: of a rank that failed, how often the kernel killed
//                          something in its memory cgroup), ddp_model (model, backend, recorded, hook, size) and
//                          gradients (from, bytes, of PyTorch also model and dtype): "from" is the index of the first
//                          of "bytes" among a model's gradients in the order in which they become ready; a line with
//                          from=0 begins a model. Sizes that differ in type are lines of their own. In runs of
//                          `lockstep tune` (runtime/python/_lockstep/trial.py) there are also trial_torch (threads,
//                          cuda, fully_shard), trial_ddp and trial_loader (what a model or a loader was made with),
//                          trial_set (setting, was, now), trial_not_set (setting, why) and trial_loss (n, value,
//                          dtype): what the first backward passes began with.

#include <string_view>

namespace lockstep {

constexpr std::string_view FactName(std::string_view line) { return line.substr(0, line.find('\t')); }

// The line behind its name.
constexpr std::string_view FactRest(std::string_view line) {
  const std::size_t tab = line.find('\t');
  return tab == std::string_view::npos ? std::string_view() : line.substr(tab + 1);
}

// Value of a key in a line or in its rest; "" if absent.
constexpr std::string_view FactValue(std::string_view line, std::string_view key) {
  while (!line.empty()) {
    const std::string_view field = FactName(line);
    if (field.size() > key.size() && field.starts_with(key) && field[key.size()] == '=')
      return field.substr(key.size() + 1);
    line = FactRest(line);
  }
  return {};
}

}  // namespace lockstep
