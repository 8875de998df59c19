#include "proto/codec/frame.h"

#include <cstdio>

#include "proto/codec/crc32c.h"

namespace stalloc {
namespace {

std::uint32_t LoadLittleEndian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 3; i >= 0; --i) value = (value << 8) | static_cast<unsigned char>(bytes[i]);
  return value;
}

void StoreLittleEndian(std::uint32_t value, char* bytes) {
  for (int i = 0; i < 4; ++i, value >>= 8) bytes[i] = static_cast<char>(value & 0xff);
}

std::string Hex(std::uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof(text), "%08x", value);
  return text;
}

}  // namespace

std::string DescribeMagic(std::string_view first_bytes) {
  if (first_bytes.substr(0, kMagicBytes) == kTraceMagic) return "a stalloc trace";
  if (first_bytes.substr(0, kMagicBytes) == kPlanMagic) return "a stalloc plan";
  if (first_bytes.empty()) return "an empty file";
  std::string hex = "a file that starts with the bytes";
  for (const char byte : first_bytes.substr(0, kMagicBytes)) {
    char text[4];
    std::snprintf(text, sizeof(text), " %02x", static_cast<unsigned char>(byte));
    hex += text;
  }
  return hex;
}

FrameHeader DecodeFrameHeader(const char* bytes) noexcept {
  return {.length = LoadLittleEndian(bytes), .crc = LoadLittleEndian(bytes + 4)};
}

std::string FrameLengthProblem(const FrameHeader& header) {
  if (header.length > 0 && header.length <= kMaxPayloadBytes) return {};
  return "impossible frame length " + std::to_string(header.length);
}

std::string FrameChecksumProblem(const FrameHeader& header, std::string_view payload) {
  const std::uint32_t crc = Crc32c(payload);
  if (crc == header.crc) return {};
  return "checksum mismatch: expected " + Hex(header.crc) + ", found " + Hex(crc);
}

std::size_t BeginFrame(std::string* out) {
  const std::size_t start = out->size();
  out->append(kFrameHeaderBytes, '\0');
  return start;
}

void FinishFrame(std::size_t frame_start, std::string* out) {
  const std::string_view payload = std::string_view(*out).substr(frame_start + kFrameHeaderBytes);
  StoreLittleEndian(static_cast<std::uint32_t>(payload.size()), out->data() + frame_start);
  StoreLittleEndian(Crc32c(payload), out->data() + frame_start + 4);
}

}  // namespace stalloc
