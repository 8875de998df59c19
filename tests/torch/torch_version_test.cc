#include "allocator/torch/torch_version.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stalloc {
namespace {

using testing::HasSubstr;

TEST(TorchVersionTest, AcceptsAnyPatchAndBuildOfTheSameMinorVersion) {
  for (const char* running : {"2.11.0+cu130", "2.11.0", "2.11.1+cpu", "2.11.0a0+git70d99e9", "2.11"}) {
    EXPECT_TRUE(CheckTorchVersion("2.11.0+cu130", running).ok()) << running;
  }
}

TEST(TorchVersionTest, RefusesAnotherMinorVersionAndNamesBoth) {
  for (const char* running : {"2.10.0+cu130", "2.12.0", "3.11.0", "2.1.0", "2.110.0", "1.2.11"}) {
    const Status status = CheckTorchVersion("2.11.0+cu130", running);
    ASSERT_FALSE(status.ok()) << running;
    EXPECT_THAT(status.error(), HasSubstr("2.11.0+cu130"));
    EXPECT_THAT(status.error(), HasSubstr(running));
    EXPECT_THAT(status.error(), HasSubstr("reinstall"));
  }
}

TEST(TorchVersionTest, RefusesWhatIsNoVersion) {
  for (const char* running : {"", "2", "2.", ".11", "two.eleven", "v2.11.0"}) {
    EXPECT_FALSE(CheckTorchVersion("2.11.0", running).ok()) << running;
    EXPECT_FALSE(CheckTorchVersion(running, running).ok()) << running;
  }
}

TEST(TorchVersionTest, WasBuiltForAVersionThatItAccepts) {
  EXPECT_TRUE(CheckTorchVersion(BuiltForTorch(), BuiltForTorch()).ok()) << BuiltForTorch();
}

}  // namespace
}  // namespace stalloc
