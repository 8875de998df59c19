// Arenas on device memory, of themselves and as exact traces use them: bytes, the last gigabyte, and what calls cost.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "allocator/arena/arena.h"
#include "allocator/runtime/planned_space.h"
#include "tests/arena/keyed_pattern.h"
#include "tests/gpu/driver/cuda_under_test.h"

namespace stalloc {
namespace {

// What serves an exact trace. `limit`: bytes; 0: the device's.
class ExactArena final : private ArenaListener {
 public:
  explicit ExactArena(VmmDriver& driver, Bytes limit = 0) : limit_(limit) {
    std::string why;
    space_ = PlannedSpace::Create(driver, nullptr, {}, {.dynamic = true, .exact = true, .keep_free = 0}, &why);
    EXPECT_NE(space_, nullptr) << why;
    space_->SetListener(this);
  }
  void* Allocate(Bytes bytes) { return space_->engine().AllocateUnexpected(bytes, 0, MissReason::kUnplanned).pointer; }
  Bytes Free(void* block) { return space_->engine().Free(block); }
  [[nodiscard]] const PlannedSpace& space() const { return *space_; }

 private:
  void BeforeArenaChange() noexcept override {}
  void AfterArenaChange() noexcept override {}
  bool MayHold(Bytes more) noexcept override { return limit_ == 0 || space_->arena().mapped_bytes() + more <= limit_; }

  const Bytes limit_;
  std::unique_ptr<PlannedSpace> space_;
};

class CudaArenaTest : public testing::Test {
 protected:
  void SetUp() override {
    device_ = CudaUnderTest();
    if (device_.driver == nullptr) {
      GTEST_SKIP() << device_.absent_because;
    }
  }
  MemoryInfo Memory() {
    MemoryInfo info;
    EXPECT_TRUE(device_.driver->GetMemoryInfo(&info).ok());
    return info;
  }
  template <typename Work>
  static double Microseconds(Work work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
  }

