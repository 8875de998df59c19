// The settings of the native allocator, which parses them without a device.
#include "allocator/torch/cuda_expandable.h"

#include <gtest/gtest.h>

#include <string>

#include "allocator/torch/version/settings.h"

namespace stalloc {
namespace {

c10::cuda::CUDACachingAllocator::AllocatorConfigInfo Config() {
  return c10::cuda::CUDACachingAllocator::snapshot().config_metadata;
}

std::string After(const std::string& users) {
  version::Apply(users);
  SwitchExpandableSegmentsOn(*c10::cuda::CUDACachingAllocator::get());
  return Config().last_allocator_settings;
}

TEST(ExpandableSegmentsTest, AreSwitchedOnBesideTheUsersOtherSettings) {
  EXPECT_EQ(After(""), "expandable_segments:True");
  EXPECT_EQ(After("max_split_size_mb:512"), "max_split_size_mb:512,expandable_segments:True");
  EXPECT_EQ(Config().max_split_size, std::size_t{512} << 20);
  EXPECT_TRUE(Config().expandable_segments);
}

TEST(ExpandableSegmentsTest, StayAsTheUserSetThem) {
  EXPECT_EQ(After("expandable_segments:False"), "expandable_segments:False");
  EXPECT_FALSE(Config().expandable_segments);
  EXPECT_EQ(After("expandable_segments:True,max_split_size_mb:512"), "expandable_segments:True,max_split_size_mb:512");
}

}  // namespace
}  // namespace stalloc
