// lockstep tune: which settings make the job faster, tried out in short runs of it.

#include "analysis/report/tune.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "analysis/core/format.h"
#include "analysis/tune/promises.h"
#include "analysis/tune/session.h"
#include "cli/options/command.h"
#include "cli/options/program.h"
#include "cli/output/out.h"
#include "cli/output/progress.h"
#include "cli/output/write_file.h"
#include "cli/tune/job.h"
#include "cli/tune/process.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

struct TuneFlags {
  std::string budget = "10m", output, json, check;
  std::vector<std::string> only, skip;
  std::int64_t steps = 0;
  double loss_tolerance = 1e-5;
  unsigned jobs = 0;
  bool list = false, quiet = false;
};

// "90", "90s", "10m", "1.5h" -> seconds; nothing for any other text.
std::optional<double> ParseTime(const std::string& text) {
  double value = 0;
  std::string number = text;
  double unit = 1;
  if (!text.empty()) {
    const char last = text.back();
    unit = last == 'm' ? 60 : last == 'h' ? 3600 : 1;
    if (last == 's' || last == 'm' || last == 'h') number.pop_back();
  }
  if (number.empty() || number.find_first_not_of("0123456789.") != std::string::npos ||
      !CLI::detail::lexical_cast(number, value) || !(value > 0) || value > 1e6)
    return std::nullopt;
  return value * unit;
}

// What is before the dot.
std::string_view Owner(const tune::Setting& setting) { return setting.name.substr(0, setting.name.find('.')); }

CLI::Validator IsTime() {
  return CLI::Validator(
      [](const std::string& text) {
        return ParseTime(text) ? std::string() : "a time such as 90s, 10m or 1h was expected, not '" + text + "'";
      },
      "", "");
}

// "ddp", "ddp.static_graph"; with `values` also "ddp.bucket_cap_mb=10", without a comma.
CLI::Validator IsSetting(bool values) {
  return CLI::Validator(
      [values](const std::string& text) {
        const std::size_t equals = text.find('=');
        if (values && equals != std::string::npos) {
          if (tune::FindSetting(text.substr(0, equals)) != nullptr && equals + 1 < text.size() &&
              text.find_first_of(",\n") == std::string::npos)
            return std::string();
        } else {
          for (const tune::Setting& setting : tune::Settings())
            if (setting.name == text || Owner(setting) == text) return std::string();
        }
        return "no setting or group of settings is named '" + text + "': lockstep tune --list";
      },
      "", "");
}

bool Named(const std::vector<std::string>& names, const tune::Setting& setting) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return setting.name == name || Owner(setting) == name; });
}

// Keeps what --only names and --skip does not. A value that is given is tried whatever is known of it.
void Choose(const TuneFlags& flags, std::vector<tune::Candidate>& candidates) {
  std::vector<tune::Candidate> given;
  for (const std::string& text : flags.only) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) continue;
    given.push_back({tune::FindSetting(text.substr(0, equals)), text.substr(equals + 1), std::nullopt, ""});
  }
  std::erase_if(candidates, [&](const tune::Candidate& candidate) {
    const bool twice = std::any_of(given.begin(), given.end(), [&](const tune::Candidate& one) {
      return one.setting == candidate.setting && one.value == candidate.value;
    });
    return twice || (!flags.only.empty() && !Named(flags.only, *candidate.setting)) ||
           Named(flags.skip, *candidate.setting);
  });
  candidates.insert(candidates.end(), given.begin(), given.end());
}

Result<int> List() {
  for (const tune::Setting& setting : tune::Settings()) {
    Show("{}: {}\n", setting.name, tune::WithValue(setting.permanent, "VALUE"));
    if (setting.results == tune::Results::kRounding) Show("    results may differ by rounding\n");
    if (setting.memory) Show("    may take more memory\n");
    if (!setting.caution.empty()) Show("    {}\n", setting.caution);
  }
  return kOk;
}