  DriverUnderTest device_;
};

TEST_F(CudaArenaTest, MostOfTheDeviceMapsAndGoesBack) {
  const Bytes free_before = Memory().free;
  const Bytes bytes = RoundUp(free_before / 10 * 9, kGiB) - kGiB;
  DriverStatus status;
  auto arena = Arena::Create(*device_.driver, Memory().total + 2 * kGiB, &status);
  ASSERT_NE(arena, nullptr);
  const double microseconds = Microseconds([&] { ASSERT_TRUE(arena->GrowTo(bytes).ok()); });
  std::cout << "  " << bytes / kGiB << " GiB in chunks of 1 GiB: " << microseconds << " us\n";
  device_.WriteWord(arena->base(), 1);
  device_.WriteWord(arena->base() + bytes - 8, 2);
  EXPECT_EQ(device_.ReadWord(arena->base()), 1u);
  EXPECT_EQ(device_.ReadWord(arena->base() + bytes - 8), 2u);
  EXPECT_EQ(arena->GrowTo(RoundUp(free_before, kGiB)).code, DriverCode::kOutOfMemory);
  EXPECT_EQ(arena->mapped_bytes(), bytes) << "the failed growth left chunks behind";
  EXPECT_EQ(arena->ShrinkTo(kGiB), bytes - kGiB);
  arena.reset();
  EXPECT_EQ(Memory().free, free_before);
}

// What finer chunks cost: a plan's arena has up to 16384 (backing/chunk_bytes.h).
TEST_F(CudaArenaTest, ManyChunksMapAndGoBack) {
  const Bytes bytes = std::min(RoundUp(Memory().free / 2, kGiB), 32 * kGiB);
  for (const Bytes parts : {32, 1024, 8192}) {
    const Bytes chunk = bytes / parts;
    DriverStatus status;
    auto arena = Arena::Create(*device_.driver, bytes, &status, chunk);
    ASSERT_NE(arena, nullptr);
    const double mapped = Microseconds([&] { ASSERT_TRUE(arena->GrowTo(bytes).ok()); });
    device_.WriteWord(arena->base() + bytes - 8, 2);
    EXPECT_EQ(device_.ReadWord(arena->base() + bytes - 8), 2u);
    const std::vector<Arena::Range> all{{0, bytes}};
    const double released = Microseconds([&] { ASSERT_EQ(arena->ReleaseIdle(all), bytes); });
    const double again = Microseconds([&] {
      for (Offset at = 0; at < bytes; at += chunk) ASSERT_TRUE(arena->EnsureMapped(at, chunk).ok());
    });
    std::cout << "  " << bytes / kGiB << " GiB in " << parts << " chunks: mapped in " << mapped << " us, given back in "
              << released << " us, mapped again one by one in " << again << " us\n";
    EXPECT_EQ(arena->mapped_bytes(), bytes);
  }
}

// About 350 blocks live, and each hole between them may leave parts of two chunks idle.
TEST_F(CudaArenaTest, BlocksOfAnExactTraceKeepTheirBytesAtTwoPercentAboveTheLivePeak) {
  constexpr std::uint64_t kSeed = 31;
  std::mt19937_64 random(kSeed);
  constexpr Bytes kTarget = 12 * kGiB;
  ExactArena arena(*device_.driver, kTarget + kTarget / 50);
  struct Block {
    void* address;
    Bytes bytes;
    std::uint64_t key;
  };
  std::vector<Block> live;
  Bytes live_bytes = 0;
  std::vector<std::uint64_t> buffer;
  for (std::uint64_t step = 0; step < 600; ++step) {
    const double spread = std::uniform_real_distribution<double>(0, 1)(random);
    const Bytes bytes = BlockBytes(static_cast<Bytes>(512 * std::pow(2.0, spread * 20)));  // 512 B to 512 MiB
    while (live_bytes + bytes > kTarget) {
      std::swap(live[random() % live.size()], live.back());
      const Block block = live.back();
      live.pop_back();
      buffer.resize(block.bytes / 8);
      device_.read(buffer.data(), reinterpret_cast<Address>(block.address), block.bytes);
      ASSERT_TRUE(HoldsKeyed(buffer.data(), block.bytes, block.key)) << "seed " << kSeed << " step " << step;
      ASSERT_EQ(arena.Free(block.address), block.bytes);
      live_bytes -= block.bytes;
    }
    void* const address = arena.Allocate(bytes);
    ASSERT_NE(address, nullptr) << "seed " << kSeed << " step " << step << ": " << live_bytes << " live";
    buffer.resize(bytes / 8);
    FillKeyed(buffer.data(), bytes, step);
    device_.write(reinterpret_cast<Address>(address), buffer.data(), bytes);
    live.push_back({address, bytes, step});
    live_bytes += bytes;
  }
  const IdleChunks::Counts counts = arena.space().chunks().GetCounts();
  EXPECT_GT(counts.times_moved, 0u);
  EXPECT_EQ(arena.space().engine().CheckInvariants(), "");
  std::cout << "  live peak " << arena.space().engine().Stats().peak_live_bytes << ", mapped "
            << arena.space().arena().mapped_bytes() << ", moves " << counts.times_moved << ", waits "
            << counts.times_waited << "\n";
}

TEST_F(CudaArenaTest, AFullDeviceServesALargeRequestFromScatteredChunks) {
  ExactArena arena(*device_.driver);
  const Bytes piece = 256 * kMiB;
  std::vector<void*> blocks;
  while (void* block = arena.Allocate(piece)) blocks.push_back(block);
  ASSERT_GT(blocks.size(), 8u);
  Bytes freed = 0;
  for (std::size_t i = 0; i < blocks.size(); i += 2) freed += arena.Free(blocks[i]);
  void* large = nullptr;
  const double microseconds = Microseconds([&] { large = arena.Allocate(freed); });
  ASSERT_NE(large, nullptr) << freed << " freed bytes do not serve a request of that size";
  std::cout << "  " << freed / kGiB << " GiB out of pieces of 256 MiB: " << microseconds << " us\n";
  device_.WriteWord(reinterpret_cast<Address>(large) + freed - 8, 77);
  EXPECT_EQ(device_.ReadWord(reinterpret_cast<Address>(large) + freed - 8), 77u);
}

TEST_F(CudaArenaTest, AWarmStepCallsNoDriver) {
  ExactArena arena(*device_.driver);
  const auto step = [&] {
    std::vector<void*> blocks;
    for (Bytes i = 0; i < 1000; ++i) {
      blocks.push_back(arena.Allocate(i % 3 == 0 ? 512 * (1 + i % 100) : (1 + i % 40) * kMiB + 512 * (i % 2)));
      ASSERT_NE(blocks.back(), nullptr);
    }
    for (void* block : blocks) arena.Free(block);
  };
  const double cold = Microseconds(step);
  step();
  const std::uint64_t grown = arena.space().chunks().GetCounts().times_grown;
  const double warm = Microseconds(step);
  EXPECT_EQ(arena.space().chunks().GetCounts().times_grown, grown);
  std::cout << "  allocate + free: cold " << cold / 1000 << " us, warm " << warm / 1000 << " us\n";
}

}  // namespace
}  // namespace stalloc
