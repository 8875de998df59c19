// Slicing by eight: table k advances a byte over k further zero bytes, so that eight bytes take eight independent
// look-ups. Source: M. Kounavis, F. Berry, "A Systematic Approach to Building High Performance Software-based CRC
// Generators" (2005).
#include "proto/codec/crc32c.h"

#include <array>
#include <cstddef>

namespace stalloc {
namespace {

constexpr std::uint32_t kReversedPolynomial = 0x82f63b78u;
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t slice = 1; slice < tables.size(); ++slice) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t crc = tables[slice - 1][byte];
      tables[slice][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

std::uint32_t Byte(const char* bytes, std::size_t index) { return static_cast<unsigned char>(bytes[index]); }

}  // namespace

std::uint32_t Crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = ~std::uint32_t{0};
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    crc = kTables[7][(crc & 0xff) ^ Byte(at, 0)] ^ kTables[6][((crc >> 8) & 0xff) ^ Byte(at, 1)] ^
          kTables[5][((crc >> 16) & 0xff) ^ Byte(at, 2)] ^ kTables[4][(crc >> 24) ^ Byte(at, 3)] ^
          kTables[3][Byte(at, 4)] ^ kTables[2][Byte(at, 5)] ^ kTables[1][Byte(at, 6)] ^ kTables[0][Byte(at, 7)];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc & 0xff) ^ Byte(at, 0)];
  return ~crc;
}

}  // namespace stalloc
