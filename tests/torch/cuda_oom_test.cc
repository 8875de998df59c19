#include "allocator/torch/cuda_oom.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

using Entry = OomRelay::Entry;

// Stands for the native allocator: what it was given, and a request that fails.
class OomRelayTest : public ::testing::Test {
 protected:
  void Attach() {
    relay_.Attach([this](std::int64_t device, std::size_t allocated, std::size_t,
                         std::size_t) { seen_.emplace_back(device, allocated); },
                  [this](OomRelay::Observer observer) { native_.push_back(std::move(observer)); });
  }
  void Fail(std::size_t bytes) {
    const OomRelay::Querying querying;
    for (const auto& observer : native_) observer(3, bytes, 100, 10);
  }

  OomRelay relay_;
  std::vector<OomRelay::Observer> native_;
  std::vector<std::pair<std::int64_t, std::size_t>> seen_;
};

TEST_F(OomRelayTest, ObserversHearOfAFinalFailureOnce) {
  Attach();
  Fail(7);
  EXPECT_TRUE(seen_.empty());
  relay_.Stand();
  relay_.Stand();
  EXPECT_EQ(seen_, (std::vector<std::pair<std::int64_t, std::size_t>>{{3, 7}}));
}

TEST_F(OomRelayTest, TheNativeAllocatorGetsOneObserverHoweverManyThereAre) {
  Attach();
  Attach();
  EXPECT_EQ(native_.size(), 1u);
  Fail(7);
  relay_.Stand();
  EXPECT_EQ(seen_.size(), 2u);
}

TEST_F(OomRelayTest, ARetractedFailureIsNeverHeardOf) {
  Attach();
  Fail(7);
  relay_.Retract(3);
  relay_.Stand();
  EXPECT_TRUE(seen_.empty());
  Fail(8);
  relay_.Stand();
  EXPECT_EQ(seen_, (std::vector<std::pair<std::int64_t, std::size_t>>{{3, 8}}));
  EXPECT_EQ(relay_.Retracted(3), 1);
  EXPECT_EQ(relay_.Retracted(0), 0);
  relay_.ResetRetracted(3);
  EXPECT_EQ(relay_.Retracted(3), 0);
}

TEST_F(OomRelayTest, WhatDidNotComeThroughUsIsPassedOnAtOnce) {
  Attach();
  for (const auto& observer : native_) observer(0, 5, 100, 10);
  EXPECT_EQ(seen_.size(), 1u);
}

TEST_F(OomRelayTest, ThreadsDoNotMixTheirFailures) {
  Attach();
  Fail(7);
  std::thread([&] {
    Fail(9);
    relay_.Retract(3);
  }).join();
  relay_.Stand();
  EXPECT_EQ(seen_, (std::vector<std::pair<std::int64_t, std::size_t>>{{3, 7}}));
}

TEST_F(OomRelayTest, TheHistoryLosesRetractedFailuresOnly) {
  c10::ApproximateClockToUnixTimeConverter clock;
  std::vector<Entry> entries;
  const auto add = [&](Entry::Action action) {
    entries.emplace_back(action, 3, 0, 7, nullptr, c10::MempoolId_t{0, 0}, c10::getApproximateTime());
  };
  const auto apart = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  Attach();
  add(Entry::OOM);  // before
  apart();
  {
    const OomRelay::Querying querying;
    add(Entry::OOM);
    add(Entry::SEGMENT_FREE);
  }
  relay_.Retract(3);
  apart();
  Fail(7);
  add(Entry::OOM);  // the second try
  relay_.Stand();
  const auto to_nanoseconds = clock.makeConverter();
  for (Entry& entry : entries) entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000;
  const std::vector<Entry> all = entries;
  relay_.LeaveOutRetracted(0, clock, entries);
  EXPECT_EQ(entries.size(), 4u) << "another device's";
  relay_.LeaveOutRetracted(3, clock, entries);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].time_.t_, all[0].time_.t_);
  EXPECT_EQ(entries[1].action_, Entry::SEGMENT_FREE);
  EXPECT_EQ(entries[2].time_.t_, all[3].time_.t_);
}

}  // namespace
}  // namespace stalloc
