#include "analysis/tune/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "analysis/rules/diff.h"
#include "analysis/rules/run.h"
#include "core/rules/common.h"

namespace lockstep::tune {
namespace {

using Values = std::vector<std::string>;

constexpr double kMebibyte = 1 << 20;

std::string Number(double value) { return fmt::format("{:g}", value); }

bool SetTo(const Facts& facts, const char* name, std::string_view value) {
  const auto it = facts.variables.find(name);
  return it != facts.variables.end() && it->second == value;
}

// --- PyTorch's DDP. ---

Values BucketCaps(const Facts& facts) {
  if (!facts.ddp || facts.ranks < 2) return {};
  const double whole = std::ceil(static_cast<double>(facts.ddp->bytes) / kMebibyte);
  Values values;
  static constexpr double kCaps[] = {50, 10, 100, 5, 2, 200};  // MiB
  for (const double cap : kCaps) {
    // Above all gradients every cap is the same.
    if (cap != facts.ddp->bucket_cap_mb && cap < whole) values.push_back(Number(cap));
  }
  // All in one. Where that is what there is already, nothing.
  if (whole >= 1 && facts.ddp->bucket_cap_mb < whole) values.push_back(Number(whole));
  if (facts.ddp->bucket_cap_mb != rules::kTuneDdpCapMb && rules::kTuneDdpCapMb < whole)
    values.insert(values.begin(), Number(rules::kTuneDdpCapMb));
  return values;
}

Values FirstBuckets(const Facts& facts) {
  // With a cap of the program's own the first bucket is as large as the others.
  if (!facts.ddp || facts.ranks < 2 || !facts.ddp->default_cap ||
      static_cast<double>(facts.ddp->bytes) < rules::kTuneFirstBucketMb * kMebibyte)
    return {};
  return {Number(rules::kTuneFirstBucketMb)};
}

Values Views(const Facts& facts) { return facts.ddp && !facts.ddp->bucket_view ? Values{"True"} : Values{}; }
Values StaticGraph(const Facts& facts) { return facts.ddp && !facts.ddp->static_graph ? Values{"True"} : Values{}; }
Values UnusedOff(const Facts& facts) { return facts.ddp && facts.ddp->find_unused ? Values{"False"} : Values{}; }

// --- FSDP2. ---

Values Prefetch(const Facts& facts) { return facts.fully_shard && facts.ranks > 1 ? Values{"2"} : Values{}; }
Values Reshard(const Facts& facts) { return facts.fully_shard && facts.ranks > 1 ? Values{"False"} : Values{}; }

// --- DataLoader. ---

Values Workers(const Facts& facts) {
  if (!facts.loader || facts.loader->iterable) return {};
  const std::int64_t cores = facts.cores_per_node / std::max<std::int64_t>(facts.ranks_per_node, 1);
  const std::int64_t most = rules::kTuneWorkersPerCore * std::max<std::int64_t>(1, cores);
  Values values;
  for (std::int64_t workers : {1, 2, 4, 8, 16})
    if (workers > facts.loader->workers && workers <= most && values.size() < rules::kTuneWorkerCounts)
      values.push_back(std::to_string(workers));
  return values;
}

Values PinMemory(const Facts& facts) {
  return facts.loader && facts.cuda && !facts.loader->pin_memory ? Values{"True"} : Values{};
}

// --- Threads. ---

Values Threads(const Facts& facts) {
  if (!facts.torch || facts.threads == 0 || facts.cores_per_node == 0) return {};
  const std::int64_t share =
      std::max<std::int64_t>(1, facts.cores_per_node / std::max<std::int64_t>(1, facts.ranks_per_node));
  Values values;
  for (const std::int64_t threads : {share, share / 2, std::int64_t{1}, 2 * share})
    if (threads >= 1 && threads != facts.threads && threads <= facts.cores_per_node &&
        std::find(values.begin(), values.end(), std::to_string(threads)) == values.end())
      values.push_back(std::to_string(threads));
  return values;
}

// --- Open MPI. ---

// Whether a step spends enough time in these collectives.
bool Matters(const Facts& facts, const char* kind) {
  const auto it = facts.blocking_ns.find(kind);
  return it != facts.blocking_ns.end() && it->second >= rules::kWorthShare * facts.step_ns;
}

// `algorithms`: numbers that coll/tuned of Open MPI 4 and 5 knows. 0: its own choice, where another is forced now.
template <std::size_t kCount>
Values Algorithms(const Facts& facts, const char* kind, const char* variable,
                  const std::array<const char*, kCount>& algorithms) {
  if (facts.mpi != "openmpi" || !Matters(facts, kind)) return {};
  Values values;
  const auto it = facts.variables.find(variable);
  if (it != facts.variables.end() && it->second != "0" && it->second != "ignore") values.emplace_back("0");
  for (const char* algorithm : algorithms)
    if (!SetTo(facts, variable, algorithm)) values.emplace_back(algorithm);
  return values;
}

Values OpenAllReduce(const Facts& facts) {
  return Algorithms(facts, "all_reduce", "OMPI_MCA_coll_tuned_allreduce_algorithm", std::array{"4", "6", "3"});
}
Values OpenBroadcast(const Facts& facts) {
  return Algorithms(facts, "broadcast", "OMPI_MCA_coll_tuned_bcast_algorithm", std::array{"6", "3", "8"});
}
Values OpenAllGather(const Facts& facts) {
  return Algorithms(facts, "all_gather", "OMPI_MCA_coll_tuned_allgather_algorithm", std::array{"4", "2", "3"});
}
Values OpenReduceScatter(const Facts& facts) {
  return Algorithms(facts, "reduce_scatter", "OMPI_MCA_coll_tuned_reduce_scatter_algorithm", std::array{"3", "2"});
}
Values OpenAllToAll(const Facts& facts) {
  return Algorithms(facts, "all_to_all", "OMPI_MCA_coll_tuned_alltoall_algorithm", std::array{"2", "1"});
}
Values OpenReduce(const Facts& facts) {
  return Algorithms(facts, "reduce", "OMPI_MCA_coll_tuned_reduce_algorithm", std::array{"7", "5"});
}
Values OpenSegments(const Facts& facts) {
  if (facts.mpi != "openmpi" || facts.ranks < rules::kTuneRingRanks || !Matters(facts, "all_reduce")) return {};
  return {"1048576"};
}
Values OpenYield(const Facts& facts) {
  if (facts.mpi != "openmpi" || SetTo(facts, "OMPI_MCA_mpi_yield_when_idle", "1")) return {};
  const bool enough_cores =
      facts.cores_per_node > 0 && facts.cores_per_node >= rules::kTuneCoresPerRank * facts.ranks_per_node;
  return enough_cores ? Values{} : Values{"1"};
}
Values OpenBinding(const Facts& facts) {
  if (!facts.openmpi_launcher) return {};
  return facts.bindings_differ ? Values{"none", "numa"} : Values{"core", "numa"};
}

// --- MPICH. ---

Values MpichAllReduce(const Facts& facts) {
  if (facts.mpi != "mpich" || !Matters(facts, "all_reduce")) return {};
  Values values;
  for (const char* algorithm : {"recursive_doubling", "reduce_scatter_allgather"})
    if (!SetTo(facts, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", algorithm)) values.emplace_back(algorithm);
  return values;
}

// --- NCCL. ---

Values NcclValues(const Facts& facts, const char* variable, const std::vector<const char*>& known) {
  if (!facts.nccl || facts.ranks < 2) return {};
  Values values;
  for (const char* value : known)
    if (!SetTo(facts, variable, value)) values.emplace_back(value);
  return values;
}
Values NcclAlgorithms(const Facts& facts) { return NcclValues(facts, "NCCL_ALGO", {"Ring", "Tree"}); }
Values NcclProtocols(const Facts& facts) { return NcclValues(facts, "NCCL_PROTO", {"Simple", "LL128"}); }
Values NcclChannels(const Facts& facts) { return NcclValues(facts, "NCCL_MIN_NCHANNELS", {"16", "32"}); }
Values NcclBuffers(const Facts& facts) { return NcclValues(facts, "NCCL_BUFFSIZE", {"8388608"}); }

#define LS_TUNED(op) "OMPI_MCA_coll_tuned_use_dynamic_rules=1,OMPI_MCA_coll_tuned_" op "_algorithm={}"
#define LS_TUNED_FOR_GOOD(op)                                        \
  "mpirun --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_" op \
  "_algorithm {} (in the place of any other value there)"

constexpr Setting kSettings[] = {
    {"ddp.bucket_cap_mb", "DDP bucket_cap_mb", Reach::kTorch, "", "DistributedDataParallel(model, bucket_cap_mb={})",
     Results::kRounding, true, "", Bound::kNone, BucketCaps},
    {"ddp.first_bucket_mb", "DDP first bucket, MiB", Reach::kTorch, "",
     "torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = {} << 20, before the model is made (not a public name)",
     Results::kRounding, false, "", Bound::kNone, FirstBuckets},
    {"ddp.gradient_as_bucket_view", "DDP gradient_as_bucket_view", Reach::kTorch, "",
     "DistributedDataParallel(model, gradient_as_bucket_view={})", Results::kSame, false,
     "gradients are views then: detach_() on them fails", Bound::kNone, Views},
    {"ddp.static_graph", "DDP static_graph", Reach::kTorch, "", "DistributedDataParallel(model, static_graph={})",
     Results::kRounding, false, "the same parameters have to be used in every step of the whole training", Bound::kNone,
     StaticGraph},
    {"ddp.find_unused_parameters", "DDP find_unused_parameters", Reach::kTorch, "",
     "DistributedDataParallel(model, find_unused_parameters={})", Results::kSame, false,
     "a later step in which some parameter is not used would fail", Bound::kNone, UnusedOff},
    {"fsdp.prefetch", "FSDP2 units gathered ahead", Reach::kTorch, "",
     "unit.set_modules_to_forward_prefetch(the next {}) and set_modules_to_backward_prefetch of each unit",
     Results::kSame, true, "", Bound::kCommunication, Prefetch},
    {"fsdp.reshard_after_forward", "FSDP2 reshard_after_forward", Reach::kTorch, "",
     "fully_shard(module, reshard_after_forward={})", Results::kSame, true,
     "parameters stay whole between forward and backward", Bound::kCommunication, Reshard},
    {"loader.num_workers", "DataLoader num_workers", Reach::kTorch, "", "DataLoader(dataset, num_workers={})",
     Results::kSame, true, "random numbers drawn in the dataset are others in workers", Bound::kInput, Workers},
    {"loader.pin_memory", "DataLoader pin_memory", Reach::kTorch, "", "DataLoader(dataset, pin_memory={})",
     Results::kSame, true, "", Bound::kNone, PinMemory},
    {"threads.omp", "OMP_NUM_THREADS", Reach::kApplication, "OMP_NUM_THREADS={}", "export OMP_NUM_THREADS={}",
     Results::kRounding, false, "", Bound::kNone, Threads},
    {"openmpi.binding", "Open MPI binding", Reach::kLauncher,
     "OMPI_MCA_hwloc_base_binding_policy={},PRTE_MCA_hwloc_default_binding_policy={}", "mpirun --bind-to {}",
     Results::kSame, false, "", Bound::kNone, OpenBinding},
    {"openmpi.yield", "Open MPI yield_when_idle", Reach::kApplication, "OMPI_MCA_mpi_yield_when_idle={}",
     "mpirun --mca mpi_yield_when_idle {}", Results::kSame, false,
     "it gains where ranks, or other jobs, share the cores; alone on the cores it costs latency", Bound::kNone,
     OpenYield},
    {"openmpi.all_reduce", "Open MPI allreduce algorithm", Reach::kApplication, LS_TUNED("allreduce"),
     LS_TUNED_FOR_GOOD("allreduce"), Results::kRounding, false, "", Bound::kCommunication, OpenAllReduce},
    {"openmpi.all_reduce_segments", "Open MPI allreduce in segments, bytes", Reach::kApplication,
     "OMPI_MCA_coll_tuned_use_dynamic_rules=1,OMPI_MCA_coll_tuned_allreduce_algorithm=5,"
     "OMPI_MCA_coll_tuned_allreduce_algorithm_segmentsize={}",
     "mpirun --mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 5 "
     "--mca coll_tuned_allreduce_algorithm_segmentsize {}",
     Results::kRounding, false, "", Bound::kCommunication, OpenSegments},
    {"openmpi.broadcast", "Open MPI bcast algorithm", Reach::kApplication, LS_TUNED("bcast"),
     LS_TUNED_FOR_GOOD("bcast"), Results::kSame, false, "", Bound::kCommunication, OpenBroadcast},
    {"openmpi.all_gather", "Open MPI allgather algorithm", Reach::kApplication, LS_TUNED("allgather"),
     LS_TUNED_FOR_GOOD("allgather"), Results::kSame, false, "", Bound::kCommunication, OpenAllGather},
    {"openmpi.reduce_scatter", "Open MPI reduce_scatter algorithm", Reach::kApplication, LS_TUNED("reduce_scatter"),
     LS_TUNED_FOR_GOOD("reduce_scatter"), Results::kRounding, false, "", Bound::kCommunication, OpenReduceScatter},
    {"openmpi.all_to_all", "Open MPI alltoall algorithm", Reach::kApplication, LS_TUNED("alltoall"),
     LS_TUNED_FOR_GOOD("alltoall"), Results::kSame, false, "", Bound::kCommunication, OpenAllToAll},
    {"openmpi.reduce", "Open MPI reduce algorithm", Reach::kApplication, LS_TUNED("reduce"),
     LS_TUNED_FOR_GOOD("reduce"), Results::kRounding, false, "", Bound::kCommunication, OpenReduce},
    {"mpich.all_reduce", "MPICH allreduce algorithm", Reach::kApplication, "MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM={}",
     "export MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM={}", Results::kRounding, false, "", Bound::kCommunication,
     MpichAllReduce},
    {"nccl.algorithm", "NCCL_ALGO", Reach::kApplication, "NCCL_ALGO={}", "export NCCL_ALGO={}", Results::kRounding,
     false, "it holds for all sizes, also those that a longer run has", Bound::kCommunication, NcclAlgorithms},
    {"nccl.protocol", "NCCL_PROTO", Reach::kApplication, "NCCL_PROTO={}", "export NCCL_PROTO={}", Results::kRounding,
     false, "LL128 damages data on GPUs and links that NCCL does not choose it for", Bound::kCommunication,
     NcclProtocols},
    {"nccl.channels", "NCCL_MIN_NCHANNELS", Reach::kApplication, "NCCL_MIN_NCHANNELS={}",
     "export NCCL_MIN_NCHANNELS={}", Results::kRounding, true, "", Bound::kCommunication, NcclChannels},
    {"nccl.buffers", "NCCL_BUFFSIZE", Reach::kApplication, "NCCL_BUFFSIZE={}", "export NCCL_BUFFSIZE={}",
     Results::kRounding, true, "", Bound::kCommunication, NcclBuffers},
};

#undef LS_TUNED
#undef LS_TUNED_FOR_GOOD

std::optional<double> BoundOf(Bound bound, const Facts& facts) {
  if (facts.step_ns <= 0) return std::nullopt;
  switch (bound) {
    case Bound::kCommunication:
      if (facts.communication_ns) return *facts.communication_ns / facts.step_ns;
      return std::nullopt;
    case Bound::kInput:
      return facts.input_ns / facts.step_ns;
    case Bound::kNone:
      break;
  }
  return std::nullopt;
}

}  // namespace

std::span<const Setting> Settings() { return kSettings; }

const Setting* FindSetting(std::string_view name) {
  for (const Setting& setting : kSettings)
    if (setting.name == name) return &setting;
  return nullptr;
}

std::string WithValue(std::string_view text, std::string_view value) {
  std::string with;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) == "{}") {
      with += value;
      ++at;
    } else {
      with += text[at];
    }
  }
  return with;
}

