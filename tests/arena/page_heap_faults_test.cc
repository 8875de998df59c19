// PageHeap over a driver whose n-th call fails, for every n: nothing live is harmed, nothing leaks, the next try
// succeeds.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "allocator/arena/page_heap.h"
#include "allocator/driver/host_driver.h"
#include "tests/driver/faulty_driver.h"

namespace stalloc {
namespace {

constexpr Bytes kPage = 16 * 1024;
constexpr StreamHandle kStream = 1;
constexpr StreamHandle kOther = 2;

// A heap in some state, with live blocks that hold a pattern.
struct Scene {
  std::unique_ptr<HostDriver> host;
  std::unique_ptr<FaultyDriver> driver;
  std::unique_ptr<PageHeap> heap;
  std::vector<std::pair<char*, Bytes>> live;

  explicit Scene(Bytes pages)
      : host(HostDriver::Create({.capacity = pages * kPage, .granularity = kPage})),
        driver(std::make_unique<FaultyDriver>(*host)),
        heap(PageHeap::Create(*driver, 0)) {}

  void Keep(Bytes bytes) {
    auto* const block = static_cast<char*>(heap->Allocate(bytes, kStream));
    ASSERT_NE(block, nullptr);
    std::memset(block, static_cast<int>(live.size() + 1), bytes);
    live.emplace_back(block, bytes);
  }
  // Blocks of these sizes, each twice: one stays, one is freed at the end.
  void KeepEverySecond(const std::vector<Bytes>& sizes) {
    std::vector<void*> holes;
    for (const Bytes bytes : sizes) {
      holes.push_back(heap->Allocate(bytes, kStream));
      Keep(bytes);
    }
    for (void* hole : holes) {
      EXPECT_EQ(heap->Free(hole) % kBlockAlignment, 0u);
    }
  }
  [[nodiscard]] bool Intact() const {
    for (std::size_t i = 0; i < live.size(); ++i) {
      for (Bytes at = 0; at < live[i].second; ++at) {
        if (live[i].first[at] != static_cast<char>(i + 1)) {
          return false;
        }
      }
    }
    return true;
  }
};

struct Case {
  std::string name;
  Bytes pages;
  std::function<void(Scene&)> prepare;
  Bytes request;
  StreamHandle stream;
  std::uint64_t least_calls;  // so that a case that stopped testing anything is noticed
  bool exact_rollback;        // no pressure: the driver's counts are as before
};

class PageHeapFaults : public testing::TestWithParam<Case> {};

std::vector<Case> Cases() {
  const auto nothing = [](Scene&) {};
  const auto mixed = [](Scene& scene) {
    scene.Keep(3 * kPage + 512);
    scene.Keep(700);
    scene.Keep(kPage / 2);
  };
  const auto holes = [](Scene& scene) {
    scene.KeepEverySecond({2 * kPage + 1024, kPage, 2048, 2 * kPage + 512, 700, kPage, 3 * kPage - 512, 4096});
  };
  const auto free_extents = [](Scene& scene) {
    void* const block = scene.heap->Allocate(9 * kPage, kStream);
    scene.Keep(kPage);
    scene.heap->Free(block);
    // A request that fails for good takes the cached block apart and leaves its extent in the pool.
    EXPECT_EQ(scene.heap->Allocate(1000 * kPage, kStream), nullptr);
  };
  return {
      {"FirstSmall", 64, nothing, 512, kStream, 3, true},
      {"FirstLarge", 64, nothing, 4 * kPage, kStream, 3, true},
      {"FirstOdd", 64, nothing, 4 * kPage + 512, kStream, 5, true},
      {"OddBesideOthers", 64, mixed, 4 * kPage + 1024, kStream, 4, true},
      {"SmallOnANewPage", 64, mixed, kPage - 512, kStream, 3, true},
      {"UnderPressure", 26, holes, 8 * kPage + 512, kStream, 8, false},
      {"SmallUnderPressure", 20, holes, kPage - 512, kOther, 6, false},
      {"FromFreeExtents", 16, free_extents, 5 * kPage, kStream, 3, false},
  };
}

INSTANTIATE_TEST_SUITE_P(, PageHeapFaults, testing::ValuesIn(Cases()),
                         [](const auto& instance) { return instance.param.name; });

class NthCall {
 public:
  NthCall(const Case& test, DriverCode code) : test_(test), code_(code) {}

