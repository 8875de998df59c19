// Chunks that leave the process as file descriptors: of which memory, how often, and for how long.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/driver/host_driver.h"
#include "tests/arena/exported_view.h"
#include "tests/driver/faulty_driver.h"
#include "tests/driver/open_descriptors.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = Bytes{32} << 10;
constexpr Bytes kChunk = 2 * kPage;
constexpr Bytes kChunks = 6;

// Six chunks, each filled with its number from 1 on.
class ArenaExportTest : public testing::Test {
 protected:
  ArenaExportTest() { Start(); }
  void Start() {
    arena_.reset();
    DriverStatus status;
    arena_ = Arena::Create(driver_, 64 * kChunk, &status, kChunk);
    EXPECT_TRUE(arena_->GrowTo(kChunks * kChunk).ok());
    for (Bytes i = 0; i < kChunks; ++i) Fill(i, static_cast<unsigned char>(i + 1));
  }
  unsigned char* At(Offset offset) { return reinterpret_cast<unsigned char*>(arena_->base() + offset); }
  void Fill(Bytes chunk, unsigned char value) { std::memset(At(chunk * kChunk), value, kChunk); }
  Arena::Exported Export(Offset offset, Bytes bytes) {
    Result<Arena::Exported> exported = arena_->Export(offset, bytes);
    EXPECT_TRUE(exported.ok()) << exported.error();
    return exported.ok() ? std::move(exported).value() : Arena::Exported{};
  }
  std::string ErrorOf(Offset offset, Bytes bytes) {
    const Result<Arena::Exported> exported = arena_->Export(offset, bytes);
    return exported.ok() ? "" : exported.error();
  }
  // What a receiver finds at the chunk's begin.
  int Seen(const Arena::Exported& exported, std::size_t chunk) {
    const ExportedView view(exported.descriptors, exported.chunk_bytes);
    return view.begin() == nullptr ? -1 : view.begin()[chunk * exported.chunk_bytes];
  }
  int Seen(Bytes chunk) { return Seen(Export(chunk * kChunk, 1), 0); }
  void Release(Bytes chunk, Bytes chunks = 1) {
    const Arena::Range idle{chunk * kChunk, chunks * kChunk};
    EXPECT_EQ(arena_->ReleaseIdle({&idle, 1}), chunks * kChunk);
  }
  // It is there now.
  bool Move(Bytes from, Bytes to) {
    const Arena::Range source{from * kChunk, kChunk};
    const Arena::Range target{to * kChunk, kChunk};
    arena_->Move({&source, 1}, {&target, 1});
    return arena_->HolesIn(target.offset, target.bytes).empty();
  }
  static bool IsOpen(int descriptor) { return fcntl(descriptor, F_GETFD) >= 0; }

  const std::unique_ptr<HostDriver> host_ = HostDriver::Create({.capacity = 0, .granularity = kPage});
  FaultyDriver driver_{*host_};
  std::unique_ptr<Arena> arena_;
};

TEST_F(ArenaExportTest, ARangeIsTheRunOfChunksThatItLiesIn) {
  const Arena::Exported exported = Export(kChunk + 512, 2 * kChunk);
  EXPECT_EQ(exported.offset, kChunk);
  EXPECT_EQ(exported.chunk_bytes, kChunk);
  ASSERT_EQ(exported.descriptors.size(), 3u);
  const ExportedView view(exported.descriptors, exported.chunk_bytes);
  ASSERT_NE(view.begin(), nullptr);
  EXPECT_EQ(std::memcmp(view.begin(), At(kChunk), 3 * kChunk), 0);
  view.begin()[2 * kChunk + 7] = 99;
  EXPECT_EQ(*At(3 * kChunk + 7), 99) << "one memory, not a copy";
  EXPECT_EQ(Export(2 * kChunk, kChunk).descriptors.size(), 1u) << "a range that ends where a chunk does";
  EXPECT_EQ(Export(0, kChunks * kChunk).descriptors.size(), kChunks);
}

