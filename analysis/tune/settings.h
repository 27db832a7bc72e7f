#pragma once
// Everything that `lockstep tune` can change about a job: the one registry. A setting says where it means something,
// which values are worth a try there, how it is set from outside, and how the user sets it for good.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/rules/diff.h"

namespace lockstep::tune {

// What is known of a job from its recording, as far as settings depend on it.
struct Facts {
  std::int64_t ranks = 0, nodes = 0;
  std::int64_t ranks_per_node = 0;  // On the fullest node.
  std::int64_t cores_per_node = 0;  // That its ranks may use together; 0: not known.
  std::string mpi;                  // "openmpi", "mpich": the library that the ranks use; "": none, or another.
  bool openmpi_launcher = false;    // mpirun of Open MPI starts them.
  bool bindings_differ = false;     // Ranks of a node may use different cores.
  bool torch = false, cuda = false, fully_shard = false, nccl = false;
  std::int64_t threads = 0;  // That PyTorch computes with in a rank; 0: not known.
  struct Ddp {
    double bucket_cap_mb = rules::kTuneDdpCapMb;
    bool default_cap = true;
    std::uint64_t bytes = 0;  // Of all gradients.
    bool bucket_view = false, static_graph = false, find_unused = false;
  };
  std::optional<Ddp> ddp;  // Of the first model.
  struct Loader {
    std::int64_t workers = 0;
    bool pin_memory = false, iterable = false;
  };
  std::optional<Loader> loader;  // Of the first one.
  // MPI's collectives, by the name of their kind ("all_reduce"), blocking ones only, that move data: transfer per step.
  std::map<std::string, double> blocking_ns;
  double step_ns = 0;
  double input_ns = 0;  // Per step in the category input, mean over ranks.
  // What no transfer at all would gain, by the replay: its upper end, per step. Nothing: not known.
  std::optional<double> communication_ns;
  std::map<std::string, std::string> variables;  // As the job is started with them, of those that settings set.
};

enum class Reach : std::uint8_t {
  kTorch,        // PyTorch's hooks, at construction.
  kApplication,  // A variable of the application, set by the agents of all hosts.
  kLauncher,     // A variable of the launcher too.
};

enum class Results : std::uint8_t {
  kSame,      // Every number stays as it is.
  kRounding,  // Sums are made in another order.
};

// What limits a gain, by the recording: no candidate is tried where that is less than what counts.
enum class Bound : std::uint8_t { kNone, kCommunication, kInput };

struct Setting {
  std::string_view name;   // "ddp.bucket_cap_mb"; what is before the dot is its group's owner.
  std::string_view title;  // "DDP bucket_cap_mb"
  Reach reach;
  std::string_view variables;  // "NAME={},OTHER=1"; of kTorch "".
  std::string_view permanent;  // How the user sets it, {} the value.
  Results results;
  bool memory;               // It may take more of it.
  std::string_view caution;  // What could go wrong after the runs that were made; "" nothing known.
  Bound bound;
  // The values worth a try, the most promising first; none: it means nothing in this job, or is best as it is.
  std::vector<std::string> (*values)(const Facts& facts);
};

std::span<const Setting> Settings();
const Setting* FindSetting(std::string_view name);

// With the value in the place of each {}.
std::string WithValue(std::string_view text, std::string_view value);

struct Promise {
  double gain = 0, low = 0, high = 0;  // Parts of the step, by the replay.
  bool bound = false;                  // Only `high` is known.
};

struct Candidate {
  const Setting* setting = nullptr;
  std::string value;
  std::optional<Promise> promise;
  std::string dropped;        // Why it is not tried; "" if it is.
  std::string label() const;  // "DDP bucket_cap_mb 50"
};

// All that apply, in the order of the registry, with what bounds them; those whose bound is below `worth` dropped.
std::vector<Candidate> CandidatesOf(const Facts& facts, double worth);
// Puts those with the largest promise first, those without any behind those of one that is a gain, and drops those that
// the replay is sure to be losses of more than `worth`. Of one setting at most rules::kTuneValues stay.
void OrderByPromise(std::vector<Candidate>& candidates, double worth);

}  // namespace lockstep::tune
