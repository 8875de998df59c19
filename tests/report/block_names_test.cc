#include "planner/facts/block_names.h"

#include <gtest/gtest.h>

namespace stalloc::planner {
namespace {

class BlockNamesTest : public testing::Test {
 protected:
  void Add(std::uint32_t allocation, const std::string& name) {
    device_.tensors.push_back({allocation, static_cast<std::uint32_t>(texts_.size()), 0, TensorRole::kParameter});
    texts_.push_back(name);
  }
  [[nodiscard]] std::string TextOf(std::uint32_t allocation) const {
    const BlockNames names(device_, texts_);
    return names.Text(names.Of(allocation));
  }
  [[nodiscard]] std::string ModuleOf(std::uint32_t allocation) const {
    return std::string(BlockNames(device_, texts_).ModuleOf(allocation));
  }

  DeviceTrace device_;
  std::vector<std::string> texts_;
};

TEST_F(BlockNamesTest, ABlockHasTheNameOfItsTensor) {
  Add(3, "GPT.blocks.0.up.weight");
  Add(7, "GPT.blocks.0.up.weight:exp_avg");
  EXPECT_EQ(TextOf(3), "GPT.blocks.0.up.weight");
  EXPECT_EQ(ModuleOf(3), "GPT.blocks.0.up");
  EXPECT_EQ(ModuleOf(7), "GPT.blocks.0.up");
  EXPECT_EQ(TextOf(5), "");
  EXPECT_EQ(ModuleOf(5), "");
}

TEST_F(BlockNamesTest, AFlattenedBufferHasTheFirstNameAndTheModuleThatHoldsAll) {
  Add(0, "GPT.blocks.1.up.weight");
  Add(0, "GPT.blocks.1.down.weight");
  Add(0, "GPT.blocks.10.up.weight");
  Add(1, "GPT.up.weight");
  Add(1, "GPT.up.bias");
  Add(2, "GPT.up.weight");
  Add(2, "Other.up.weight");
  Add(3, "GPT.up.weight");
  Add(3, "GPT.up.inner.weight");
  EXPECT_EQ(TextOf(0), "GPT.blocks.1.up.weight and 2 more");
  EXPECT_EQ(ModuleOf(0), "GPT.blocks") << "1 is not 10";
  EXPECT_EQ(ModuleOf(1), "GPT.up");
  EXPECT_EQ(ModuleOf(2), "");
  EXPECT_EQ(ModuleOf(3), "GPT.up");
}

TEST_F(BlockNamesTest, AllNamesOfABlockOnLines) {
  Add(0, "GPT.up.weight");
  Add(0, "GPT.up.bias");
  Add(1, "GPT.down.weight");
  const BlockNames names(device_, texts_);
  EXPECT_EQ(names.Lines(0, 10), "GPT.up.weight\nGPT.up.bias");
  EXPECT_EQ(names.Lines(0, 1), "GPT.up.weight");
  EXPECT_EQ(names.Lines(2, 10), "");
}

TEST_F(BlockNamesTest, ANameWithoutAModuleHasNone) {
  Add(0, "weight");
  EXPECT_EQ(TextOf(0), "weight");
  EXPECT_EQ(ModuleOf(0), "");
}

}  // namespace
}  // namespace stalloc::planner