  // Runs the case with call `n` failing; false once there is no call `n` any more.
  bool Run(std::uint64_t n) {
    Scene scene(test_.pages);
    test_.prepare(scene);
    const PageHeap::Stats before = scene.heap->GetStats();
    const FaultyDriver::Counts counts = scene.driver->counts();
    scene.driver->FailCall(n, code_);
    void* block = scene.heap->Allocate(test_.request, test_.stream);
    const bool fired = scene.driver->fired();
    calls_ = scene.driver->calls();
    scene.driver->FailNothing();
    EXPECT_TRUE(fired || block != nullptr) << "fails without a fault";
    EXPECT_EQ(scene.heap->CheckInvariants(), "") << "call " << n;
    EXPECT_TRUE(scene.Intact()) << "call " << n;
    EXPECT_EQ(scene.heap->GetStats().physical_bytes, scene.driver->counts().handle_bytes) << "call " << n;
    if (block == nullptr) {
      EXPECT_EQ(scene.heap->GetStats().live_bytes, before.live_bytes) << "call " << n;
      EXPECT_EQ(scene.heap->GetStats().live_blocks, before.live_blocks) << "call " << n;
      if (test_.exact_rollback) {
        EXPECT_EQ(scene.driver->counts(), counts) << "call " << n;
      }
      block = scene.heap->Allocate(test_.request, test_.stream);
      EXPECT_NE(block, nullptr) << "no success after the failure of call " << n;
    }
    if (block != nullptr) {
      std::memset(block, 0xAA, test_.request);
      EXPECT_TRUE(scene.Intact()) << "call " << n;
      EXPECT_EQ(scene.heap->Free(block), BlockBytes(test_.request));
    }
    scene.heap.reset();
    EXPECT_EQ(scene.driver->counts(), FaultyDriver::Counts{}) << "leaked after the failure of call " << n;
    return fired;
  }
  [[nodiscard]] std::uint64_t calls() const { return calls_; }

 private:
  const Case& test_;
  const DriverCode code_;
  std::uint64_t calls_ = 0;
};

TEST_P(PageHeapFaults, EveryFailedCallRollsBack) {
  for (const DriverCode code : {DriverCode::kFailed, DriverCode::kOutOfMemory}) {
    NthCall nth(GetParam(), code);
    std::uint64_t n = 0;
    while (nth.Run(n)) {
      ++n;
    }
    EXPECT_GE(n, GetParam().least_calls);
  }
}

TEST_P(PageHeapFaults, ADriverThatFailsFromSomePointOnHarmsNothingLive) {
  for (std::uint64_t n = 0; n < 40; ++n) {
    Scene scene(GetParam().pages);
    GetParam().prepare(scene);
    scene.driver->FailCall(n, DriverCode::kFailed, FaultyDriver::kNever);
    (void)scene.heap->Allocate(GetParam().request, GetParam().stream);
    (void)scene.heap->ReleaseCached();
    scene.driver->FailNothing();
    EXPECT_EQ(scene.heap->CheckInvariants(), "") << "from call " << n;
    EXPECT_TRUE(scene.Intact()) << "from call " << n;
    EXPECT_NE(scene.heap->Allocate(512, kStream), nullptr) << "works on when the driver does again, from call " << n;
  }
}

TEST_P(PageHeapFaults, EveryFailedCallOfReleaseCachedLeavesAWorkingHeap) {
  bool fired = true;
  for (std::uint64_t n = 0; fired; ++n) {
    Scene scene(GetParam().pages);
    GetParam().prepare(scene);
    scene.driver->FailCall(n);
    const Bytes before = scene.heap->GetStats().physical_bytes;
    const Bytes released = scene.heap->ReleaseCached();
    fired = scene.driver->fired();
    scene.driver->FailNothing();
    EXPECT_EQ(scene.heap->GetStats().physical_bytes, before - released);
    EXPECT_EQ(scene.heap->CheckInvariants(), "") << "call " << n;
    EXPECT_TRUE(scene.Intact());
    (void)scene.heap->ReleaseCached();
    EXPECT_EQ(scene.heap->GetStats().cached_bytes, 0u) << "the second try, after call " << n;
    scene.heap.reset();
    EXPECT_EQ(scene.driver->counts(), FaultyDriver::Counts{});
  }
}

}  // namespace
}  // namespace stalloc
