// Our few lines of PMIx's interface beside the real header.

#include "comms/pmpi/pmix_abi.h"

#include <gtest/gtest.h>

#ifdef LOCKSTEP_PMIX_INCLUDE
#include <pmix.h>
#include <pmix_common.h>

namespace lockstep::pmpi {
namespace {

TEST(PmixAbi, AsTheHeaderSays) {
  static_assert(sizeof(pmix::Proc) == sizeof(pmix_proc_t) && offsetof(pmix::Proc, rank) == offsetof(pmix_proc_t, rank));
  static_assert(offsetof(pmix::Value, data) == offsetof(pmix_value_t, data) &&
                sizeof(pmix::Value) >= sizeof(pmix_value_t));
  static_assert(offsetof(pmix::Info, flags) == offsetof(pmix_info_t, flags) &&
                offsetof(pmix::Info, value) == offsetof(pmix_info_t, value));
  static_assert(sizeof(pmix_scope_t) == 1 && sizeof(pmix_data_type_t) == 2 && sizeof(pmix_status_t) == 4);
  EXPECT_EQ(pmix::kSuccess, PMIX_SUCCESS);
  EXPECT_EQ(pmix::kErrUnreach, PMIX_ERR_UNREACH);
  EXPECT_EQ(pmix::kErrInit, PMIX_ERR_INIT);
  EXPECT_EQ(pmix::kErrCommFailure, PMIX_ERR_COMM_FAILURE);
  EXPECT_EQ(pmix::kErrLostConnection, PMIX_ERR_LOST_CONNECTION);
  EXPECT_EQ(pmix::kGlobal, PMIX_GLOBAL);
  EXPECT_EQ(pmix::kString, PMIX_STRING);
  EXPECT_EQ(pmix::kInt, PMIX_INT);
  EXPECT_STREQ(pmix::kTimeout, PMIX_TIMEOUT);
}

}  // namespace
}  // namespace lockstep::pmpi
#else
TEST(PmixAbi, AsTheHeaderSays) { GTEST_SKIP() << "pmix_common.h is not here"; }
#endif
