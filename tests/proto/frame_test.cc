#include "proto/codec/frame.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "proto/codec/crc32c.h"

namespace stalloc {
namespace {

// Bit by bit, straight from the definition.
std::uint32_t SlowCrc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78u : 0);
  }
  return ~crc;
}

TEST(Crc32cTest, AgreesWithPublishedValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);              // the check value of the CRC catalogue
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);    // RFC 3720, B.4
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);  // RFC 3720, B.4
  EXPECT_EQ(Crc32c(""), 0u);
}

TEST(Crc32cTest, AgreesWithTheBitwiseDefinitionAtEveryLengthAndAlignment) {
  std::mt19937 random(1);
  std::string bytes(200, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (std::size_t start = 0; start < 9; ++start) {
    for (std::size_t length = 0; length <= bytes.size() - start; ++length) {
      const std::string_view part = std::string_view(bytes).substr(start, length);
      ASSERT_EQ(Crc32c(part), SlowCrc32c(part)) << start << "+" << length;
    }
  }
}

// The layout of FORMAT.md, byte by byte: both sides share this code, so a round trip could not notice a change.
TEST(FrameTest, BytesOnDiskAreThoseOfTheFormat) {
  std::string out = "before";
  const std::size_t start = BeginFrame(&out);
  out += "123456789";
  FinishFrame(start, &out);
  EXPECT_EQ(out, std::string("before\x09\0\0\0\x83\x92\x06\xe3"
                             "123456789",
                             6 + 8 + 9));
  EXPECT_EQ(kTraceMagic, std::string_view("\x89STLTRC\x0a"));
  EXPECT_EQ(kPlanMagic, std::string_view("\x89STLPLN\x0a"));
}

TEST(FrameTest, ZeroLengthIsAProblemSinceLostBlocksReadAsZeros) {
  EXPECT_NE(FrameLengthProblem(DecodeFrameHeader("\0\0\0\0\0\0\0\0")), "");
  EXPECT_EQ(FrameLengthProblem(DecodeFrameHeader("\1\0\0\0\0\0\0\0")), "");
  EXPECT_NE(FrameLengthProblem(DecodeFrameHeader("\xff\xff\xff\xff\0\0\0\0")), "");
}

TEST(FrameTest, MagicIsDescribedInWords) {
  EXPECT_EQ(DescribeMagic(kTraceMagic), "a stalloc trace");
  EXPECT_EQ(DescribeMagic(std::string(kPlanMagic) + "and more"), "a stalloc plan");
  EXPECT_EQ(DescribeMagic(""), "an empty file");
  EXPECT_EQ(DescribeMagic("PK\x03\x04"), "a file that starts with the bytes 50 4b 03 04");
}

}  // namespace
}  // namespace stalloc