// A directory that was not there before.
Result<std::string> MakeDirectory(const std::string& asked) {
  std::string path = asked;
  if (path.empty()) {
    char name[64];
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::localtime_r(&now, &parts);
    std::strftime(name, sizeof name, "lockstep.out/tune-%Y%m%d-%H%M%S", &parts);
    path = name + fmt::format("-{}", ::getpid());
  }
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_empty(path, error))
    return Error{ErrorCode::kUsage, "the directory is not empty", path, "name another one with --output"};
  fs::create_directories(path, error);
  if (error) return Error{ErrorCode::kIo, error.message(), path, "name another directory with --output"};
  return fs::absolute(path, error).lexically_normal().string();
}

class Tuning {
 public:
  Tuning(const TuneFlags& flags, std::string directory)
      : flags_(flags),
        begin_(steady_clock::now()),
        progress_(flags.quiet),
        job_({.command = Program(),
              .directory = directory,
              .steps = flags.steps,
              .check = flags.check,
              .loss_tolerance = flags.loss_tolerance,
              .jobs = flags.jobs}) {
    report_.command = Program();
    report_.directory = std::move(directory);
    report_.budget_s = *ParseTime(flags.budget);
  }

  Result<report::TuneReport> Run() {
    AdoptJobs();
    progress_.Show("the job as it is", 0);
    LS_TRY(tune::Facts facts, job_.MeasureAsItIs(report_.budget_s));
    report_.ranks = facts.ranks;
    report_.step_ns = job_.as_it_is().result.step_ns;
    report_.steps_per_run = job_.as_it_is().steps;
    report_.peak_bytes = job_.as_it_is().peak_bytes;
    LS_CHECK(FindCandidates(facts));
    Try();
    report_.elapsed_s = Elapsed();
    report_.unchecked = job_.guard().why_not();
    report_.loss_noise = job_.guard().noise();
    report_.checked_by_command = !flags_.check.empty();
    return report_;
  }

 private:
  double Elapsed() const { return std::chrono::duration<double>(steady_clock::now() - begin_).count(); }

  Status FindCandidates(tune::Facts& facts) {
    const tune::SessionOptions defaults;
    return job_.WithRecording([&](const analysis::Context& context) -> Status {
      report_.not_replayed = tune::AddBounds(context, facts);
      std::vector<tune::Candidate> candidates = tune::CandidatesOf(facts, defaults.worth);
      Choose(flags_, candidates);
      tune::AddPromises(context, facts, candidates);
      tune::OrderByPromise(candidates, defaults.worth);
      // Those that are tried first, in their order.
      std::stable_partition(candidates.begin(), candidates.end(),
                            [](const tune::Candidate& candidate) { return candidate.dropped.empty(); });
      report_.candidates = std::move(candidates);
      return Ok();
    });
  }

  void Try() {
    std::vector<std::string> groups;
    for (const tune::Candidate& candidate : report_.candidates)
      if (candidate.dropped.empty()) groups.emplace_back(candidate.setting->name);
    report_.candidate_peak_bytes.assign(report_.candidates.size(), 0);
    tune::SessionOptions options;
    options.budget_s = report_.budget_s;
    options.first_cost_s = job_.run_s();
    tune::Session session(groups, options);
    std::string trouble;
    while (const auto in_force = session.Next(Elapsed())) {
      std::vector<const tune::Candidate*> candidates;
      for (const std::size_t i : *in_force) candidates.push_back(&report_.candidates[i]);
      progress_.ShowMost(candidates.empty() ? "the job as it is" : candidates.back()->label(),
                         session.MostLeft(Elapsed()));
      const double begin_s = Elapsed();
      Result<Measured> measured = job_.Run(candidates);
      if (!measured.ok() || measured.value().interrupted) {
        trouble = measured.ok() ? "it was interrupted" : measured.error().what;
        session.Stop();
        break;
      }
      if (!in_force->empty()) {
        std::int64_t& peak = report_.candidate_peak_bytes[in_force->back()];
        peak = std::max(peak, measured.value().peak_bytes);
      }
      // Reading the recording is part of what a run takes.
      measured.value().result.cost_s = Elapsed() - begin_s;
      session.Took(measured.value().result);
    }
    report_.rows = session.rows();
    report_.rows.resize(report_.candidates.size());
    report_.best = session.best();
    report_.total = session.total();
    report_.decided = session.decided() && trouble.empty();
    report_.trouble = trouble.empty() ? session.trouble() : trouble;
    report_.runs = session.runs();
  }