std::string Candidate::label() const { return fmt::format("{} {}", setting->title, value); }

std::vector<Candidate> CandidatesOf(const Facts& facts, double worth) {
  std::vector<Candidate> candidates;
  for (const Setting& setting : kSettings) {
    const std::optional<double> bound = BoundOf(setting.bound, facts);
    for (std::string& value : setting.values(facts)) {
      Candidate& candidate = candidates.emplace_back();
      candidate.setting = &setting;
      candidate.value = std::move(value);
      if (!bound) continue;
      candidate.promise = Promise{.high = std::max(*bound, 0.0), .bound = true};
      if (*bound < worth)
        candidate.dropped = setting.bound == Bound::kInput
                                ? fmt::format("loading takes {:.1f} % of a step", 100 * *bound)
                                : fmt::format("without any transfer a step would be {:.1f} % shorter", 100 * *bound);
    }
  }
  return candidates;
}

void OrderByPromise(std::vector<Candidate>& candidates, double worth) {
  for (Candidate& candidate : candidates)
    if (candidate.promise && !candidate.promise->bound && candidate.promise->high < -worth)
      candidate.dropped = fmt::format("the replay says a loss of at least {:.1f} %", -100 * candidate.promise->high);
  const auto hope = [](const Candidate& candidate) {
    if (!candidate.promise) return rules::kTuneHopeUnknown;
    const double possible = rules::kUpperBoundWeight * candidate.promise->high;
    return candidate.promise->bound ? possible : std::max(candidate.promise->gain, possible);
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) { return hope(a) > hope(b); });
  std::map<const Setting*, std::size_t> values;
  for (Candidate& candidate : candidates)
    if (candidate.dropped.empty() && ++values[candidate.setting] > rules::kTuneValues)
      candidate.dropped = "other values of the same setting promise more";
}

}  // namespace lockstep::tune
