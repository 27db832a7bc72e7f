// Our own declarations of NCCL's interface against the real header, where there is one.

#include <gtest/gtest.h>

#include "comms/nccl/nccl_abi.h"

#ifdef LOCKSTEP_NCCL_INCLUDE
#include <nccl.h>

namespace lockstep::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && alignof(UniqueId) == alignof(ncclUniqueId));
static_assert(offsetof(Config, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(Config, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, net_name) == offsetof(ncclConfig_t, netName));
#if NCCL_VERSION_CODE >= 22700
static_assert(offsetof(Config, comm_name) == offsetof(ncclConfig_t, commName));
#endif
static_assert(kSuccess == ncclSuccess && kSystemError == ncclSystemError && kInProgress == ncclInProgress);

TEST(NcclAbi, EnumsAreNcclsOwn) {
  EXPECT_EQ(TypeOf(ncclInt8), DataType::kInt8);
  EXPECT_EQ(TypeOf(ncclUint8), DataType::kUint8);
  EXPECT_EQ(TypeOf(ncclInt32), DataType::kInt32);
  EXPECT_EQ(TypeOf(ncclUint32), DataType::kUint32);
  EXPECT_EQ(TypeOf(ncclInt64), DataType::kInt64);
  EXPECT_EQ(TypeOf(ncclUint64), DataType::kUint64);
  EXPECT_EQ(TypeOf(ncclFloat16), DataType::kFloat16);
  EXPECT_EQ(TypeOf(ncclFloat32), DataType::kFloat32);
  EXPECT_EQ(TypeOf(ncclFloat64), DataType::kFloat64);
  EXPECT_EQ(TypeOf(ncclBfloat16), DataType::kBfloat16);
  EXPECT_EQ(TypeOf(ncclFloat8e4m3), DataType::kFloat8e4m3);
  EXPECT_EQ(TypeOf(ncclFloat8e5m2), DataType::kFloat8e5m2);
  EXPECT_EQ(ReductionOf(ncclSum), 1);
  EXPECT_EQ(ReductionOf(ncclProd), 2);
  EXPECT_EQ(ReductionOf(ncclMax), 3);
  EXPECT_EQ(ReductionOf(ncclMin), 4);
  EXPECT_EQ(ReductionOf(ncclAvg), 5);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "name";
  EXPECT_STREQ(NameIn(reinterpret_cast<const Config*>(&config)), "name");
  config.size = offsetof(ncclConfig_t, commName);  // An older NCCL's.
  EXPECT_EQ(NameIn(reinterpret_cast<const Config*>(&config)), nullptr);
}

}  // namespace
}  // namespace lockstep::nccl
#else
TEST(NcclAbi, EnumsAreNcclsOwn) { GTEST_SKIP() << "no nccl.h on this machine"; }
#endif
