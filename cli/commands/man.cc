// lockstep man: the manual page, as man(7) source, of all commands and flags.

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "cli/options/command.h"
#include "cli/options/described.h"
#include "cli/output/out.h"
#include "core/version.h"

namespace lockstep::cli {
namespace {

// Text that troff prints as it is.
std::string Plain(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_begins = c == '\n';
  }
  return out;
}

std::string Names(const DescribedFlag& flag) {
  std::string text;
  for (const std::string& name : flag.names)
    text += (text.empty() ? "" : ", ") + std::string("\\fB") + Plain(name) + "\\fR";
  if (!flag.value.empty() && !flag.positional) text += " \\fI" + Plain(flag.value) + "\\fR";
  return text;
}

void PrintManual(const DescribedCommand& command) {
  ShowOwn(".SS lockstep {}\n{}.\n", Plain(command.path), Plain(command.help));
  for (const DescribedFlag& flag : command.flags) {
    ShowOwn(".TP\n{}\n{}", Names(flag), flag.help.empty() ? "\\&" : Plain(flag.help));
    if (!flag.environment.empty()) ShowOwn(" (\\fI{}\\fR)", Plain(flag.environment));
    ShowOwn("\n");
  }
  // Examples are aligned by hand.
  if (!command.footer.empty()) ShowOwn(".PP\n.nf\n{}\n.fi\n", Plain(command.footer));
}

int PrintManual(const CLI::App& root) {
  const auto commands = Describe(root);
  ShowOwn(
      ".TH LOCKSTEP 1 \"\" \"lockstep {0}\" \"User commands\"\n"
      ".SH NAME\nlockstep \\- {1}\n"
      ".SH SYNOPSIS\n.B mpirun \\-np\n.I N\n.B lockstep run \\-\\-\n.I PROGRAM ...\n.br\n.B lockstep\n.I COMMAND\n"
      "[\\fIFLAGS\\fR] [\\fIRUN\\fR]\n"
      ".SH DESCRIPTION\n"
      "Records what every rank of a job under mpirun does (MPI, NCCL, CUDA, NVTX, PyTorch), brings all of them onto "
      "one\n"
      "clock, and says which rank, transfer or bucket makes a step longer than it should be, what that costs, and what "
      "to\n"
      "change. RUN is a run directory; if it is left out, the latest run in ./lockstep.out is used.\n"
      ".SH COMMANDS\n",
      LOCKSTEP_VERSION, Plain(commands.front().help));
  for (std::size_t i = 1; i < commands.size(); ++i) PrintManual(commands[i]);
  ShowOwn(
      ".SH ENVIRONMENT\nFlags of lockstep run can be given as LOCKSTEP_<FLAG>, in capitals with underscores, those of "
      "other\ncommands as LOCKSTEP_<COMMAND>_<FLAG>; each is named beside its flag. Flags on the command line "
      "override\nvariables. An empty variable counts as not set. A variable that cannot be used is reported and "
      "ignored; the command\nor program runs anyway.\n"
      ".SH EXIT STATUS\nlockstep run: the program's own. Others:\n"
      ".TP\n{}\ndone\n.TP\n{}\nfailed: no space, no permission, too little memory, or not possible with this run\n"
      ".TP\n{}\nwhat was given cannot be used: a wrong flag, or no run and no trace that can be read\n"
      ".TP\n{}\nthe input is incomplete or suspicious; results were written\n"
      ".TP\n{}\na regression was found (diff)\n.TP\n{}\nsomething cannot work here (doctor)\n"
      ".SH FILES\n.TP\n.I lockstep.out/latest\nthe newest run: ranks/rank\\-NNNNN.h5, timeline.h5, analysis.json, "
      "report.html\n",
      static_cast<int>(kOk), static_cast<int>(kFailed), static_cast<int>(kUsage), static_cast<int>(kIncomplete),
      static_cast<int>(kRegression), static_cast<int>(kBlocked));
  return std::fflush(stdout) == 0 ? kOk : kFailed;
}

}  // namespace

void AddMan(CLI::App& root, Chosen& chosen) {
  CLI::App* app = root.add_subcommand("man", "Print the manual page");
  app->footer("Example:\n  lockstep man | man -l -");
  app->callback([&root, &chosen] { chosen = [&root] { return PrintManual(root); }; });
}

}  // namespace lockstep::cli
