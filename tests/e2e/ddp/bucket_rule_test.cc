#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

#include "examples/ddp_mpi/buckets.h"

namespace lockstep::example {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

std::vector<std::uint64_t> SizesOf(const std::vector<Bucket>& buckets) {
  std::vector<std::uint64_t> sizes;
  for (const Bucket& bucket : buckets) sizes.push_back(bucket.bytes);
  return sizes;
}

// Parameters of torchvision's ResNet-50 in registration order, in elements.
std::vector<std::uint64_t> ResNet50() {
  std::vector<std::uint64_t> tensors = {3 * 64 * 49, 64, 64};  // conv1, bn1
  std::uint64_t in = 64;
  for (const auto& [width, blocks] :
       std::vector<std::pair<std::uint64_t, int>>{{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < blocks; ++block) {
      const std::uint64_t out = 4 * width;
      tensors.insert(tensors.end(), {in * width, width, width, 9 * width * width, width, width, width * out, out, out});
      if (block == 0) tensors.insert(tensors.end(), {in * out, out, out});  // downsample
      in = out;
    }
  }
  tensors.insert(tensors.end(), {2048 * 1000, 1000});  // fc
  return tensors;
}

// The sizes that a real trace of DDP with its default limits shows.
TEST(BucketRule, ResNet50AsTraced) {
  std::vector<std::uint64_t> bytes = ResNet50();
  ASSERT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}), 25'557'032u);
  for (std::uint64_t& tensor : bytes) tensor *= 4;
  EXPECT_EQ(SizesOf(AssignBuckets(bytes, kMiB, 25 * kMiB)),
            (std::vector<std::uint64_t>{4 * 2'049'000, 4 * 7'875'584, 4 * 6'563'840, 4 * 6'637'568, 4 * 2'431'040}));
}

TEST(BucketRule, ClosesWhenTheLimitIsReachedExactly) {
  EXPECT_EQ(SizesOf(AssignBuckets({30, 70, 100, 60, 40}, 100, 200)), (std::vector<std::uint64_t>{100, 200}));
}

TEST(BucketRule, WalksBackwardsAndNeverSplits) {
  const std::vector<Bucket> buckets = AssignBuckets({1, 1000, 2}, 2, 10);
  ASSERT_EQ(SizesOf(buckets), (std::vector<std::uint64_t>{2, 1000, 1}));
  EXPECT_EQ(buckets[0].tensors, (std::vector<std::size_t>{2}));
  EXPECT_EQ(buckets[2].tensors, (std::vector<std::size_t>{0}));
}

TEST(BucketRule, OneBucketWhenNothingReachesTheLimit) {
  EXPECT_EQ(SizesOf(AssignBuckets({1, 2, 3}, 100, 100)), (std::vector<std::uint64_t>{6}));
  EXPECT_TRUE(AssignBuckets({}, 100, 100).empty());
}

}  // namespace
}  // namespace lockstep::example
