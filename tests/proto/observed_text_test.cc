#include "proto/codec/observed_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace stalloc {
namespace {

using testing::HasSubstr;

const std::string kGood = "stalloc-observed 1\ndevice 0 3 7\nentry 1 6 512 2048 40 3 1\n";

Observed Random(std::mt19937_64& random) {
  Observed observed;
  for (std::uint64_t d = random() % 3; d > 0; --d) {
    ObservedDevice& device = observed.devices.emplace_back();
    device.device = static_cast<DeviceIndex>(random() % 9) - 1;
    for (std::uint64_t s = 1 + random() % 4; s > 0; --s) {
      device.script_entries.push_back(1 + static_cast<std::uint32_t>(random() % 1000));
    }
    for (std::uint64_t e = random() % 20; e > 0; --e) {
      ObservedEntry entry;
      entry.script = static_cast<std::uint32_t>(random() % device.script_entries.size());
      entry.entry = static_cast<std::uint32_t>(random() % device.script_entries[entry.script]);
      entry.min_bytes = (1 + random() % (1 << 20)) * kBlockAlignment;
      entry.max_bytes = entry.min_bytes + random() % (1 << 20) * kBlockAlignment;
      entry.life = random() % 100000;
      entry.requests = random() % 100;
      entry.misses = random() % 100;
      device.entries.push_back(entry);
    }
  }
  return observed;
}

TEST(ObservedTextTest, WhatIsWrittenIsRead) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const Observed observed = Random(random);
    const Result<Observed> read = DecodeObserved(EncodeObserved(observed));
    ASSERT_TRUE(read.ok()) << read.error();
    ASSERT_EQ(read.value(), observed);
  }
}

TEST(ObservedTextTest, TheTextIsWhatTheFormatSays) {
  const Observed observed{{{0, {3, 7}, {{1, 6, 512, 2048, 40, 3, 1}}}}};
  EXPECT_EQ(EncodeObserved(observed), kGood);
}

TEST(ObservedTextTest, ErrorsNameTheLineAndWhatIsThere) {
  const std::pair<std::string, std::string> bad[] = {
      {"", "empty file"},
      {"stalloc-observed 2\n", "line 1: expected \"stalloc-observed 1\""},
      {"stalloc-observed 1\nentry 0 0 512 512 1 1 0\n", "line 2: expected a device before its entries"},
      {"stalloc-observed 1\ndevice 0\n", "line 2: expected a device's index"},
      {"stalloc-observed 1\ndevice x 3\n", "line 2: expected a device's index"},
      {"stalloc-observed 1\nplan 0 3\n", "found \"plan 0 3\""},
      {kGood + "entry 1 7 512 512 1 1 0\n", "line 4: expected an entry of the plan"},
      {kGood + "entry 2 0 512 512 1 1 0\n", "line 4: expected an entry of the plan"},
      {kGood + "entry 0 0 1024 512 1 1 0\n", "least <= largest"},
      {kGood + "entry 0 0 512 700 1 1 0\n", "multiples of 512"},
      {kGood + "entry 0 0 512 1024 1 1\n", "seven numbers"},
      {kGood + "entry 0 0 512 1024 1 1 0 9\n", "seven numbers"},
      {kGood + "entry 0 0 512 1024 -1 1 0\n", "seven numbers"},
      {kGood + "entry 0 0 512 1024 99999999999 1 0\n", "below 2^32"},
  };
  for (const auto& [text, message] : bad) {
    const Result<Observed> read = DecodeObserved(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_THAT(read.error(), HasSubstr(message)) << text;
  }
}

TEST(ObservedTextTest, AnyCutOfAFileIsReadOrRefused) {
  for (std::size_t length = 0; length <= kGood.size(); ++length) {
    const Result<Observed> read = DecodeObserved(kGood.substr(0, length));
    EXPECT_TRUE(read.ok() || !read.error().empty());
  }
}

}  // namespace
}  // namespace stalloc
