// Ledger: sums and peaks against a naive model, and from several threads.
#include "allocator/runtime/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace stalloc {
namespace {

const void* At(std::uint64_t address) { return reinterpret_cast<const void*>(address); }

TEST(LedgerTest, PeakIsOfTheSumOfAllKinds) {
  Ledger ledger;
  ledger.Add(1024);
  ledger.AddUpstream(At(0x1000), 2048);
  ledger.Remove(1024);
  ledger.AddUpstream(At(0x2000), 512);
  EXPECT_EQ(ledger.live_bytes(), 2560u);
  EXPECT_EQ(ledger.PeakBytes(Span::kReset), 3072u);
}

TEST(LedgerTest, AnUnknownAddressRemovesNothing) {
  Ledger ledger;
  ledger.AddUpstream(At(0x1000), 2048);
  EXPECT_EQ(ledger.RemoveUpstream(At(0x1200)), 0u);
  EXPECT_EQ(ledger.RemoveUpstream(At(0x1000)), 2048u);
  EXPECT_EQ(ledger.RemoveUpstream(At(0x1000)), 0u);
  EXPECT_EQ(ledger.live_bytes(), 0u);
}

TEST(LedgerTest, ResettingThePeakKeepsTheRunsPeak) {
  Ledger ledger;
  ledger.Add(4096);
  ledger.Remove(3072);
  ledger.Begin(Span::kReset);
  EXPECT_EQ(ledger.PeakBytes(Span::kReset), 1024u);
  EXPECT_EQ(ledger.PeakBytes(Span::kRun), 4096u);
  ledger.Add(1024);
  ledger.Begin(Span::kReset);
  EXPECT_EQ(ledger.PeakBytes(Span::kReset), 2048u);
  EXPECT_EQ(ledger.PeakBytes(Span::kRun), 4096u);
  ledger.Add(8192);
  EXPECT_EQ(ledger.PeakBytes(Span::kRun), 10240u);
}

TEST(LedgerTest, EachSpanHasAPeakOfItsOwn) {
  Ledger ledger;
  ledger.Add(8192);
  ledger.Remove(8192);
  ledger.Begin(Span::kPlan);
  ledger.Add(4096);
  ledger.Remove(4096);
  ledger.Begin(Span::kIteration);
  ledger.Add(1024);
  ledger.Begin(Span::kReset);
  ledger.Add(1024);
  ledger.Remove(512);
  EXPECT_EQ(ledger.PeakBytes(Span::kRun), 8192u);
  EXPECT_EQ(ledger.PeakBytes(Span::kPlan), 4096u);
  EXPECT_EQ(ledger.PeakBytes(Span::kIteration), 2048u);
  EXPECT_EQ(ledger.PeakBytes(Span::kReset), 2048u);
  ledger.Begin(Span::kIteration);
  EXPECT_EQ(ledger.PeakBytes(Span::kIteration), 1536u);
  EXPECT_EQ(ledger.PeakBytes(Span::kReset), 2048u);
}

TEST(LedgerTest, WhatIsKeptApartIsCountedOnItsOwn) {
  Ledger ledger;
  EXPECT_FALSE(ledger.has_apart());
  ledger.AddUpstream(At(0x1000), 2048, 3, /*apart=*/true);
  ledger.AddUpstream(At(0x2000), 512, 3);
  EXPECT_EQ(ledger.live_bytes(), 2560u);
  EXPECT_EQ(ledger.apart_bytes(), 2048u);
  EXPECT_EQ(ledger.FindUpstream(At(0x1000)), 2048u);
  std::array<Ledger::UpstreamBlock, 2> blocks;
  ASSERT_EQ(ledger.CopyUpstreamBlocks(blocks), 2u);
  for (const Ledger::UpstreamBlock& block : blocks) EXPECT_EQ(block.apart, block.address == 0x1000);
  EXPECT_EQ(ledger.RemoveUpstream(At(0x1000)), 2048u);
  EXPECT_EQ(ledger.RemoveUpstream(At(0x2000)), 512u);
  EXPECT_EQ(ledger.apart_bytes(), 0u);
  EXPECT_TRUE(ledger.has_apart());
}

TEST(LedgerTest, AgreesWithANaiveModelOverRandomOperations) {
  const std::uint64_t seed = 20261121;
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  Ledger ledger;
  std::map<std::uint64_t, Bytes> model;
  Bytes live = 0;
  Bytes peak = 0;
  for (int step = 0; step < 200000; ++step) {
    const std::uint64_t address = 512 * (random() % 40000);
    const auto found = model.find(address);
    if (found == model.end() && random() % 8 != 0) {
      const Bytes bytes = 512 * (1 + random() % 1000);
      ledger.AddUpstream(At(address), bytes);
      model.emplace(address, bytes);
      live += bytes;
      peak = std::max(peak, live);
    } else {
      const Bytes expected = found == model.end() ? 0 : found->second;
      ASSERT_EQ(ledger.FindUpstream(At(address)), expected);
      ASSERT_EQ(ledger.RemoveUpstream(At(address)), expected);
      live -= expected;
      if (found != model.end()) model.erase(found);
    }
    ASSERT_EQ(ledger.live_bytes(), live);
  }
  EXPECT_EQ(ledger.PeakBytes(Span::kReset), peak);
}

TEST(LedgerTest, ThreadsLoseNothing) {
  constexpr int kThreads = 4;
  constexpr int kBlocks = 2000;
  constexpr Bytes kBytes = 512;
  Ledger ledger;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const std::uint64_t base = (std::uint64_t{1} + static_cast<std::uint64_t>(thread)) << 32;
      for (std::uint64_t i = 0; i < kBlocks; ++i) ledger.AddUpstream(At(base + i * 512), kBytes);
      for (std::uint64_t i = 0; i < kBlocks; i += 2) ASSERT_EQ(ledger.RemoveUpstream(At(base + i * 512)), kBytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.live_bytes(), kThreads * kBlocks / 2 * kBytes);
  EXPECT_GE(ledger.PeakBytes(Span::kReset), kBlocks * kBytes);
  EXPECT_LE(ledger.PeakBytes(Span::kReset), kThreads * kBlocks * kBytes);
}

}  // namespace
}  // namespace stalloc