TEST_F(ArenaExportTest, AChunkIsExportedOnce) {
  const long before = OpenDescriptors();
  const Arena::Exported all = Export(0, kChunks * kChunk);
  EXPECT_EQ(driver_.exports(), static_cast<int>(kChunks));
  const Arena::Exported some = Export(2 * kChunk, 2 * kChunk);
  EXPECT_EQ(some.descriptors, (std::vector<int>{all.descriptors[2], all.descriptors[3]}));
  EXPECT_EQ(driver_.exports(), static_cast<int>(kChunks));
  EXPECT_EQ(std::set<int>(all.descriptors.begin(), all.descriptors.end()).size(), kChunks);
  EXPECT_EQ(OpenDescriptors(), before + static_cast<long>(kChunks));
}

TEST_F(ArenaExportTest, AChunkThatGoesBackClosesItsDescriptorAndTheNextOneThereHasItsOwn) {
  const long before = OpenDescriptors();
  EXPECT_EQ(Seen(2), 3);
  EXPECT_EQ(Seen(3), 4);
  Release(2);
  EXPECT_EQ(OpenDescriptors(), before + 1);
  EXPECT_EQ(ErrorOf(2 * kChunk, 1), "a part of it is not mapped");
  EXPECT_EQ(ErrorOf(kChunk, 3 * kChunk), "a part of it is not mapped");
  ASSERT_TRUE(arena_->EnsureMapped(2 * kChunk, kChunk).ok());
  Fill(2, 33);
  EXPECT_EQ(Seen(2), 33);
  EXPECT_EQ(driver_.exports(), 3);
  EXPECT_EQ(OpenDescriptors(), before + 2);
  arena_->ShrinkTo(0);
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(ArenaExportTest, ADescriptorMovesWithItsMemory) {
  const long before = OpenDescriptors();
  const Arena::Exported first = Export(kChunk, kChunk);
  Release(4);
  ASSERT_TRUE(Move(1, 4));
  EXPECT_EQ(ErrorOf(kChunk, kChunk), "a part of it is not mapped") << "the place that it left";
  EXPECT_EQ(Seen(4), 2);
  EXPECT_EQ(Export(4 * kChunk, kChunk).descriptors, first.descriptors) << "the same memory under the same name";
  ASSERT_TRUE(arena_->EnsureMapped(kChunk, kChunk).ok());
  Fill(1, 44);
  EXPECT_EQ(Seen(1), 44) << "other memory, in the place where the first was exported";
  EXPECT_NE(Export(kChunk, kChunk).descriptors, first.descriptors);
  EXPECT_EQ(Seen(4), 2);
  EXPECT_EQ(OpenDescriptors(), before + 2);
}

// Whatever is released, mapped and moved: what is exported at a place is what lies there.
TEST_F(ArenaExportTest, WhatIsExportedIsWhatLiesThere) {
  const long before = OpenDescriptors();
  std::uint64_t state = 7;
  const auto below = [&state](Bytes end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % end;
  };
  unsigned char next = 100;
  for (int step = 0; step < 2000; ++step) {
    const Bytes chunk = below(kChunks);
    const bool mapped = ErrorOf(chunk * kChunk, 1).empty();
    if (!mapped) {
      ASSERT_TRUE(arena_->EnsureMapped(chunk * kChunk, kChunk).ok());
      Fill(chunk, next++);
    } else if (below(2) == 0) {
      Release(chunk);
    } else if (const Bytes to = below(kChunks); !ErrorOf(to * kChunk, 1).empty()) {
      ASSERT_TRUE(Move(chunk, to));
    }
    std::size_t held = 0;
    for (Bytes i = 0; i < kChunks; ++i) {
      if (!ErrorOf(i * kChunk, 1).empty()) continue;
      ASSERT_EQ(Seen(i), *At(i * kChunk)) << "step " << step << ", chunk " << i;
      ++held;
    }
    ASSERT_EQ(OpenDescriptors(), before + static_cast<long>(held)) << "step " << step;
  }
}

TEST_F(ArenaExportTest, AMoveThatFailsAnywhereLeavesNoDescriptorWithoutItsChunk) {
  for (std::uint64_t n = 0; n < 12; ++n) {
    for (const std::uint64_t count : {1, 2, 3}) {
      Start();
      const long before = OpenDescriptors();
      Release(4, 2);
      Export(0, 4 * kChunk);
      driver_.FailCall(n, DriverCode::kFailed, count);
      const std::vector<Arena::Range> from{{0, kChunk}, {kChunk, kChunk}};
      const std::vector<Arena::Range> to{{4 * kChunk, 2 * kChunk}};
      arena_->Move(from, to);
      driver_.FailNothing();
      const std::vector<Arena::Range> chunks = arena_->Chunks();
      EXPECT_EQ(OpenDescriptors(), before + static_cast<long>(chunks.size())) << n << ", " << count;
      for (const Arena::Range& chunk : chunks) {
        EXPECT_EQ(Seen(Export(chunk.offset, 1), 0), *At(chunk.offset)) << n << ", " << count;
      }
    }
  }
}

TEST_F(ArenaExportTest, WhatALargeChunkBecomesHasDescriptorsOfItsOwn) {
  DriverStatus status;
  arena_ = Arena::Create(driver_, 64 * kChunk, &status, kChunk);
  ASSERT_TRUE(arena_->GrowTo(4 * kChunk, 2 * kChunk).ok());
  const long before = OpenDescriptors();
  Export(0, 4 * kChunk);
  const std::vector<Arena::Range> from{{0, 2 * kChunk}};
  const std::vector<Arena::Range> to{{6 * kChunk, 2 * kChunk}};
  arena_->Move(from, to);
  EXPECT_EQ(OpenDescriptors(), before + 1) << "that of the one that is no more is closed";
  Fill(6, 61);
  const Arena::Exported two = Export(6 * kChunk, 2 * kChunk);
  EXPECT_EQ(two.chunk_bytes, kChunk);
  ASSERT_EQ(two.descriptors.size(), 2u);
  EXPECT_EQ(Seen(two, 0), 61);
}

TEST_F(ArenaExportTest, AChunkThatTheDriverDoesNotUnmapKeepsItsDescriptor) {
  const Arena::Exported exported = Export(kChunk, kChunk);
  driver_.FailCall(0);
  const Arena::Range idle{kChunk, kChunk};
  EXPECT_EQ(arena_->ReleaseIdle({&idle, 1}), 0u);
  driver_.FailNothing();
  EXPECT_TRUE(IsOpen(exported.descriptors[0]));
  EXPECT_EQ(Seen(1), 2);
}

TEST_F(ArenaExportTest, AnArenaThatEndsClosesAllDescriptors) {
  const long before = OpenDescriptors();
  Export(0, kChunks * kChunk);
  driver_.FailCall(0, DriverCode::kShuttingDown, 3);  // at exit
  arena_.reset();
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST_F(ArenaExportTest, AnExportThatFailsSaysWhyAndIsTriedAgain) {
  const long before = OpenDescriptors();
  driver_.FailCall(1);
  EXPECT_EQ(ErrorOf(0, 3 * kChunk), "the driver does not export its memory: Export gave 0");
  EXPECT_EQ(OpenDescriptors(), before + 1) << "the first one's";
  driver_.FailNothing();
  EXPECT_EQ(Export(0, 3 * kChunk).descriptors.size(), 3u);
  EXPECT_EQ(driver_.exports(), 3);
}

TEST_F(ArenaExportTest, ChunksOfSeveralSizesAreNoRun) {
  ASSERT_TRUE(arena_->GrowTo((kChunks + 1) * kChunk + kPage).ok());  // the last has what is left
  EXPECT_EQ(arena_->Chunks().back().bytes, kPage);
  EXPECT_EQ(ErrorOf(kChunks * kChunk, kChunk + kPage), "it lies in chunks of several sizes, 65536 and 32768 bytes");
  EXPECT_EQ(ErrorOf(kChunks * kChunk, kChunk), "");
  const Arena::Exported last = Export((kChunks + 1) * kChunk, kPage);
  EXPECT_EQ(last.offset, (kChunks + 1) * kChunk);
  EXPECT_EQ(last.chunk_bytes, kPage);
}

TEST_F(ArenaExportTest, WhatLiesOutsideIsNotMapped) {
  EXPECT_NE(ErrorOf((kChunks - 1) * kChunk, 2 * kChunk), "");
  EXPECT_NE(ErrorOf(kChunks * kChunk, 1), "");
  EXPECT_NE(ErrorOf(0, 0), "");
}

TEST_F(ArenaExportTest, AForkedChildHoldsNoneOfTheDescriptors) {
  const Arena::Exported exported = Export(0, 2 * kChunk);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    arena_->DropDescriptors();
    _exit(IsOpen(exported.descriptors[0]) || IsOpen(exported.descriptors[1]) ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Seen(exported, 1), 2) << "the parent's are open";
}

}  // namespace
}  // namespace stalloc
