// lockstep doctor: will a run here be recorded, and was that one?

#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands/doctor_run.h"
#include "cli/input/imported.h"
#include "cli/options/command.h"
#include "cli/output/out.h"
#include "cli/output/write_file.h"
#include "runtime/doctor/check.h"

namespace lockstep::cli {
namespace {

struct DoctorFlags {
  std::string run, json, program, output = "lockstep.out", self_test_child;
  int ranks = 0;
  unsigned jobs = 0;
};

struct Line {
  std::string name;
  doctor::Finding finding;
};

std::string Painted(doctor::Status status, bool color) {
  const std::string name = fmt::format("{:<9}", Name(status));
  if (!color) return name;
  const char* code = status == doctor::Status::kOk        ? "32"
                     : status == doctor::Status::kWarning ? "33"
                     : status == doctor::Status::kBlocker ? "31"
                                                          : "2";
  return fmt::format("\x1b[{}m{}\x1b[0m", code, name);
}

// One line per check, as soon as it is known: self-tests take a second.
void PrintLine(const Line& line, bool color) {
  ShowLines(Painted(line.finding.status, color) +
            out::Format(" {:<14} {}{}\n", line.name, line.finding.text,
                        line.finding.remedy.empty() ? "" : "; try: " + line.finding.remedy));
}

int CoresAllowed() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

Result<int> Doctor(const DoctorFlags& flags) {
  if (!flags.self_test_child.empty()) return doctor::RunSelfTestChild(flags.self_test_child == "mpi");
  // A limit on file sizes is to be reported, and must not end this process.
  ::signal(SIGXFSZ, SIG_IGN);
  const bool text = flags.json != "-";
  const bool color = text && isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  std::vector<Line> lines;
  const auto add = [&](std::string name, doctor::Finding finding) {
    lines.push_back({std::move(name), std::move(finding)});
    if (text) PrintLine(lines.back(), color);
  };
  if (flags.run.empty()) {
    doctor::Machine machine = doctor::ThisMachine();
    machine.program = flags.program;
    machine.scratch = flags.output;
    machine.ranks_per_node = flags.ranks > 0 ? flags.ranks : CoresAllowed();
    for (const doctor::Check& check : doctor::Checks()) add(std::string(check.name), check.look(machine));
  } else {
    LS_TRY(const std::string run, ResolveOne(flags.run, {.jobs = flags.jobs, .quiet = true}));
    auto findings = LookAtRun(run, flags.jobs);
    if (findings.ok()) {
      for (RunFinding& each : findings.value()) add(each.name, std::move(each.finding));
    } else {
      add("run_ranks", {doctor::Status::kBlocker, findings.error().what + " (" + findings.error().where + ")",
                        findings.error().hint});
    }
  }
  std::size_t blockers = 0, warnings = 0;
  for (const Line& line : lines) {
    blockers += line.finding.status == doctor::Status::kBlocker;
    warnings += line.finding.status == doctor::Status::kWarning;
  }
  if (text)
    Show("\n{} blocker{}, {} warning{}\n", blockers, blockers == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s");
  if (!flags.json.empty()) {
    Json json{
        {"schema", "lockstep.doctor/1"}, {"blockers", blockers}, {"warnings", warnings}, {"checks", Json::array()}};
    for (const Line& line : lines)
      json["checks"].push_back({{"name", line.name},
                                {"status", Name(line.finding.status)},
                                {"text", line.finding.text},
                                {"remedy", line.finding.remedy.empty() ? Json(nullptr) : Json(line.finding.remedy)}});
    LS_CHECK(WriteOrShow(flags.json, JsonText(json), ShowJson));
  }
  return blockers > 0 ? kBlocked : kOk;
}

}  // namespace

void AddDoctor(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<DoctorFlags>();
  CLI::App* app = root.add_subcommand(
      "doctor", "Check whether runs on this machine can be recorded well, or what a recorded run is missing");
  app->footer(
      "Examples:\n"
      "  lockstep doctor                        this machine, with a self-test under mpirun\n"
      "  lockstep doctor --program ./app --ranks 8\n"
      "  lockstep doctor latest                 a recorded run\n"
      "Exit code 5: there is a blocker.");
  app->add_option("run", flags->run, "Check this run instead of the machine")->type_name("RUN");
  app->add_option("--program", flags->program, "Check whether this program can be recorded")->type_name("FILE");
  app->add_option("--ranks", flags->ranks, "Planned ranks per node (default: as many as cores)")
      ->check(AboveZero())
      ->type_name("N");
  app->add_option("-o,--output", flags->output, "Where runs will be written")->type_name("DIR")->capture_default_str();
  app->add_option("--json", flags->json, "Write the findings to FILE; - for standard output instead of the text")
      ->type_name("FILE");
  app->add_option("-j,--jobs", flags->jobs, "Threads (default: all allowed cores)")->type_name("N");
  app->add_option("--self-test-child", flags->self_test_child)->group("");
  app->callback([flags, &chosen] { chosen = [flags] { return Doctor(*flags); }; });
}

}  // namespace lockstep::cli
