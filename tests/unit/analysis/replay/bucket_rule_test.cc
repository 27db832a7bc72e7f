#include "analysis/replay/graph/bucket_rule.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "analysis/rules/replay.h"

namespace lockstep::replay {
namespace {

std::vector<Gradient> Floats(const std::vector<std::uint64_t>& elements) {
  std::vector<Gradient> gradients;
  for (const std::uint64_t n : elements) gradients.push_back({n * 4});
  return gradients;
}

// Parameters of torchvision's ResNets in registration order: convolutions without bias, batch
// norms with weight and bias.
std::vector<std::uint64_t> ResNet(const std::vector<int>& blocks, bool bottleneck, std::uint64_t classes) {
  std::vector<std::uint64_t> p;
  const auto norm = [&](std::uint64_t channels) { p.insert(p.end(), {channels, channels}); };
  const auto convolution = [&](std::uint64_t in, std::uint64_t out, std::uint64_t kernel) {
    p.push_back(in * out * kernel * kernel);
    norm(out);
  };
  convolution(3, 64, 7);
  std::uint64_t in = 64;
  for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
    const std::uint64_t width = 64u << stage, out = bottleneck ? 4 * width : width;
    for (int block = 0; block < blocks[stage]; ++block) {
      if (bottleneck) {
        convolution(in, width, 1);
        convolution(width, width, 3);
        convolution(width, out, 1);
      } else {
        convolution(in, width, 3);
        convolution(width, width, 3);
      }
      if (block == 0 && (in != out || stage > 0)) convolution(in, out, 1);  // Downsample.
      in = out;
    }
  }
  p.push_back(in * classes);
  p.push_back(classes);
  return p;
}

std::vector<std::uint64_t> Elements(const std::vector<GradientBucket>& buckets) {
  std::vector<std::uint64_t> elements;
  for (const GradientBucket& bucket : buckets) elements.push_back(bucket.bytes / 4);
  return elements;
}

// What a real ResNet-50 under DDP all-reduced (a public NCCL trace).
TEST(BucketRule, ResNet50AsTraced) {
  std::vector<std::uint64_t> parameters = ResNet({3, 4, 6, 3}, true, 1000);
  std::reverse(parameters.begin(), parameters.end());
  EXPECT_EQ(Elements(AssignBuckets(Floats(parameters), rules::kDdpFirstBucketBytes, rules::kDdpBucketCapBytes)),
            (std::vector<std::uint64_t>{2049000, 7875584, 6563840, 6637568, 2431040}));
}

TEST(BucketRule, KindsAreApartAndOrderedAsClosed) {
  const std::vector<Gradient> gradients = {{10, DataType::kFloat32, 0},
                                           {100, DataType::kFloat16, 0},
                                           {10, DataType::kFloat32, 1},
                                           {50, DataType::kFloat32, 0},
                                           {10, DataType::kFloat16, 0}};
  const auto buckets = AssignBuckets(gradients, 60, 100);
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0].gradients, (std::vector<std::size_t>{1}));
  EXPECT_EQ(buckets[1].gradients, (std::vector<std::size_t>{0, 3}));
  EXPECT_EQ(buckets[2].gradients, (std::vector<std::size_t>{2}));
  EXPECT_EQ(buckets[3].gradients, (std::vector<std::size_t>{4}));
}

TEST(BucketRule, Limits) {
  EXPECT_TRUE(AssignBuckets({}, 1, 1).empty());
  EXPECT_EQ(AssignBuckets(Floats({1, 2, 3}), 0, 0).size(), 3u);
  EXPECT_EQ(AssignBuckets(Floats({1, 2, 3}), 1u << 20, 25u << 20).size(), 1u);
  // A gradient larger than the limit is not split.
  EXPECT_EQ(Elements(AssignBuckets(Floats({1, 1000, 1}), 8, 8)), (std::vector<std::uint64_t>{1001, 1}));
}

// Every cap gives one of the assignments that the distinct caps give, and no two give the same.
TEST(BucketRule, DistinctCapsAreAllThereAre) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<std::uint64_t> elements(1 + random() % 12);
    std::uint64_t all = 0;
    for (auto& n : elements) all += (n = 1 + random() % 20) * 4;
    const std::vector<Gradient> gradients = Floats(elements);
    const std::uint64_t first = random() % 100;
    std::set<std::vector<std::uint64_t>> possible, found;
    for (std::uint64_t cap = 1; cap <= all + 1; ++cap) possible.insert(Elements(AssignBuckets(gradients, first, cap)));
    const auto caps = DistinctCaps(gradients, first);
    for (const std::uint64_t cap : caps) found.insert(Elements(AssignBuckets(gradients, first, cap)));
    EXPECT_EQ(found, possible) << trial;
    EXPECT_EQ(found.size(), caps.size());
    EXPECT_TRUE(std::is_sorted(caps.begin(), caps.end()));
    EXPECT_LE(DistinctCaps(gradients, first, 3).size(), 3u);

    possible.clear(), found.clear();
    for (std::uint64_t cap = 1; cap <= all + 1; ++cap)
      possible.insert(Elements(AssignBuckets(gradients, std::min(first, cap), cap)));
    for (const std::uint64_t cap : DistinctCaps(gradients, first, 1000, true))
      found.insert(Elements(AssignBuckets(gradients, std::min(first, cap), cap)));
    EXPECT_EQ(found, possible) << trial << ", the first bucket's limit follows";
  }
}

TEST(DdpSettings, NameTheSettingThatActs) {
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(DdpSettings(kMiB, 10 * kMiB, 100 * kMiB), "DistributedDataParallel(..., bucket_cap_mb=10)");
  // The cap does not move the first bucket's limit.
  EXPECT_EQ(DdpSettings(kMiB / 2, kMiB / 2, 100 * kMiB),
            "before the model is wrapped: torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 524288; then "
            "DistributedDataParallel(..., bucket_cap_mb=0.5)");
  // All in one: a limit beyond all there is, in both.
  EXPECT_EQ(DdpSettings(UINT64_MAX, UINT64_MAX, 3 * kMiB - 5),
            "before the model is wrapped: torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = 3145728; then "
            "DistributedDataParallel(..., bucket_cap_mb=3)");
}

// Rounded up to 3.008 it closes a bucket one gradient later.
TEST(DdpSettings, ACapIsWrittenSoThatItGivesTheBucketsThatItIsSaidToGive) {
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(DdpSettings(kMiB, 3'153'920, 100 * kMiB), "DistributedDataParallel(..., bucket_cap_mb=3.0078125)");
  for (const std::uint64_t cap :
       {std::uint64_t{3'153'920}, std::uint64_t{3'153'921}, 25 * kMiB + 1, std::uint64_t{7}}) {
    const std::string text = DdpSettings(kMiB, cap, 100 * kMiB);
    const double written = std::stod(text.substr(text.find('=') + 1));
    EXPECT_EQ(static_cast<std::uint64_t>(std::llround(written * static_cast<double>(kMiB))), cap) << text;
  }
}

}  // namespace
}  // namespace lockstep::replay
