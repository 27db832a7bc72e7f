#include "trace/nccl/nccl_graphs.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "core/comm_kernels.h"
#include "trace/file/strings.h"

namespace lockstep::trace {
namespace {

constexpr std::size_t kNowhere = SIZE_MAX;

struct Graph {
  std::map<std::uint64_t, CollectiveKind> nodes;  // Of NCCL's kernels, by id.
  std::vector<std::uint32_t> kernels;             // Rows.
  std::size_t first = kNowhere;                   // Its first captured launch.
};

bool Fits(const Graph& graph, std::span<const std::uint32_t> captured) {
  if (captured.size() < graph.nodes.size()) return false;
  std::size_t i = 0;
  for (const auto& [node, kind] : graph.nodes) {
    const std::uint32_t kinds = captured[i++];
    if (kind != CollectiveKind::kNone && (kinds >> static_cast<unsigned>(kind) & 1) == 0) return false;
  }
  return true;
}

// Where each graph fits first if those before it come before it, and where it fits last.
void FindCaptures(std::vector<Graph>& graphs, std::span<const std::uint32_t> captured) {
  std::vector<std::size_t> earliest;
  std::size_t from = 0;
  for (const Graph& graph : graphs) {
    std::size_t at = from;
    while (at < captured.size() && !Fits(graph, captured.subspan(at))) ++at;
    earliest.push_back(at < captured.size() ? at : kNowhere);
    if (at < captured.size()) from = at + graph.nodes.size();
  }
  std::size_t to = captured.size(), i = graphs.size();
  for (auto graph = graphs.rbegin(); graph != graphs.rend(); ++graph) {
    --i;
    const std::size_t count = graph->nodes.size();
    std::size_t at = to >= count ? to - count : kNowhere;
    while (at != kNowhere && !Fits(*graph, captured.subspan(at, count))) at = at == 0 ? kNowhere : at - 1;
    if (at != kNowhere) to = at;
    if (at == earliest[i]) graph->first = at;
  }
}

// NCCL's kernels that calls launched as graphs; what one call launched is one graph.
std::vector<Graph> GraphsOf(const schema::RankTables& tables) {
  const schema::Kernels& kernels = tables.kernels;
  std::vector<Graph> graphs;
  std::unordered_map<std::uint64_t, std::size_t> of_node, of_launch;
  std::vector<std::int8_t> nccl(tables.strings.rows(), -1);
  for (std::uint32_t row = 0; row < kernels.rows(); ++row) {
    if (kernels.graph_node[row] == 0 || kernels.correlation[row] == 0 || kernels.name[row] >= nccl.size()) continue;
    std::int8_t& known = nccl[kernels.name[row]];
    if (known < 0) known = IsNcclKernelName(TextOf(tables, kernels.name[row]));
    if (known == 0) continue;
    const std::uint64_t node = kernels.graph_node[row];
    std::size_t graph = graphs.size();
    if (const auto launch = of_launch.find(kernels.correlation[row]); launch != of_launch.end())
      graph = launch->second;
    else if (const auto other = of_node.find(node); other != of_node.end())
      graph = other->second;
    if (graph == graphs.size()) graphs.emplace_back();
    of_launch.emplace(kernels.correlation[row], graph);
    of_node.emplace(node, graph);
    graphs[graph].kernels.push_back(row);
    graphs[graph].nodes.try_emplace(node, CommKernelKind(TextOf(tables, kernels.name[row])));
  }
  std::sort(graphs.begin(), graphs.end(),
            [](const Graph& a, const Graph& b) { return a.nodes.begin()->first < b.nodes.begin()->first; });
  return graphs;
}

}  // namespace

void NcclCaptured::AddEvent(Key key, std::uint32_t thread, std::uint32_t api, std::uint32_t event) {
  event_of_.try_emplace(api, event);
  const auto launches = launches_.find(key);
  if (launches != launches_.end() && launches->second.back().thread == thread)
    launches->second.back().apis.insert(api);
  else
    ++told_replays_;
}

void NcclCaptured::AddOperation(Key key, const NcclOperation& op, std::uint8_t kind, std::int64_t ns) {
  operations_[key].push_back({op, kind, ns});
  last_ns_ = std::max(last_ns_, ns);
}

std::vector<NcclCaptured::Carried> NcclCaptured::InOrder() {
  std::vector<Carried> all;
  for (auto& [key, operations] : operations_) {
    std::vector<Launch> launches = launches_[key];
    // NCCL announces no kernel that carries broadcasts only.
    if (launches.empty()) launches.push_back({operations.front().ns, 0, {}});
    for (const Launch& launch : launches) {
      Carried carried{launch.ns, {}, 0};
      for (const Operation& one : operations) {
        if (launches.size() > 1 && !launch.apis.contains(one.op.api)) continue;
        carried.operations.push_back(one.op);
        carried.kinds |= 1u << (one.kind % 32);
      }
      if (carried.operations.empty()) carried.kinds = ~0u;  // Nothing says what is in it.
      all.push_back(std::move(carried));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const Carried& a, const Carried& b) { return a.ns < b.ns; });
  return all;
}

std::vector<NcclOperation> NcclCaptured::Runs(const schema::RankTables& tables) {
  // Numbers by communicator and kind, in order of capture.
  std::map<std::pair<std::uint32_t, std::uint8_t>, std::vector<Operation*>> numbered;
  for (auto& [key, operations] : operations_)
    for (Operation& one : operations) {
      if (const auto event = event_of_.find(one.op.api); event != event_of_.end() && one.op.event == schema::kNone)
        one.op.event = event->second;
      numbered[{key.second, one.kind}].push_back(&one);
    }
  for (auto& [what, operations] : numbered) {
    std::stable_sort(operations.begin(), operations.end(),
                     [](const Operation* a, const Operation* b) { return a->ns < b->ns; });
    for (std::size_t i = 0; i < operations.size(); ++i) operations[i]->op.captured = i;
  }
  const std::vector<Carried> all = InOrder();
  std::vector<std::uint32_t> kinds;
  for (const Carried& carried : all) kinds.push_back(carried.kinds);
  std::vector<Graph> graphs = GraphsOf(tables);
  FindCaptures(graphs, kinds);

  const schema::Kernels& kernels = tables.kernels;
  std::unordered_map<std::uint64_t, std::int64_t> launched;
  for (std::size_t i = 0; i < tables.api.rows(); ++i)
    if (tables.api.kind[i] == schema::ApiKind::kGraphLaunch)
      launched.try_emplace(tables.api.correlation[i], tables.api.begin_ns[i]);
  std::vector<NcclOperation> runs;
  for (const Graph& graph : graphs) {
    if (graph.first == kNowhere) continue;
    // Kernels are in order of their begin, so a graph's runs are, too.
    std::unordered_map<std::uint64_t, std::uint32_t> nth;
    for (const std::uint32_t row : graph.kernels) {
      const std::uint64_t correlation = kernels.correlation[row];
      const std::uint32_t run = nth.try_emplace(correlation, static_cast<std::uint32_t>(nth.size() + 1)).first->second;
      const auto node = std::distance(graph.nodes.begin(), graph.nodes.find(kernels.graph_node[row]));
      const auto call = launched.find(correlation);
      for (NcclOperation op : all[graph.first + static_cast<std::size_t>(node)].operations) {
        op.tie.kernel = row;
        op.replay = run;
        op.launched_ns = call != launched.end() ? call->second : kernels.begin_ns[row];
        runs.push_back(op);
      }
    }
  }
  return runs;
}

}  // namespace lockstep::trace
