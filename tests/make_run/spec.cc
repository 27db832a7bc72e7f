#include "make_run/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "make_run/parser.h"

namespace lockstep::make_run {

std::vector<std::string> Words(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string> words;
  for (std::size_t at = 0; (at = line.find_first_not_of(" \t\r", at)) != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
    words.emplace_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(separator, begin)) != std::string::npos; begin = at + 1)
    parts.push_back(text.substr(begin, at - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

namespace {

std::string CheckSpec(const Spec& spec) {
  if (spec.ranks < 1 || spec.ranks > 1'000'000) return "ranks out of range";
  if (spec.steps < 0 || spec.nodes < 1 || spec.poll_ns < 1 || spec.call_ns < 0) return "a count is out of range";
  for (const EndSpec& end : spec.ends)
    if (end.rank < 0 || end.rank >= spec.ranks) return "died/cut: no such rank";
  for (const CommSpec& comm : spec.comms)
    for (const std::int32_t rank : comm.ranks)
      if (rank < 0 || rank >= spec.ranks) return "comm: no such rank";
  const KinetoSpec& k = spec.kineto;
  if (k.on && !spec.gpu) return "kineto needs `gpu`: torch.profiler sees no MPI";
  if (std::min({k.operators, k.python, k.runtime, k.memory}) < 0 || std::max({k.operators, k.python, k.runtime}) > 1000)
    return "kineto: a count is out of range";
  for (const std::vector<Op>* body : {&spec.setup, &spec.step, &spec.teardown})
    for (std::size_t i = 0; i < body->size(); ++i) {
      const Op& op = (*body)[i];
      if (op.on_block > 0 && (spec.ranks % op.on_block != 0 || op.on_index >= spec.ranks / op.on_block))
        return "on= needs a block that divides the ranks";
      if (op.on_block > 0 && op.collective != CollectiveKind::kNone) {
        const CommSpec& comm = spec.comms[op.comm];
        if (comm.block == 0 || op.on_block % comm.block != 0)
          return "on= needs whole groups: comm block=K with K in it";
      }
      if (op.on_block > 0 && op.kind == OpKind::kRing) return "a ring is everyone's";
      if (op.kind != OpKind::kRecv && op.kind != OpKind::kNcclRecv) continue;
      const Op& send = (*body)[i - op.send_back];
      for (std::int32_t rank = 0; rank < spec.ranks; ++rank)
        if (op.Concerns(rank) && (rank - op.peer < 0 || rank - op.peer >= spec.ranks || !send.Concerns(rank - op.peer)))
          return "recv " + op.name + ": nobody sends to rank " + std::to_string(rank);
    }
  for (const Op& op : spec.step)
    if (op.kind == OpKind::kInit) return "persistent operations are initialised in setup";
  return "";
}

}  // namespace

std::int32_t Spec::DomainOf(std::int32_t rank) const {
  const auto at = clocks.find(rank);
  if (clocks_separate || (at != clocks.end() && at->second.own_domain)) return nodes + rank;
  return NodeOf(rank);
}

Result<Spec> ParseSpec(std::string_view text, std::string_view file_name, const std::vector<std::string>& sets) {
  Spec spec;
  Parser parser(&spec, file_name);
  std::map<std::string, std::string> variables;
  std::map<std::string, std::string> overrides;
  for (const std::string& set : sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos) return Error{ErrorCode::kUsage, "--set needs KEY=VALUE", set, ""};
    overrides[set.substr(0, equals)] = set.substr(equals + 1);
  }
  std::vector<Op>* body = nullptr;
  struct Repeat {
    std::size_t begin;
    std::int64_t times;
  };
  std::vector<Repeat> repeats;
  const auto fail = [&](std::size_t number, const std::string& what) {
    return Error{ErrorCode::kMalformed, what, fmt::format("{}:{}", file_name, number), "see tests/make_run/README.md"};
  };
  std::size_t number = 0;
  const auto handle = [&](std::vector<std::string> words) -> std::string {
    for (std::string& word : words)
      for (std::size_t dollar; (dollar = word.find('$')) != std::string::npos;) {
        std::size_t end = dollar + 1;
        while (end < word.size() && (std::isalnum(static_cast<unsigned char>(word[end])) || word[end] == '_')) ++end;
        const auto at = variables.find(word.substr(dollar + 1, end - dollar - 1));
        if (at == variables.end()) return "unknown variable in '" + word + "'";
        word = word.substr(0, dollar) + at->second + word.substr(end);
      }
    Line line(std::move(words));
    const std::string& verb = line.verb();
    if (verb == "let") {
      const std::string name = line.Need(line.Plain(), "a name");
      const std::string value = line.Need(line.Plain(), "a value");
      const auto override_at = overrides.find(name);
      variables[name] = override_at == overrides.end() ? value : override_at->second;
      overrides.erase(name);
      return line.Finish();
    }
    if (body == nullptr) {
      if (verb == "setup")
        body = &spec.setup;
      else if (verb == "step")
        body = &spec.step;
      else if (verb == "teardown")
        body = &spec.teardown;
      else {
        const auto override_at = overrides.find(verb);
        if (override_at == overrides.end()) return parser.Directive(line);
        Line replaced({verb, override_at->second});
        overrides.erase(override_at);
        return parser.Directive(replaced);
      }
      return line.Finish();
    }
    if (verb == "repeat") {
      std::int64_t times = 0;
      line.Int(line.Plain(), &times);
      repeats.push_back({body->size(), times});
      return line.Finish();
    }
    if (verb == "end") {
      if (repeats.empty()) {
        body = nullptr;
        return line.Finish();
      }
      const std::vector<Op> once(body->begin() + static_cast<std::ptrdiff_t>(repeats.back().begin), body->end());
      body->resize(repeats.back().begin);
      for (std::int64_t i = 0; i < repeats.back().times; ++i) body->insert(body->end(), once.begin(), once.end());
      repeats.pop_back();
      return line.Finish();
    }
    return parser.Operation(line, body);
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::vector<std::string> words = Words(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (words.empty()) continue;
    if (const std::string error = handle(std::move(words)); !error.empty()) return fail(number, error);
  }
  if (body != nullptr) return fail(number, "a body is not closed by `end`");
  // Directives that the text leaves at their defaults can be set as well.
  for (const auto& [key, value] : overrides) {
    Line line({key, value});
    if (const std::string error = parser.Directive(line); !error.empty()) return fail(0, "--set " + key + ": " + error);
  }
  if (const std::string error = CheckSpec(spec); !error.empty()) return fail(number, error);
  return spec;
}

}  // namespace lockstep::make_run
