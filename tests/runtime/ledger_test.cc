// Ledger: sums and peaks against a naive model, and from several threads.
#include "allocator/runtime/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
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
  EXPECT_EQ(ledger.peak_bytes(), 3072u);
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
  ledger.ResetPeak();
  EXPECT_EQ(ledger.peak_bytes(), 1024u);
  EXPECT_EQ(ledger.run_peak_bytes(), 4096u);
  ledger.Add(1024);
  ledger.ResetPeak();
  EXPECT_EQ(ledger.peak_bytes(), 2048u);
  EXPECT_EQ(ledger.run_peak_bytes(), 4096u);
  ledger.Add(8192);
  EXPECT_EQ(ledger.run_peak_bytes(), 10240u);
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
  EXPECT_EQ(ledger.peak_bytes(), peak);
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
  EXPECT_GE(ledger.peak_bytes(), kBlocks * kBytes);
  EXPECT_LE(ledger.peak_bytes(), kThreads * kBlocks * kBytes);
}

}  // namespace
}  // namespace stalloc
