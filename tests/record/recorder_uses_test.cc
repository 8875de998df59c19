// Uses of blocks by operations, as a recorder writes them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "allocator/base/clock.h"
#include "proto/codec/trace_reader.h"
#include "tests/record/recorder_fixture.h"

namespace stalloc {
namespace {

using testing::ElementsAre;
// Allocation, events before, operation.
using Use = std::tuple<std::uint64_t, std::uint64_t, std::string>;

class RecorderUsesTest : public RecorderFixture {
 protected:
  void Alloc(std::uint64_t block) { recorder_->Allocated(0, At(block), 512, 0, 0); }
  void Free(std::uint64_t block) { recorder_->Freed(At(block)); }
  void Used(std::uint64_t block, std::int64_t began_ns, const char* operation, UseKind kind = UseKind::kArgument) {
    recorder_->Used(At(block), kind, began_ns, recorder_->Text(operation));
  }

  [[nodiscard]] std::vector<Use> CloseAndReadUses() {
    recorder_.reset();
    const auto reader = TraceReader::Open(path_);
    EXPECT_TRUE(reader.ok()) << reader.status();
    std::vector<Use> uses;
    Trace trace;
    while (*(*reader)->ReadChunk(&trace)) {
      for (const BlockUse& use : (*reader)->uses()) {
        uses.emplace_back(use.allocation, use.event, trace.texts.at(use.operation));
      }
    }
    EXPECT_TRUE(trace.complete) << trace.truncation;
    return uses;
  }
};

TEST_F(RecorderUsesTest, AnOperationUsesItsArgumentsFromItsBeginToItsEnd) {
  Open();
  Alloc(0x1000);
  const std::int64_t began = MonotonicNanoseconds();
  Used(0x1000, began, "mul");
  Alloc(0x2000);  // inside of the operation
  Used(0x1000, began, "mul");
  Used(0x1000, MonotonicNanoseconds(), "mul");  // again, with no event between
  Used(0x1000, MonotonicNanoseconds(), "sum");
  EXPECT_THAT(CloseAndReadUses(), ElementsAre(Use{0, 1, "mul"}, Use{0, 2, "mul"}, Use{0, 2, "sum"}));
}

TEST_F(RecorderUsesTest, InputsOfLayersAreApart) {
  Open();
  Alloc(0x1000);
  Alloc(0x2000);
  Used(0x1000, 0, "net.up", UseKind::kLayerInput);
  Used(0x1000, 0, "net.down", UseKind::kLayerInput);
  Used(0x3000, 0, "net.up", UseKind::kLayerInput);  // no block
  Free(0x1000);
  Used(0x1000, 0, "net.up", UseKind::kLayerInput);  // gone
  Used(0x2000, 0, "net.up", UseKind::kLayerInput);
  const Trace trace = CloseAndRead();
  std::vector<Use> inputs;
  for (const BlockUse& use : trace.layer_inputs) {
    inputs.emplace_back(use.allocation, use.event, trace.texts.at(use.operation));
  }
  EXPECT_THAT(inputs, ElementsAre(Use{0, 2, "net.up"}, Use{0, 2, "net.down"}, Use{1, 3, "net.up"}));
}

TEST_F(RecorderUsesTest, WhatAnOperationAllocatesAndReturnsItUsesFromTheAllocationOn) {
  Open();
  Alloc(0x1000);
  const std::int64_t began = MonotonicNanoseconds();
  Alloc(0x2000);
  Alloc(0x3000);
  Free(0x3000);
  Used(0x2000, began, "mul", UseKind::kResult);
  Used(0x1000, began, "mul", UseKind::kResult);  // in place: it was there before
  EXPECT_THAT(CloseAndReadUses(), ElementsAre(Use{1, 2, "mul"}, Use{1, 4, "mul"}, Use{0, 4, "mul"}));
}

TEST_F(RecorderUsesTest, AnAddressThatHasANewOwnerIsNotAnArgumentAnyMore) {
  Open();
  Alloc(0x1000);
  const std::int64_t began = MonotonicNanoseconds();
  Used(0x1000, began, "backward");
  Free(0x1000);
  Alloc(0x1000);
  Used(0x1000, began, "backward");
  Used(0x7000, began, "backward");  // nobody's
  EXPECT_THAT(CloseAndReadUses(), ElementsAre(Use{0, 1, "backward"}));
}

TEST_F(RecorderUsesTest, UsesAloneMakeAChunk) {
  Open();
  Alloc(0x1000);
  recorder_->Flush();
  Used(0x1000, MonotonicNanoseconds(), "mul");
  recorder_->Flush();
  Alloc(0x2000);
  Used(0x2000, MonotonicNanoseconds(), "mul");
  EXPECT_THAT(CloseAndReadUses(), ElementsAre(Use{0, 1, "mul"}, Use{1, 2, "mul"}));
}

}  // namespace
}  // namespace stalloc
