#include "runtime/agent/stacks/stack_merge.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/agent/hang/hang_stacks.h"

namespace lockstep::agent {
namespace {

using Mark = NativeFrame::Mark;
constexpr const char* kPython = "/usr/bin/python3.11";

NativeFrame Loop() { return {.module = kPython, .function = "_PyEval_EvalFrameDefault", .mark = Mark::kPythonLoop}; }
NativeFrame Native(std::string module, std::string function) { return {.module = module, .function = function}; }

std::string Names(const std::vector<StackFrame>& frames) {
  std::string text;
  for (const StackFrame& frame : frames) text += (text.empty() ? "" : " ") + frame.function;
  return text;
}

TEST(StackMerge, PythonsFramesStandForItsLoop) {
  const std::vector<NativeFrame> native = {Native("/usr/lib/libc.so.6", "read"),
                                           Native(kPython, "os_read"),
                                           Loop(),
                                           Native("/job/fast.so", "Callback"),
                                           Loop(),
                                           Native("/usr/lib/libc.so.6", "__libc_start_main")};
  const std::vector<PythonFrame> python = {
      {"inner", "/job/a.py", 3, false}, {"outer", "/job/a.py", 9, true}, {"main", "/job/a.py", 20, true}};
  const auto frames = MergeStacks(native, python, kPython);
  EXPECT_EQ(Names(frames), "main Callback outer inner read");
  EXPECT_EQ(frames[0].file, "a.py");
  EXPECT_TRUE(frames[0].python && !frames[0].library);
  EXPECT_TRUE(frames[4].library);
}

TEST(StackMerge, WhatIsLeftOfEitherStays) {
  const std::vector<PythonFrame> python = {{"inner", "/job/a.py", 3, true}, {"main", "/job/a.py", 20, true}};
  EXPECT_EQ(Names(MergeStacks({}, python, kPython)), "main inner");
  EXPECT_EQ(Names(MergeStacks({Native("/job/a", "Work"), Loop(), Loop(), Loop()}, python, kPython)), "main inner Work");
  EXPECT_EQ(Names(MergeStacks({Native("/job/a", "Work"), Native("/job/a", "main")}, {}, "")), "main Work");
}

TEST(StackMerge, LockstepsOwnFunctionsAreLeftOut) {
  EXPECT_EQ(Names(MergeStacks({Native("/usr/lib/libmpi.so.40", "PMPI_Send"),
                               Native("/x/liblockstep-mpi-ompi40.so", "MPI_Send"), Native("/job/a", "main")},
                              {}, "")),
            "main PMPI_Send");
  const std::vector<PythonFrame> python = {{"wait", "/x/python/_lockstep/collectives.py", 9, false},
                                           {"main", "/job/a.py", 20, true}};
  EXPECT_EQ(Names(MergeStacks({Native("/usr/lib/libtorch.so", "wait"), Loop()}, python, kPython)), "main wait");
}

TEST(StackMerge, AProgramThatHoldsAnInterpreterKeepsItsFunctions) {
  const std::vector<PythonFrame> python = {{"inner", "/job/a.py", 3, true}};
  NativeFrame loop = Loop();
  loop.module = "/job/solver";
  EXPECT_EQ(Names(MergeStacks({loop, Native("/job/solver", "PyObject_Call"), Native("/job/solver", "Solve")}, python,
                              "/job/solver")),
            "Solve inner");
}

TEST(StackMerge, AnAnswerThatIsNoneGivesNothing) {
  EXPECT_TRUE(NativeStacksOf("").empty());
  EXPECT_TRUE(NativeStacksOf("F\ta\tb\tc\t1\t\nnonsense\n\n").empty());
  const auto stacks = NativeStacksOf("T\t7\tcut\nF\t/a\tf\tx.cc\t12\te\nF\t/a");
  ASSERT_EQ(stacks.size(), 1U);
  EXPECT_EQ(stacks[0].thread, 7);
  EXPECT_EQ(stacks[0].why_short, "cut");
  ASSERT_EQ(stacks[0].frames.size(), 2U);
  EXPECT_EQ(stacks[0].frames[0].line, 12);
  EXPECT_EQ(stacks[0].frames[0].mark, Mark::kPythonLoop);
}

TEST(StackMerge, WhichFilesAreLibraries) {
  for (const char* path :
       {"/usr/lib/x.so", "/home/me/venv/lib/python3.12/site-packages/torch/a.py", "<frozen importlib>", "[vdso]"})
    EXPECT_TRUE(IsLibrary(path)) << path;
  for (const char* path : {"/home/me/train.py", "/usr/local/bin/solver", "train.py", ""})
    EXPECT_FALSE(IsLibrary(path)) << path;
}

TEST(HangStacks, TextCannotMakeLines) {
  StackSample sample{.process = 7};
  sample.threads = {
      {.thread = 7, .name = "a\nb", .main = true, .frames = {{.function = "f\ng", .file = "x\ty.py", .line = 3}}}};
  EXPECT_EQ(StacksText(sample), "process 7\n\nthread 7 a\\x0ab (main)\n    f\\x0ag, x\\x09y.py:3\n");
  const std::string json = StacksJson(sample, StacksFile(12));
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_EQ(json.find('\t'), std::string::npos);
  EXPECT_NE(json.find("\"file\":\"stacks/rank-00012.txt\""), std::string::npos) << json;
}

}  // namespace
}  // namespace lockstep::agent