  const TuneFlags& flags_;
  steady_clock::time_point begin_;
  Progress progress_;
  TunedJob job_;
  report::TuneReport report_;
};

Result<int> Tune(const TuneFlags& flags) {
  if (flags.list) return List();
  LS_CHECK(CheckCommand(Program()));
  LS_TRY(const std::string directory, MakeDirectory(flags.output));
  LS_TRY(const report::TuneReport report, Tuning(flags, directory).Run());
  const std::string json = flags.json.empty() ? directory + "/tune.json" : flags.json;
  LS_CHECK(WriteOrShow(json, JsonText(report::RenderTuneJson(report)), ShowJson, "name another file with --json"));
  if (json != "-") {
    ShowLines(report::RenderTuneText(report, report::TextOptions::ForFile(STDOUT_FILENO)));
    if (!flags.quiet)
      Note("lockstep: {} has all of it; the job as it is was recorded in {}/as-it-is\n", json, directory);
  }
  if (!report.trouble.empty()) return kFailed;
  return report.decided ? kOk : kIncomplete;
}

}  // namespace

void AddTune(CLI::App& root, Chosen& chosen) {
  auto flags = std::make_shared<TuneFlags>();
  CLI::App* app =
      root.add_subcommand("tune", "Try settings out in short runs of the job, and say which make it faster");
  app->footer(
      "Examples:\n"
      "  lockstep tune --budget 10m --steps 40 -- mpirun -np 8 python train.py\n"
      "  lockstep tune --only ddp,loader -- torchrun --nproc_per_node 8 train.py\n"
      "  lockstep tune --list                     what it can change\n"
      "It starts the job many times: give it a command that may be run again, and that writes nothing of value.\n"
      "Exit code 0: something better was found, or nothing is; 3: not decided within the budget; 1: the job failed.");
  app->add_option("--budget", flags->budget, "How long it may take in all: 90s, 10m, 1h")
      ->type_name("TIME")
      ->capture_default_str()
      ->check(IsTime());
  app->add_option("--steps", flags->steps, "End each run of the job after so many steps (default: it ends by itself)")
      ->type_name("N")
      ->check(CLI::Range(10, 1000000));
  app->add_option("--only", flags->only, "Try only these settings or groups of settings, or this value of one")
      ->type_name("NAME[=VALUE],..")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(IsSetting(true));
  app->add_option("--skip", flags->skip, "Leave these out")
      ->type_name("NAME,..")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(IsSetting(false));
  app->add_option(
         "--check", flags->check,
         "A shell command that ends with 0 if a run's results are right: $1 is the output of the job as it is, "
         "$2 of the run")
      ->type_name("CMD");
  app->add_option("--loss-tolerance", flags->loss_tolerance,
                  "By how much, relative, losses may differ where sums are made in another order")
      ->capture_default_str()
      ->check(NotNegative());
  app->add_option("-o,--output", flags->output, "Directory for everything (default: lockstep.out/tune-DATE-TIME-PID)")
      ->type_name("DIR");
  app->add_option("--json", flags->json, "Write the answer to this file, - for stdout (default: DIR/tune.json)")
      ->type_name("FILE");
  app->add_option("-j,--jobs", flags->jobs, "Threads that read recordings (default: all allowed cores)")
      ->type_name("N");
  app->add_flag("--list", flags->list, "List all settings");
  app->add_flag("-q,--quiet", flags->quiet, "No progress");
  app->callback([flags, &chosen] { chosen = [flags] { return Tune(*flags); }; });
}

}  // namespace lockstep::cli
