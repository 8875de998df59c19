// Blocks of the arena for other processes: what a receiver sees of them, also after their chunks went elsewhere.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/arena/exported_view.h"
#include "tests/base/test_files.h"
#include "tests/driver/open_descriptors.h"
#include "tests/runtime/alloc_fixture.h"

namespace stalloc {
namespace exports {

constexpr Bytes kSlot = 2 * kMiB;
constexpr Bytes kLarge = 3 * kMiB + 2 * kPage;

// Every page of a block differs from every other one.
unsigned char At(Bytes i, unsigned char key) {
  return static_cast<unsigned char>(key + i % 512 + i / 512 * 37 + i / kPage * 11);
}
void FillPattern(void* block, Bytes bytes, unsigned char key) {
  for (Bytes i = 0; i < bytes; ++i) static_cast<unsigned char*>(block)[i] = At(i, key);
}
bool HasPattern(const void* block, Bytes bytes, unsigned char key) {
  Bytes i = 0;
  while (i < bytes && static_cast<const unsigned char*>(block)[i] == At(i, key)) ++i;
  return i == bytes;
}

// Slots side by side, in chunks of 64 KiB.
class ExportTest : public AllocTest {
 protected:
  void StartWith(std::initializer_list<Bytes> slots, StreamFence* fence = nullptr, Bytes capacity = kGiB) {
    PlanBuilder plan;
    for (const Bytes slot : slots) plan.Each(slot);
    Start(plan.Build(), capacity, kPage, fence, /*dynamic=*/true);
    Iteration();
  }
  void* Filled(Bytes bytes, unsigned char key) {
    void* const block = Allocate(bytes);
    EXPECT_TRUE(runtime_->Owns(block));
    FillPattern(block, bytes, key);
    return block;
  }
  ExportedBlock Export(const void* pointer) {
    Result<ExportedBlock> exported = runtime_->Export(pointer);
    EXPECT_TRUE(exported.ok()) << exported.error();
    return exported.ok() ? std::move(exported).value() : ExportedBlock{};
  }
  std::string ErrorOf(const void* pointer) const {
    const Result<ExportedBlock> exported = runtime_->Export(pointer);
    return exported.ok() ? "" : exported.error();
  }
  // A receiver finds the block as it was filled.
  bool Arrives(const void* pointer, Bytes bytes, unsigned char key) {
    const ExportedBlock exported = Export(pointer);
    const ExportedView view(exported.chunks.descriptors, exported.chunks.chunk_bytes);
    return view.begin() != nullptr && HasPattern(view.begin() + exported.offset, bytes, key);
  }
};

TEST_F(ExportTest, ABlockArrivesWhereverItLies) {
  const Bytes sizes[] = {kSlot, 512, 700, kPage / 2, kPage, 3 * kPage + 512};
  StartWith({kSlot, 512, 700, kPage / 2, kPage, 3 * kPage + 512});
  void* blocks[6];
  for (unsigned char i = 0; i < 6; ++i) blocks[i] = Filled(sizes[i], i);
  for (unsigned char i = 0; i < 6; ++i) {
    EXPECT_TRUE(Arrives(blocks[i], sizes[i], i)) << sizes[i];
    const Arena::Exported chunks = Export(blocks[i]).chunks;
    EXPECT_EQ(chunks.chunk_bytes, kPage);
    EXPECT_LE(chunks.descriptors.size(), sizes[i] / kPage + 2) << "no more than the block lies in";
  }
  for (void* block : blocks) runtime_->Free(block);
}

TEST_F(ExportTest, WhatAReceiverWritesIsInTheBlock) {
  StartWith({kSlot});
  void* const block = Filled(kSlot, 1);
  const ExportedBlock exported = Export(block);
  const ExportedView view(exported.chunks.descriptors, exported.chunks.chunk_bytes);
  FillPattern(view.begin() + exported.offset, kSlot, 9);
  EXPECT_TRUE(HasPattern(block, kSlot, 9));
  runtime_->Free(block);
}

TEST_F(ExportTest, AnAddressInsideABlockIsExportedFromThereToTheBlocksEnd) {
  StartWith({kSlot});
  auto* const block = static_cast<unsigned char*>(Filled(kSlot, 1));
  const ExportedBlock whole = Export(block);
  const ExportedBlock part = Export(block + 5 * kPage + 24);
  EXPECT_EQ(part.chunks.descriptors.size(), whole.chunks.descriptors.size() - 5);
  EXPECT_EQ(part.offset, 24u);
  const ExportedView view(part.chunks.descriptors, part.chunks.chunk_bytes);
  EXPECT_EQ(view.begin()[part.offset], block[5 * kPage + 24]);
  runtime_->Free(block);
}

// The chunks of a block that was exported move under another one, and come back.
TEST_F(ExportTest, ChunksThatMovedArriveAsWhatLiesInThemNow) {
  StartWith({kSlot, kSlot, kSlot, kSlot}, nullptr, /*capacity=*/4 * kSlot);
  const long before = OpenDescriptors();
  for (unsigned char round = 0; round < 3; ++round) {
    if (round > 0) Iteration();
    void* blocks[4] = {};
    for (unsigned char i = 0; i < 3; ++i) {
      blocks[i] = Filled(kSlot, i);
      EXPECT_TRUE(Arrives(blocks[i], kSlot, i)) << static_cast<int>(round);
    }
    runtime_->Free(blocks[1]);
    const std::uint64_t moved = runtime_->Stats().lent.times_moved;
    void* const large = Filled(kLarge, 99);
    EXPECT_EQ(runtime_->Stats().lent.times_moved, moved + 1);
    EXPECT_TRUE(Arrives(large, kLarge, 99));
    EXPECT_TRUE(Arrives(blocks[0], kSlot, 0));
    EXPECT_TRUE(Arrives(blocks[2], kSlot, 2));
    runtime_->Free(large);
    EXPECT_NE(ErrorOf(large), "") << "its chunks may move now";
    blocks[3] = Filled(kSlot, 3);
    for (const unsigned char i : {0, 2, 3}) {
      EXPECT_TRUE(Arrives(blocks[i], kSlot, i)) << static_cast<int>(round);
      runtime_->Free(blocks[i]);
    }
  }
  EXPECT_LE(OpenDescriptors(), before + static_cast<long>(driver_->GetCounts().handles));
}

TEST_F(ExportTest, AnEmptiedCacheClosesDescriptorsAndWhatIsMappedAgainHasItsOwn) {
  StartWith({kSlot, kSlot});
  const long before = OpenDescriptors();
  for (unsigned char round = 0; round < 3; ++round) {
    void* const first = Filled(kSlot, round);
    void* const second = Filled(kSlot, 50);
    EXPECT_TRUE(Arrives(first, kSlot, round));
    EXPECT_TRUE(Arrives(second, kSlot, 50));
    runtime_->Free(first);
    EXPECT_EQ(runtime_->EmptyCache(), kSlot);
    EXPECT_EQ(OpenDescriptors(), before + static_cast<long>(kSlot / kPage)) << "those under the live block";
    EXPECT_TRUE(Arrives(second, kSlot, 50));
    runtime_->Free(second);
    EXPECT_EQ(runtime_->EmptyCache(), kSlot);
    EXPECT_EQ(OpenDescriptors(), before);
    Iteration();
  }
}

TEST_F(ExportTest, OnlyALiveBlockOfTheArenaIsExported) {
  NeverFence fence;
  StartWith({kSlot, kSlot}, &fence);
  void* const block = Filled(kSlot, 1);
  void* const other = Filled(kSlot, 2);
  void* const captured = runtime_->Allocate(kSlot, 0, Origin::kCaptured);
  const std::string none = "no block of the arena is in use there";
  EXPECT_EQ(ErrorOf(captured), none) << "upstream's";
  EXPECT_EQ(ErrorOf(nullptr), none);
  runtime_->Free(block);
  EXPECT_EQ(ErrorOf(block), none);
  runtime_->RecordStream(other, 7);
  runtime_->Free(other);
  EXPECT_EQ(ErrorOf(other), none) << "freed, if still in use by another stream";
  runtime_->Free(captured);
}

TEST_F(ExportTest, AForkedChildExportsNothing) {
  StartWith({kSlot});
  void* const block = Filled(kSlot, 1);
  const ExportedBlock exported = Export(block);
  const long before = OpenDescriptors();
  runtime_->BecomeInert();
  EXPECT_EQ(OpenDescriptors(), before - static_cast<long>(exported.chunks.descriptors.size()));
  EXPECT_EQ(ErrorOf(block), "this process was forked, the memory is its parent's");
}

TEST_F(ExportTest, ABlockOfAnExactTraceArrives) {
  const TemporaryDirectory directory;
  Result<std::unique_ptr<Recorder>> recorder =
      Recorder::Open({.path = directory.path() + "/t.trace", .fingerprint = {}});
  ASSERT_TRUE(recorder.ok()) << recorder.error();
  StartRuntime({.recorder = recorder.value().get(), .exact = true});
  void* const block = Filled(kMiB + 512, 3);
  EXPECT_TRUE(Arrives(block, kMiB + 512, 3));
  runtime_->Free(block);
  runtime_ = nullptr;
  recorder.value()->Close();
}

}  // namespace exports
}  // namespace stalloc
