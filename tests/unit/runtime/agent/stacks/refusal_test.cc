#include "runtime/agent/stacks/refusal.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace lockstep::agent {
namespace {

TEST(StackRefusal, EachReasonHasARemedyThatHelps) {
  const auto said = [](const RefusalFacts& facts) { return RefusalText(7, facts); };
  EXPECT_NE(said({.yama = 2}).find("sysctl -w kernel.yama.ptrace_scope=1"), std::string::npos);
  // It cannot be set back while the machine runs, and no capability helps.
  EXPECT_EQ(said({.yama = 3}).find("sysctl"), std::string::npos);
  EXPECT_EQ(said({.yama = 3}).find("SYS_PTRACE"), std::string::npos);
  EXPECT_NE(said({.yama = 3}).find("next boot"), std::string::npos);
  // 1 lets a parent do it: the reason is another one.
  EXPECT_EQ(said({.yama = 1, .own_user = 5, .program_user = 5, .guarded = true}).find("Yama"), std::string::npos);
  EXPECT_NE(said({.yama = 1, .own_user = 5, .program_user = 5, .guarded = true}).find("PR_SET_DUMPABLE"),
            std::string::npos);
  EXPECT_NE(said({.own_user = 5, .program_user = 6}).find("user 6, and its agent of user 5"), std::string::npos);
  EXPECT_NE(said({.yama = 1, .filters_reads = true}).find("forbids process_vm_readv:"), std::string::npos);
  EXPECT_NE(said({.yama = 1, .filters_ptrace = true}).find("forbids ptrace:"), std::string::npos);
  EXPECT_NE(said({.filters_reads = true, .filters_ptrace = true}).find("process_vm_readv and ptrace:"),
            std::string::npos);
  EXPECT_NE(said({}).find("SELinux"), std::string::npos);
}

TEST(StackRefusal, OfThisProcessNothingIsRefused) {
  const RefusalFacts facts = FactsOfRefusal(::getpid());
  EXPECT_EQ(facts.own_user, facts.program_user);
  EXPECT_FALSE(facts.guarded);
}

}  // namespace
}  // namespace lockstep::agent
