#include "allocator/backing/device_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/engine/fake_fence.h"

namespace stalloc {
namespace {

// Events of the whole device, done up to the one that the test says.
class DeviceEvents final : public StreamFence {
 public:
  Event Record(StreamHandle) noexcept override { return 0; }
  Event RecordAll() noexcept override { return refuses ? 0 : ++last; }
  bool Wait(StreamHandle, Event) noexcept override { return false; }
  bool Done(Event event) noexcept override { return event <= done; }
  void Recycle(Event event) noexcept override { recycled.push_back(event); }

  bool refuses = false;
  Event last = 0;
  Event done = 0;
  std::vector<Event> recycled;
};

class DeviceClockTest : public testing::Test {
 protected:
  // A stamp, and an event behind all that came before it.
  std::uint64_t Tick() {
    const std::uint64_t before = engine_.NewStamp();
    clock_.Tick();
    return before;
  }

  DeviceEvents events_;
  const DevicePlan plan_ = TurnsPlan(1, 1);
  PlanEngine engine_{plan_, kBase, &events_};
  DeviceClock clock_{&events_, engine_};
};

TEST_F(DeviceClockTest, TheNewestEventThatIsDoneDecides) {
  const std::uint64_t first = Tick();
  const std::uint64_t second = Tick();
  const std::uint64_t third = Tick();
  EXPECT_EQ(clock_.Done(), 0u) << "none is";
  events_.done = 1;
  EXPECT_GT(clock_.Done(), first);
  EXPECT_LT(clock_.Done(), second);
  events_.done = 3;
  EXPECT_GT(clock_.Done(), third);
  EXPECT_EQ(events_.recycled, (std::vector<StreamFence::Event>{1, 2, 3}));
  EXPECT_GT(clock_.Done(), third) << "and stays";
}

TEST_F(DeviceClockTest, OfMoreThanADeviceLagsBehindTheOldestAreDropped) {
  std::uint64_t last = 0;
  for (int i = 0; i < 40; ++i) last = Tick();
  EXPECT_EQ(events_.recycled.size(), 8u);
  events_.done = 8;
  EXPECT_EQ(clock_.Done(), 0u) << "of what was dropped nothing is known";
  events_.done = 40;
  EXPECT_GT(clock_.Done(), last);
  EXPECT_EQ(events_.recycled.size(), 40u);
}

TEST_F(DeviceClockTest, WithoutEventsNothingIsKnown) {
  events_.refuses = true;
  events_.done = ~StreamFence::Event{0};
  Tick();
  EXPECT_EQ(clock_.Done(), 0u);
  DeviceClock none(nullptr, engine_);
  none.Tick();
  EXPECT_EQ(none.Done(), 0u);
}

}  // namespace
}  // namespace stalloc
